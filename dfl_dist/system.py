"""What is asked of Linux itself."""

import ctypes
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG = 1  # of prctl: the signal that a process gets when its parent ends
LOOKUPS = Path("/etc/nsswitch.conf")
PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUAL_LOOKUP = "dns [!UNAVAIL=return] files"  # of the C library, where that file says nothing


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent, with this process id, ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != parent:  # it ended before
        os._exit(1)


def leave(code: int) -> NoReturn:
    """End this process at once, with all that it printed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code & 0xFF)


def read_stat(process: Path) -> list[str]:
    """What the kernel says of a process, given its folder in /proc, from its state on; X where it has ended."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["X"]


def born(pid: int) -> str | None:
    """When a process began, as the kernel counts, which tells it from a later one of that number; None: it is gone."""
    state, *rest = read_stat(Path(f"/proc/{pid}"))
    return None if state in "ZX" else rest[18]


def is_alive(pid: int, since: str | None) -> bool:
    """Whether the process that was born then, if that is known, has not ended."""
    return since is not None and born(pid) == since


def resident_bytes() -> int:
    """The memory that this process has, shared or not."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def names_from_files() -> Iterator[None]:
    """Look names of hosts up in this host's own files only.

    torch asks for the name of every address that a store connects to, only to print it. A name server is asked a
    hundred times at once then, and some answer a few dozen; each question that is not answered costs 5 s.
    """
    configure = getattr(ctypes.CDLL(None), "__nss_configure_lookup", None)
    if configure is None:  # another C library
        yield
        return
    configure(b"hosts", b"files")
    try:
        yield
    finally:
        configure(b"hosts", usual_lookup(LOOKUPS).encode())


def usual_lookup(file: Path) -> str:
    """Where names of hosts are looked up on this host, as its configuration says."""
    try:
        found = re.search(r"^\s*hosts:([^#\n]*)", file.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else USUAL_LOOKUP


def free_ports() -> str:
    """The ports that this host gives to programs that ask for any, as ranks do; empty where that is not known."""
    try:
        return "-".join(PORTS.read_text().split())
    except OSError:
        return ""


def children_of_thread(thread: int | None) -> list[int]:
    """The processes that a living thread of this process has started, as far as the kernel tells."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{thread}/children").read_text().split()]
    except OSError:
        return []
