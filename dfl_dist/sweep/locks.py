"""Who works on a cell: its lock, taken over from a sweep that has ended, once nothing of that is left.

The lock is a file that says who has it. The sweep holds the kernel's lock (flock) on it, and so do all processes that
are forked from the sweep, without doing anything for it: as long as one of them lives, the cell is not taken over.
"""

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GUARD = ".sweep-guard"  # in every folder that a sweep has written to
LEFT_WITHIN_S = 30.0  # for what a killed sweep left to end, which takes a moment unless a disk or a driver holds it


@dataclass(frozen=True)
class Held:
    """A lock that this process has."""

    path: Path
    file: int

    def release(self) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self.file)


def claim(lock: Path) -> Held | str:
    """Take a cell for this process; who has it where it is taken."""
    me = {"host": socket.gethostname(), "pid": os.getpid(), "started": started_at(os.getpid())}
    me["job"] = os.environ.get("SLURM_JOB_ID")
    with one_at_a_time(lock.parent):
        holder = read_holder(lock)
        if holder and is_gone(holder, me):
            if not is_free_within(lock, LEFT_WITHIN_S):
                return f"what a sweep that was killed, process {holder['pid']}, left running"
            lock.unlink(missing_ok=True)
        try:
            file = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            holder = read_holder(lock) or {"host": "unknown", "pid": "unknown"}
            return f"a sweep on host {holder['host']}, process {holder['pid']}; if it is gone, remove {lock}"
        with contextlib.suppress(OSError):  # a file system without such locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(file, (json.dumps(me) + "\n").encode())
        return Held(lock, file)


def is_free_within(lock: Path, within_s: float) -> bool:
    """Wait until nobody holds the kernel's lock on a file; whether that came about. Without such locks, it did."""
    end = time.monotonic() + within_s
    with contextlib.suppress(FileNotFoundError), lock.open() as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    return False
                time.sleep(0.05)
            except OSError:
                return True
            else:
                return True
    return True


@contextlib.contextmanager
def one_at_a_time(out: Path) -> Iterator[None]:
    """Let the sweeps of this host look at locks one after the other, so that only one takes over a lock."""
    with (out / GUARD).open("a") as file:
        with contextlib.suppress(OSError):  # a file system without them: then locks are as good as O_EXCL makes them
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_gone(holder: Mapping[str, Any], me: Mapping[str, Any]) -> bool:
    """Whether a lock's holder has ended: a process of this host, or an earlier start of this very SLURM job."""
    if holder["host"] != me["host"]:
        return me["job"] is not None and bool(holder.get("job") == me["job"])
    return bool(started_at(holder["pid"]) != holder["started"])


def read_holder(lock: Path) -> dict[str, Any] | None:
    try:
        holder = json.loads(lock.read_text())
    except (OSError, ValueError):
        return None
    return holder if isinstance(holder, dict) and {"host", "pid", "started"} <= set(holder) else None


def started_at(pid: int) -> str | None:
    """When a process of this host was started, to tell it from a later one with its number; None: there is none."""
    try:
        state, *others = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else others[18]  # one that has ended may stay listed until its parent looks
