"""Whether every host reaches every other, tried before the groups are made: a firewall is named, not waited for."""

import contextlib
import errno
import fcntl
import json
import os
import selectors
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from dfl_dist.distributed.positions import SilenceError, ToldElsewhereError
from dfl_dist.distributed.standstill import Position
from dfl_dist.distributed.waiting import blaming
from dfl_dist.distributed.world import World
from dfl_dist.errors import ConfigError
from dfl_dist.system import free_ports

CONNECT_S = 10.0
HEARD_S = 30.0  # for all hosts to have tried
AGAIN_S = 0.5
MOST_NAMED = 3
SIOCGIFADDR, ANY_PORT = 0x8915, 9  # asks Linux for an interface's IPv4 address; a port to which nothing is sent


class Door(NamedTuple):
    """Where a host listens for the others; port 0 where it cannot be told which address they will use."""

    rank: int  # its first
    host: int
    name: str
    address: str
    port: int
    ports: str  # those that its system gives to whoever asks for any: gloo's ranks do

    def __str__(self) -> str:
        return f"host {self.host} ({self.name}, {self.address})"

    def as_position(self) -> Position:
        return Position(self.rank, self.host, self.name, self.address)


class Hosts(NamedTuple):
    """The first ranks of all hosts, and this rank's open connections to them, if it is one."""

    firsts: list[Position]
    lines: list[socket.socket]


def check(world: World, store: Any, hosts: Sequence[int]) -> Hosts:
    """Refuse a network in which a host does not reach another; the first rank of each host tries all others.

    `hosts` has the number of the host of each rank. All ranks refuse alike.
    """
    firsts = sorted(hosts.index(host) for host in set(hosts))
    if len(firsts) < 2:
        return Hosts([], [])
    lines: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        server = None
        if world.rank in firsts:
            server, door = open_door(world, len(firsts), stack)
            store.set(f"reach/door/{world.rank}", json.dumps(door))
        doors = [Door(*json.loads(text)) for text in take(store, "reach/door", firsts)]
        if world.rank in firsts:
            others = {door.rank: (door.address, door.port) for door in doors if door.port and door.rank != world.rank}
            lines, failed = try_all(others)
            store.set(f"reach/failed/{world.rank}", json.dumps(list(failed.items())))
        found = [json.loads(text) for text in take(store, "reach/failed", firsts)]  # nobody stops listening before
        lines += accept_all(server) if server else []
    by_rank = {door.rank: door for door in doors}
    blocked = {
        (by_rank[rank], by_rank[other]): problem
        for rank, problems in zip(firsts, found, strict=True)
        for other, problem in problems
    }
    if blocked:
        for line in lines:
            line.close()
        raise ConfigError(describe(blocked, doors))
    return Hosts([door.as_position() for door in doors], lines)


def take(store: Any, topic: str, ranks: Sequence[int]) -> list[bytes]:
    """What these ranks have put into the store."""
    for rank in ranks:
        with blaming(f"rank {rank} to try the network", HEARD_S):
            store.wait([f"{topic}/{rank}"], timedelta(seconds=HEARD_S))
    return list(store.multi_get([f"{topic}/{rank}" for rank in ranks]))


def open_door(world: World, others: int, stack: contextlib.ExitStack) -> tuple[socket.socket | None, Door]:
    """Listen at any free port of this host. The system itself takes connections, as many as it may keep waiting."""
    address, server = own_address(), None
    if address:
        with contextlib.suppress(OSError):
            server = stack.enter_context(socket.create_server((address, 0), backlog=others))
            server.setblocking(False)
    port = server.getsockname()[1] if server else 0
    return server, Door(world.rank, world.host, socket.gethostname(), address, port, free_ports())


def accept_all(server: socket.socket) -> list[socket.socket]:
    """The connections that others have made."""
    found = []
    with contextlib.suppress(OSError):
        while True:
            found.append(server.accept()[0])
    return found


def own_address() -> str:
    """The address at which other hosts connect to this one's ranks; empty where it cannot be told."""
    name = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        if name:
            answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
            found = socket.inet_ntoa(answer[20:24])
        else:
            probe.connect((os.environ.get("MASTER_ADDR", ""), ANY_PORT))
            found = probe.getsockname()[0]
        return "" if found.startswith("127.") else found
    return ""


def try_all(
    doors: Mapping[int, tuple[str, int]], within_s: float = CONNECT_S
) -> tuple[list[socket.socket], dict[int, str]]:
    """Connect to all of them at the same time; the connections, and what went wrong with the others."""
    made, failed, end = [], {}, time.monotonic() + within_s
    with selectors.DefaultSelector() as waiting:
        for rank, door in doors.items():
            attempt = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            attempt.setblocking(False)
            problem = attempt.connect_ex(door)
            if problem in (0, errno.EINPROGRESS):
                waiting.register(attempt, selectors.EVENT_WRITE, (rank, attempt))
            else:
                failed[rank] = os.strerror(problem)
                attempt.close()
        while waiting.get_map() and (left := end - time.monotonic()) > 0:
            for key, _ in waiting.select(left):
                rank, attempt = key.data
                waiting.unregister(attempt)
                if problem := attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    failed[rank] = os.strerror(problem)
                    attempt.close()
                else:
                    made.append(attempt)
        for key in waiting.get_map().values():
            rank, attempt = key.data
            failed[rank] = f"no answer within {within_s:g} s"
            attempt.close()
    return made, failed


def describe(blocked: Mapping[tuple[Door, Door], str], doors: Sequence[Door]) -> str:
    """Which host does not reach which, and what to open."""
    named, seen = [], set()
    for (one, other), problem in sorted(blocked.items()):
        if (other, one) in seen:
            continue
        seen.add((one, other))
        back = "nor the other way round" if (other, one) in blocked else "the other direction works"
        named.append(f"{one} does not reach {other} at port {other.port} ({problem}), {back}")
    more = [f"{len(named) - MOST_NAMED} more pairs of hosts"] if len(named) > MOST_NAMED else []
    return f"{'; '.join([*named[:MOST_NAMED], *more])}: {cure({door.ports for door in doors})}"


def cure(ranges: set[str]) -> str:
    ports = ", ".join(sorted(ranges - {""})) or "that the system gives to programs"
    return f"open TCP ports {ports} between the hosts, in both directions"


def check_store(world: World) -> None:
    """Refuse to wait for a store that an agent serves, so that it is there already, and that this host cannot reach."""
    if world.local_size == world.size or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True):
        return
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    end, problem = time.monotonic() + CONNECT_S, ""
    while (left := end - time.monotonic()) > 0:
        try:
            socket.create_connection((address, port), timeout=left).close()
        except OSError as error:
            problem = f"no answer within {CONNECT_S:g} s" if isinstance(error, TimeoutError) else str(error)
            time.sleep(min(AGAIN_S, max(0.0, end - time.monotonic())))
        else:
            return
    here = f"host {world.host} ({socket.gethostname()}, {own_address() or 'address unknown'})"
    ports = f"open TCP ports {free_ports()} between the hosts, in both directions; now they reach only the one at which"
    kind = ToldElsewhereError if world.local_rank else SilenceError
    raise kind(f"{here} does not reach the head, {address}, at port {port} ({problem}): {ports} they have met")
