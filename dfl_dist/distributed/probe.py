"""What `dfl-dist doctor` looks at between the hosts of a job."""

import json
import time
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from dfl_dist.distributed.waiting import blaming, wait
from dfl_dist.distributed.world import World

SILENT_S = 120.0  # a rank that does not answer for so long has failed
PINGS, FIRST_BYTES, MORE_BYTES = 10, 1_000_000, 16_000_000
QUICK_S = 0.02  # a first message faster than this is followed by a larger one


class Board:
    """A place where ranks put things for one another before they are connected: the store that torchrun gives."""

    def __init__(self, store: Any, world: World) -> None:
        self.store, self.world = store, world

    def put(self, topic: str, value: Any) -> None:
        self.store.set(f"{topic}/{self.world.rank}", json.dumps(value))

    def take(self, topic: str, ranks: Sequence[int]) -> list[Any]:
        """What each of these ranks has put there; waits for it."""
        found = []
        for rank in ranks:
            with blaming(f"rank {rank} to look at its part", SILENT_S):
                self.store.wait([f"{topic}/{rank}"], timedelta(seconds=SILENT_S))
                found.append(json.loads(self.store.get(f"{topic}/{rank}")))
        return found

    def gather(self, topic: str, value: Any) -> list[Any]:
        """Every rank's value, for every rank."""
        self.put(topic, value)
        return self.take(topic, range(self.world.size))


# Speed, between every two ranks.


def tournament(size: int) -> list[list[tuple[int, int]]]:
    """Rounds in which everybody meets somebody, so that after all of them everybody has met everybody."""
    places = [*range(size), *([-1] if size % 2 else [])]  # with an odd number somebody sits out
    rounds = []
    for _ in range(len(places) - 1):
        half = len(places) // 2
        pairs = zip(places[:half], reversed(places[half:]), strict=True)
        rounds.append([(min(pair), max(pair)) for pair in pairs if -1 not in pair])
        places = [places[0], places[-1], *places[1:-1]]
    return rounds


def measure(world: World) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes a second from each rank to each other, and seconds for a small message and its answer: [ranks, ranks]."""
    rates, delays = (torch.zeros(world.size, world.size, dtype=torch.float64) for _ in range(2))
    for pairs in tournament(world.size):
        for low, high in pairs:
            if world.rank in (low, high):
                other = high if world.rank == low else low
                delays[world.rank, other] = ping(other, first=world.rank == low)
                for sender in (low, high):
                    rates[sender, high + low - sender] += stream_bytes(other, sends=world.rank == sender)
    for table in (rates, delays):
        work = dist.all_reduce(table, async_op=True)
        wait(work, what="all ranks to measure their links", timeout_s=SILENT_S)
    return rates, delays


def send(message: torch.Tensor, other: int) -> None:
    wait(dist.isend(message, other), what=f"rank {other} to take a message", timeout_s=SILENT_S)  # type: ignore[arg-type]


def receive(message: torch.Tensor, other: int) -> None:
    wait(dist.irecv(message, other), what=f"a message of rank {other}", timeout_s=SILENT_S)  # type: ignore[arg-type]


def ping(other: int, *, first: bool) -> float:
    """The median time of a small message and its answer."""
    message, times = torch.zeros(1, dtype=torch.uint8), [time.perf_counter()]
    for _ in range(PINGS):
        for mine in (first, not first):
            (send if mine else receive)(message, other)
        times.append(time.perf_counter())
    return median(after - before for before, after in pairwise(times))


def stream_bytes(other: int, *, sends: bool) -> float:
    """Bytes a second of a large message up to its answer, as the sender sees it; 0 for the receiver."""
    seconds, size, answer = 0.0, FIRST_BYTES, torch.zeros(1)
    for size in (FIRST_BYTES, MORE_BYTES):
        message, started = torch.zeros(size, dtype=torch.uint8), time.perf_counter()
        (send if sends else receive)(message, other)
        (receive if sends else send)(answer, other)
        seconds = time.perf_counter() - started
        more = torch.tensor([float(seconds < QUICK_S)])  # the sender decides
        (send if sends else receive)(more, other)
        if not more:
            break
    return size / seconds if sends else 0.0
