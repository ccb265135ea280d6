"""What `dfl-dist doctor` checks between the hosts of a job."""

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from dfl_dist.commands.doctor.host import FAILED, OK, WARNING, Finding, own_address, software
from dfl_dist.distributed.probe import Board
from dfl_dist.run_folder.folder import RUNS, SEEN_WITHIN_S
from dfl_dist.text import format_bytes

CONNECT_S = 5.0
FEW_TIMES = 4.0  # a link is named if it is this many times slower than is usual in the job
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
    named, left = [], list(slow)
    usual = [speed for link, speed in speeds.items() if link not in slow]
    for place, verb in enumerate(("sends", "gets")):
        for number, host in hosts.items():
            own = [link for link in speeds if link[place] == number]
            if usual and len(own) > 1 and all(link in left for link in own):
                best = format_rate(max(speeds[link] for link in own))
                cure = "look at its cable, switch port or interface"
                named.append(f"all that {host} {verb}: {best} at best, {format_rate(median(usual))} elsewhere; {cure}")
                left = [link for link in left if link not in own]
    return named + [
        f"from {hosts[a]} to {hosts[b]}: {format_rate(speeds[a, b])}; look at what is between them" for a, b in left
    ]


def describe(rates: torch.Tensor, delays: torch.Tensor, pairs: Sequence[tuple[int, int]]) -> str:
    speeds, times = ([float(table[a, b]) for a, b in pairs] for table in (rates, delays))
    return f"{format_rate(min(speeds))} to {format_rate(max(speeds))}, answers after {1e3 * median(times):.2f} ms"


def format_rate(rate: float) -> str:
    return f"{format_bytes(rate)}/s"
