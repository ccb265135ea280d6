"""The processes themselves: who I am, process groups, devices, threads, logging, signals, shutdown."""

import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from dfl_dist.config import LONGEST_TIMEOUT_S, ConfigError, refusal
from dfl_dist.waiting import PeerError, blaming

STARTUP_TIMEOUT_S = 600.0  # ranks start minutes apart on a busy host
MEETING_POLL_S = 0.02
STORES: dict["World", Any] = {}  # those that this process has opened
SAME_PRESS_S = 1.0  # a terminal's Ctrl-C reaches a rank twice: once directly, once through torchrun


@dataclass(frozen=True)
class World:
    """This process among the others, as torchrun tells it."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    torchrun: bool = False
    host: int = 0  # torchrun's number for the host, which need not be the launch script's

    @classmethod
    def from_environment(cls) -> "World":
        env = os.environ
        if "RANK" not in env:
            return cls()
        if "WORLD_SIZE" not in env:
            raise ConfigError(
                "WORLD_SIZE: given nothing though RANK is set, allowed: both, as torchrun does, or neither"
            )
        rank, size = int(env["RANK"]), int(env["WORLD_SIZE"])
        return cls(
            rank=rank,
            size=size,
            local_rank=int(env.get("LOCAL_RANK", rank)),
            local_size=int(env.get("LOCAL_WORLD_SIZE", size)),
            torchrun=True,
            host=int(env.get("GROUP_RANK", 0)),
        )


def run_id() -> str | None:
    """What stays the same when the same job is started again: SLURM's job id, torchrun's run id, or its agent."""
    env = os.environ
    if job := env.get("SLURM_JOB_ID"):
        return f"slurm-{job}"
    if (run := env.get("TORCHELASTIC_RUN_ID", "none")) != "none":
        return f"torchrun-{run}"
    if "TORCHELASTIC_RESTART_COUNT" not in env:
        return None
    try:  # torchrun without an id of its own: its process and when that started
        started = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None
    return f"agent-{socket.gethostname()}-{os.getppid()}-{started}"


def check_unconnected() -> None:
    """Refuse to begin where a process group is there already."""
    if dist.is_initialized():
        raise ConfigError("a process group is there already, allowed: none before dfl_dist.train, which makes its own")


def open_store(world: World, timeout_s: float) -> Any:
    """Where the ranks meet; kept, since a second run of this process meets there too, and rank 0 may be its host."""
    if not world.torchrun:
        return dist.HashStore()  # type: ignore[attr-defined]
    if world not in STORES:
        with blaming("rank 0 to plan the run", timeout_s):
            timeout = timedelta(seconds=timeout_s)
            STORES[world], _, _ = next(rendezvous("env://", world.rank, world.size, timeout=timeout))
    return STORES[world]


def connect(world: World) -> None:
    """Make the control group: gloo, all ranks."""
    make_group(world, meet(world, open_store(world, STARTUP_TIMEOUT_S), STARTUP_TIMEOUT_S))


def make_group(world: World, store: Any) -> None:
    """The control group of ranks that have met."""
    longest = timedelta(seconds=LONGEST_TIMEOUT_S)  # every wait has its own, shorter one
    dist.init_process_group("gloo", store=store, rank=world.rank, world_size=world.size, timeout=longest)


def meet(world: World, store: Any, timeout_s: float) -> Any:
    """A store of this very start, once all ranks are there.

    A restarted torchrun keeps its store, with all that the ranks of the start before have left there; a second run of
    a script finds what the first has left. So each rank says hello with a word that nobody used before, and rank 0
    answers it with the name of this start. torchrun's own count of restarts does not name it: with several hosts, each
    counts its own.
    """
    timeout = timedelta(seconds=timeout_s)
    if world.rank == 0:
        name = secrets.token_hex(8)
        here = dist.PrefixStore(f"dfl_dist/{name}", store)  # type: ignore[attr-defined]
        here.set("here/0", "")
        welcome(world, store, here, name, timeout_s)
        return here
    word = secrets.token_hex(8)
    store.set(f"dfl_dist/hello/{world.rank}", word)
    with blaming("rank 0 to plan the run", timeout_s):
        store.wait([f"dfl_dist/start/{word}"], timeout)
        name = store.get(f"dfl_dist/start/{word}").decode()
    here = dist.PrefixStore(f"dfl_dist/{name}", store)  # type: ignore[attr-defined]
    here.set(f"here/{world.rank}", "")
    for rank in range(world.size):
        with blaming(f"rank {rank} to start", timeout_s):
            here.wait([f"here/{rank}"], timeout)
    return here


def welcome(world: World, store: Any, here: Any, name: str, timeout_s: float) -> None:
    """Rank 0: tell every rank that says hello the name of this start, until all have come."""
    missing, answered, end = list(range(1, world.size)), set(), time.monotonic() + timeout_s
    while missing:
        for rank in missing:
            if store.check([f"dfl_dist/hello/{rank}"]):
                word = store.get(f"dfl_dist/hello/{rank}").decode()  # one of the start before is answered in vain
                if word not in answered:
                    store.set(f"dfl_dist/start/{word}", name)
                    answered.add(word)
        missing = [rank for rank in missing if not here.check([f"here/{rank}"])]
        if missing and time.monotonic() > end:
            raise PeerError(f"waited for rank {missing[0]} to start: nothing came within {timeout_s:g} s")
        time.sleep(MEETING_POLL_S if missing else 0)


def data_group(
    client_ranks: Sequence[int], *, backend: str, timeout_s: float, device: torch.device
) -> dist.ProcessGroup:
    """Make the data group: the ranks that host clients. Every rank calls this."""
    # gloo's waits have their own timeouts, so this one is for connecting; NCCL's watchdog knows no other.
    timeout = timedelta(seconds=timeout_s if backend == "nccl" else max(timeout_s, STARTUP_TIMEOUT_S))
    if device.type == "cuda":
        torch.cuda.set_device(device)  # NCCL takes the present one
    group: dist.ProcessGroup = dist.new_group(list(client_ranks), timeout=timeout, backend=backend)
    if backend == "nccl" and dist.get_rank() in client_ranks:
        # Its first point-to-point call must involve every rank, so there is something else before it.
        dist.all_reduce(torch.zeros(1, device=device), group=group)
    return group


def disconnect() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def choose_device(wanted: str, *, gpus: int, index: int) -> torch.device:
    """The device of a rank that is the `index`-th of its host's client ranks (-1: it hosts no client)."""
    if wanted == "cuda" and gpus == 0:
        raise refusal("device", "cuda", "cpu or auto: this host has no GPU that torch can use")
    if wanted == "cpu" or gpus == 0 or index < 0:
        return torch.device("cpu")
    return torch.device("cuda", index % gpus)


