"""Processes that a command supervises, behind start, stop and wait: whatever happens, none of them is left behind."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from dfl_dist.signals import Interrupt

MARK = "DFL_DIST_JOB"  # in the environment of all processes of a job: by it they are found, whoever started them
POLL_S = 0.25
GONE_WITHIN_S = 30.0  # the kernel removes a killed process, unless a disk or a driver holds it


class Processes:
    """A command that was started and everything that it starts itself."""

    def __init__(self, first: "subprocess.Popen[bytes]", mark: str) -> None:
        self.first, self.mark = first, mark

    def stop(self, number: int) -> None:
        """Ask for an end: pass a signal on to the command, which passes it on."""
        self.first.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)

    def wait(
        self,
        interrupt: Interrupt,
        *,
        on_signal: Callable[[int], None] | None = None,
        on_poll: Callable[[], None] = lambda: None,
    ) -> int:
        """Wait for the end of the command, and leave none of its processes; its exit code.

        On the first signal `on_signal` is called once (by default `stop`); a second Ctrl-C ends everything at once.
        """
        asked = False
        try:
            while self.first.poll() is None and not interrupt.at_once:
                if interrupt.number is not None and not asked:
                    (on_signal or self.stop)(interrupt.number)
                    asked = True
                on_poll()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.first.wait(POLL_S)
        finally:
            kill_marked(self.mark)
            self.first.wait(GONE_WITHIN_S)
        return self.first.returncode


def start(
    command: Sequence[str], mark: str, environment: Mapping[str, str], output: IO[str] | None = None
) -> Processes:
    """Start a command in a session of its own, so that a Ctrl-C reaches it only through `Processes.stop`."""
    first = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        env={**environment, MARK: mark},
        start_new_session=True,
    )
    return Processes(first, mark)


def find_marked(mark: str) -> list[int]:
    """The processes of this host that have a mark in their environment."""
    entry, found = f"{MARK}={mark}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if entry in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def kill_marked(mark: str) -> None:
    """End all processes that have a mark, this one excepted."""
    end = time.monotonic() + GONE_WITHIN_S
    while (pids := set(find_marked(mark)) - {os.getpid()}) and time.monotonic() < end:  # and those just being started
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
