"""What the ranks of the tests of positions run, called through ranks.py."""

import logging
import os
import signal
import threading
import time

import torch

from dfl_dist.distributed import groups, positions
from dfl_dist.distributed.control import Control
from dfl_dist.distributed.world import World


def at_the_start(timeout_s: str) -> tuple[World, Control]:
    """Ranks that have met, and may wait for minutes."""
    world = World.from_environment()
    logging.basicConfig(format=f"[rank {world.rank}] %(message)s")
    control = Control(groups.connect(world), rank=world.rank, world_size=world.size, timeout_s=60.0)
    positions.limit_silence(float(timeout_s))
    return world, control


def stopped_at_the_start(arguments: list[str]) -> int:
    """Rank 1 is stopped before it has done its part."""
    world, control = at_the_start(*arguments)
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    control.all_reduce(torch.zeros(1), "load their data")
    return 0


def slow_at_the_start(arguments: list[str]) -> int:
    """Rank 1 takes much longer than the timeout."""
    world, control = at_the_start(*arguments)
    if world.rank == 1:
        time.sleep(max(3 * float(arguments[0]), 5.0))
    control.all_reduce(torch.zeros(1), "load their data")
    control.finish()
    groups.disconnect()
    return 0


def tell_helpers(arguments: list[str]) -> int:
    """Say which threads this rank has beside its own; after the end there must be none."""
    groups.connect(World.from_environment())
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    os.write(1, f"{' '.join(names) or 'none'}\n".encode())
    groups.disconnect()
    return len(threading.enumerate()) - 1
