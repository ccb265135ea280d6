"""What the ranks of the tests of process groups run; each returns 0 when all is as it should be."""

import os
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from dfl_dist.data.datasets import Dataset, digits
from dfl_dist.distributed import groups
from dfl_dist.distributed.control import Control
from dfl_dist.distributed.world import World
from dfl_dist.errors import PeerError
from dfl_dist.topology.graph import make_graph
from dfl_dist.training.plans import decode, encode

CPU = torch.device("cpu")
OVER = Path("over")  # in the test's own folder: the waiting rank has seen what it should see


def stay_away() -> None:
    """Live on without doing one's part, until the others are through with waiting."""
    end = time.monotonic() + 60
    while not OVER.exists() and time.monotonic() < end:
        time.sleep(0.05)
    os._exit(0)


def absent_rank_is_named(arguments: list[str]) -> int:
    """The last rank meets the others and then does not take this step; rank 0 says for whom it waited."""
    (step,) = arguments
    world = World.from_environment()
    last = world.size - 1
    store = groups.meet(world, groups.open_store(world, 60.0), 60.0)
    groups.STARTUP_TIMEOUT_S = 3.0
    backend = "gloo"
    if step != "connect to the control group":
        groups.make_group(world, store)
    if step == "connect their GPUs":
        backend, make = "nccl", dist.new_group

        def make_group(ranks: list[int], timeout: timedelta, backend: str) -> dist.ProcessGroup:
            """There are no GPUs here."""
            group = make(ranks, timeout, backend="gloo")
            if world.rank == last:
                stay_away()
            return group

        dist.new_group = make_group
    elif world.rank == last:
        stay_away()
    started = time.monotonic()

    def connect() -> None:
        if step == "connect to the control group":
            groups.make_group(world, store)
        else:
            groups.data_group(world, range(world.size), backend=backend, timeout_s=1.0, device=CPU)

    with pytest.raises(PeerError, match=f"waited for rank {last} to {step}: nothing came within"):
        connect()
    if world.rank > 0:
        stay_away()  # rank 0 hosts the store
    assert time.monotonic() - started < 30
    OVER.touch()
    os._exit(0)  # there is nobody left to say goodbye to


def waits_survive_the_startup_timeout(arguments: list[str]) -> int:
    """What is posted ahead may wait longer than ranks may take to connect."""
    world = World.from_environment()
    groups.STARTUP_TIMEOUT_S = 2.0
    control = Control(groups.connect(world), rank=world.rank, world_size=world.size, timeout_s=60.0)
    if world.rank == 0:
        time.sleep(4.0)
        control.send_plan(7, *encode(None))
    else:
        control.expect_plan(7)
        assert decode(*control.receive_plan(7)) is None
    control.finish()
    groups.disconnect()
    return 0


def large_plans_need_little_room(arguments: list[str]) -> int:
    """The plan of 3,000 clients: the receive posted ahead is a few numbers, not one per pair of clients."""
    world = World.from_environment()
    control = Control(groups.connect(world), rank=world.rank, world_size=world.size, timeout_s=60.0)
    graph = make_graph([[(client + 1) % 3000, (client + 7) % 3000] for client in range(3000)])
    if world.rank == 0:
        control.send_plan(0, *encode(graph))
        control.send_plan(1, *encode(graph))
    else:
        control.expect_plan(0)
        control.expect_plan(1)
        assert all(operation.tensor.numel() < 10 for operation in control.plans_expected)
        assert decode(*control.receive_plan(0)) == graph
        control.drop_plans()  # that of the round that is not to be: its body too
    control.finish()
    groups.disconnect()
    return 0


def one_pixel_differs() -> Dataset:
    """The digits, with one pixel in the midst of the training set changed on every rank but rank 0."""
    found = digits()
    inputs = found.train_inputs.copy()
    inputs[700, 32] += np.float32(os.environ.get("RANK", "0") != "0")
    return Dataset(inputs, found.train_targets, found.test_inputs, found.test_targets)
