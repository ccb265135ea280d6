"""The processes of a job, which all belong to one session: whatever happens, none of them is left behind."""

import contextlib
import os
import signal
import time
from pathlib import Path

from dfl_dist.system import read_stat

GONE_WITHIN_S = 30.0  # the kernel removes a killed process, unless a disk or a driver holds it


def session_of(process: Path) -> int | None:
    """The session of a process, given its folder in /proc; None where it has ended."""
    state, *rest = read_stat(process)
    return None if state in "ZX" else int(rest[2])


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped a process; one that a debugger holds is not meant."""
    return read_stat(Path(f"/proc/{pid}"))[0] == "T"


def members(session: int) -> list[int]:
    """The processes of a session that are alive."""
    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if session_of(path) == session]


def end_session(session: int) -> None:
    """End all processes of a session, this one excepted."""
    end = time.monotonic() + GONE_WITHIN_S
    while (pids := set(members(session)) - {os.getpid()}) and time.monotonic() < end:  # and those just being started
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