def has_gpu_alone(device: torch.device, client_ranks: int, gpus: int) -> bool:
    """Whether a rank shares its GPU with nobody, given how many ranks of its host have clients, and its GPUs."""
    return device.type == "cuda" and client_ranks <= gpus


def choose_backend(wanted: str, *, gpu_each: bool) -> str:
    """What carries the frames, given whether every client rank has a GPU of its own."""
    if wanted == "nccl" and not gpu_each:
        raise refusal("backend", "nccl", "gloo or auto: nccl needs a GPU for each rank that hosts clients")
    return "nccl" if gpu_each and wanted != "gloo" else "gloo"


def set_threads(threads: int | str, local_size: int) -> int:
    """Threads of this rank's CPU kernels; auto divides the host's cores."""
    count = max(1, len(os.sched_getaffinity(0)) // local_size) if threads == "auto" else int(threads)
    torch.set_num_threads(count)
    return count


def set_up_logging(rank: int) -> None:
    """Rank 0 tells what happens, the others only what is wrong."""
    logging.basicConfig(
        level=logging.INFO if rank == 0 else logging.WARNING,
        format=f"[rank {rank}] %(message)s",
        stream=sys.stderr,
        force=True,
    )


@contextmanager
def signals_restored() -> Iterator[None]:
    """Leave the handlers of SIGINT and SIGTERM as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if in_main_thread() and handler is not None:
                signal.signal(number, handler)


def in_main_thread() -> bool:
    """Whether this thread may handle signals."""
    return threading.current_thread() is threading.main_thread()


@dataclass
class StopSignal:
    """Remembers a SIGINT or SIGTERM, so that the run can end after a round; a second Ctrl-C ends it at once."""

    received: str | None = None
    at: float = 0.0

    def install(self) -> "StopSignal":
        for number in (signal.SIGINT, signal.SIGTERM):
            if in_main_thread():
                signal.signal(number, self._remember)
        return self

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self.at = signal.Signals(number).name, time.monotonic()
        elif number == signal.SIGINT and time.monotonic() - self.at > SAME_PRESS_S:
            raise KeyboardInterrupt
