"""What this process's kernel knows of its connections to other hosts: whether they are answered, whether they speak."""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dfl_dist.distributed.standstill import Link

# Of Linux's struct tcp_info: how often the oldest data was sent again, and how many packets have come.
INFO_BYTES, RETRANSMITS_AT, SEGMENTS_IN = 144, 2, struct.Struct("=140xI")
SENT_AGAIN = 2  # once is a lost packet
LOOK_S = 1.0


@dataclass(frozen=True)
class Connection:
    """An established connection of this process to another host."""

    inode: int  # its name, as long as it lives
    address: str
    unanswered: bool
    segments_in: int


def connections() -> Iterator[Connection]:
    """This process's connections over TCP to other addresses than its own."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError, ValueError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as probe:
                if probe.type != socket.SOCK_STREAM or probe.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                own, other = (bare(ends[0]) for ends in (probe.getsockname(), probe.getpeername()))
                info = probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES)
                if own != other and len(info) == INFO_BYTES:
                    (segments,) = SEGMENTS_IN.unpack(info)
                    inode = os.fstat(probe.fileno()).st_ino
                    yield Connection(inode, other, info[RETRANSMITS_AT] >= SENT_AGAIN, segments)


def bare(address: str) -> str:
    return address.removeprefix("::ffff:")


class Watch:
    """Looks at the connections of this process once a second, while its main thread waits.

    Over `lines`, which carry nothing else, something is said each time: what is not answered shows only where something
    was sent.
    """

    def __init__(self, waits: Callable[[], bool], lines: Sequence[socket.socket] = ()) -> None:
        self.waits, self.lines, self.ended = waits, lines, threading.Event()
        self.first: dict[int, int] = {}  # packets that had come when a connection was found unanswered
        self.found: dict[str, Link] = {}
        threading.Thread(target=self._run, name="links", daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # it is only there to explain
            while not self.ended.wait(LOOK_S):
                waits = self.waits()
                for line in self.lines:
                    speak(line, aloud=waits)
                self.look(waits=waits)
        for line in self.lines:
            line.close()

    def look(self, *, waits: bool) -> None:
        if not waits:
            self.first, self.found = {}, {}
            return
        found = dict(self.found)  # of connections that were closed by now too
        for each in connections():
            if each.unanswered:
                heard = each.segments_in > self.first.setdefault(each.inode, each.segments_in)
                known = found.get(each.address, Link(unanswered=True, heard=False))
                found[each.address] = Link(unanswered=True, heard=heard or known.heard)
            elif self.first.pop(each.inode, None) is not None:  # it was, and carries again
                found.pop(each.address, None)
        self.found = found

    def end(self) -> None:
        self.ended.set()


def speak(line: socket.socket, *, aloud: bool) -> None:
    """Take in what was said, and say something."""
    with contextlib.suppress(OSError):  # also where there is nothing, or no room
        if aloud:
            line.send(b".", socket.MSG_DONTWAIT)
        line.recv(4096, socket.MSG_DONTWAIT)
