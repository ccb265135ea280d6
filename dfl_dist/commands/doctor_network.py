"""What `dfl-dist doctor` looks at between the hosts of a job."""

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from dfl_dist.commands.doctor_host import FAILED, OK, WARNING, Finding, own_address, software
from dfl_dist.run_folder import RUNS, SEEN_WITHIN_S
from dfl_dist.runtime import World
from dfl_dist.tables import byte_unit
from dfl_dist.waiting import blaming, wait

CONNECT_S = 5.0
SILENT_S = 120.0  # a rank that does not answer for so long has failed
PINGS, FIRST_BYTES, MORE_BYTES = 10, 1_000_000, 16_000_000
QUICK_S = 0.02  # a first message faster than this is followed by a larger one
FEW_TIMES = 4.0  # a link so many times slower than is usual in the job is named
SLOW_BYTES_S = 12.5e6  # 100 Mbit/s: a small model of 1 MB takes a tenth of a second


Link = tuple[int, int]  # from a host to another


@dataclass(frozen=True)
class Host:
    """A host as the others know it."""

    number: int
    name: str
    address: str
    ranks: list[int]
    software: str

    def __str__(self) -> str:
        return f"host {self.number} ({self.name}, {self.address})"


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


def gather_hosts(board: Board) -> list[Host]:
    """The hosts of the job, in their order."""
    world = board.world
    facts = board.gather("facts", [world.host, socket.gethostname(), own_address(), software()])
    hosts: dict[int, Host] = {}
    for rank, (number, name, address, versions) in enumerate(facts):
        hosts.setdefault(number, Host(number, name, address, [], versions)).ranks.append(rank)
    return [host for _, host in sorted(hosts.items())]


def compare_software(hosts: Sequence[Host]) -> Finding:
    others = [host for host in hosts if host.software != hosts[0].software]
    if not others:
        return Finding(OK, "versions", "the same on all hosts")
    cure = "install the same on all: bits and messages may differ"
    return Finding(
        WARNING, "versions", f"{others[0]} has {others[0].software}, {hosts[0]} has {hosts[0].software}; {cure}"
    )


# Ports: gloo's ranks listen anywhere, so every host must be reached at any port.


@contextlib.contextmanager
def listening(address: str) -> Iterator[int]:
    """Accept connections at some free port of an address, and nowhere else."""
    with socket.create_server((address, 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def try_ports(board: Board, hosts: Sequence[Host]) -> Finding:
    """Let the first rank of each host connect to every other host."""
    firsts, own = [host.ranks[0] for host in hosts], next(host for host in hosts if board.world.rank in host.ranks)
    unreached: list[str] = []
    with contextlib.ExitStack() as stack:
        if board.world.rank in firsts:
            board.put("port", stack.enter_context(listening(own.address)))
            for host, port in zip(hosts, board.take("port", firsts), strict=True):
                if host is not own and (error := reach(host.address, port)):
                    unreached.append(f"{own} does not reach {host} at port {port}: {error}")
        found = [text for texts in board.gather("unreached", unreached) for text in texts]
        board.gather("tried", True)  # nobody stops listening before all have tried
    if found:
        return Finding(
            FAILED, "ports", f"{'; '.join(found)}; let the hosts of a job connect to one another at all TCP ports"
        )
    return Finding(OK, "ports", "every host reaches every other")


def reach(address: str, port: int) -> str | None:
    """Why an address cannot be connected to; None where it can."""
    try:
        socket.create_connection((address, port), timeout=CONNECT_S).close()
    except OSError as error:
        return str(error)
    return None


def try_folder(board: Board, hosts: Sequence[Host]) -> Finding:
    """Whether what rank 0 writes where runs are kept is seen from every host."""
    made = not RUNS.exists()
    path = RUNS.absolute() / f".doctor-{secrets.token_hex(8)}"
    if board.world.rank == 0:
        RUNS.mkdir(exist_ok=True)
        path.write_text("seen")
        board.put("file", str(path))
    (name,) = board.take("file", [0])
    end = time.monotonic() + SEEN_WITHIN_S
    while not (seen := os.path.exists(name)) and time.monotonic() < end:
        time.sleep(0.2)
    saw = board.gather("saw", seen)
    if board.world.rank == 0:
        path.unlink()
        if made:
            with contextlib.suppress(OSError):
                RUNS.rmdir()
    blind = [str(host) for host in hosts if not all(saw[rank] for rank in host.ranks)]
    if blind:
        cure = "start in a folder on a file system that all hosts share, under the same path, or set --out to one"
        return Finding(FAILED, "run folder", f"{RUNS.absolute()} of rank 0 is not seen by {', '.join(blind)}; {cure}")
    return Finding(OK, "run folder", f"{RUNS.absolute()} is seen by all hosts")


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


def judge_speed(rates: torch.Tensor, delays: torch.Tensor, hosts: Sequence[Host]) -> list[Finding]:
    """Say how fast the links are, and name those that are much slower than the rest."""
    found = []
    if inside := [(a, b) for host in hosts for a in host.ranks for b in host.ranks if a != b]:
        found.append(Finding(OK, "within hosts", describe(rates, delays, inside)))
    if len(hosts) < 2:
        return found
    speeds = {
        (one.number, other.number): max(float(rates[a, b]) for a in one.ranks for b in other.ranks)
        for one in hosts
        for other in hosts
        if one is not other
    }
    across = [(a, b) for one in hosts for other in hosts if one is not other for a in one.ranks for b in other.ranks]
    slow = [
        link for link, speed in speeds.items() if speed < median(speeds.values()) / FEW_TIMES or speed < SLOW_BYTES_S
    ]
    text = describe(rates, delays, across)
    if not slow:
        return [*found, Finding(OK, "between hosts", text)]
    by_number = {host.number: host for host in hosts}
    named = [Finding(WARNING, "slow link", text) for text in name_links(slow, speeds, by_number)]
    return [*found, Finding(OK, "between hosts", text), *named]


def name_links(slow: Sequence[Link], speeds: dict[Link, float], hosts: dict[int, Host]) -> list[str]:
    """The slow links in words: all that a host sends or gets, where that is it and others are faster, else each."""
    told, left = [], list(slow)
    usual = [speed for link, speed in speeds.items() if link not in slow]
    for place, verb in enumerate(("sends", "gets")):
        for number, host in hosts.items():
            own = [link for link in speeds if link[place] == number]
            if usual and len(own) > 1 and all(link in left for link in own):
                best = show_rate(max(speeds[link] for link in own))
                cure = "look at its cable, switch port or interface"
                told.append(f"all that {host} {verb}: {best} at best, {show_rate(median(usual))} elsewhere; {cure}")
                left = [link for link in left if link not in own]
    return told + [
        f"from {hosts[a]} to {hosts[b]}: {show_rate(speeds[a, b])}; look at what is between them" for a, b in left
    ]


def describe(rates: torch.Tensor, delays: torch.Tensor, pairs: Sequence[tuple[int, int]]) -> str:
    speeds, times = ([float(table[a, b]) for a, b in pairs] for table in (rates, delays))
    return f"{show_rate(min(speeds))} to {show_rate(max(speeds))}, answers after {1e3 * median(times):.2f} ms"


def show_rate(rate: float) -> str:
    size, unit = byte_unit(rate)
    return f"{rate / size:.3g} {unit}/s"
