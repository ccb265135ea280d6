"""Who works on a cell: its lock, taken over from a sweep that has ended."""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any


def claim(lock: Path, clean_up: Callable[[], None]) -> str | None:
    """Take a cell for this process; returns who has it where it is taken.

    `clean_up` is called before it is taken over from a sweep that has ended.
    """
    me = {"host": socket.gethostname(), "pid": os.getpid(), "started": started_at(os.getpid())}
    me["job"] = os.environ.get("SLURM_JOB_ID")
    with one_at_a_time(lock.parent):
        holder = read_holder(lock)
        if holder and is_gone(holder, me):
            clean_up()
            lock.unlink(missing_ok=True)
        try:
            handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            holder = read_holder(lock) or {"host": "unknown", "pid": "unknown"}
            return f"a sweep on host {holder['host']}, process {holder['pid']}; if it is gone, remove {lock}"
        with os.fdopen(handle, "w") as file:
            file.write(json.dumps(me) + "\n")
    return None


@contextlib.contextmanager
def one_at_a_time(out: Path) -> Iterator[None]:
    """Let the sweeps of this host look at locks one after the other, so that only one takes over a lock."""
    with (out / ".sweep-guard").open("w") as file:
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
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None
