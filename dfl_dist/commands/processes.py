"""A torchrun that a command starts and follows: its processes, the signals that end it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

POLL_S = 0.25
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GONE_WITHIN_S = 30.0  # the kernel takes a killed process away, unless a disk or a driver holds it


def start_torchrun(
    arguments: Sequence[str],
    *,
    defaults: Mapping[str, str],
    environment: Mapping[str, str],
    output: IO[str] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start torchrun in a session of its own, so that a Ctrl-C reaches it only through the command that follows it.

    It gets this process's environment, with `defaults` for what is not in it, and `environment` whatever is.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        env={"OMP_NUM_THREADS": "1", **defaults, **os.environ, **environment},
        start_new_session=True,
    )


def marked(mark: str) -> list[int]:
    """The processes of this host that have a mark, NAME=VALUE, in their environment, wherever torchrun put them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def kill(mark: str) -> None:
    """End all processes that have a mark, this one excepted."""
    end = time.monotonic() + GONE_WITHIN_S
    while (pids := set(marked(mark)) - {os.getpid()}) and time.monotonic() < end:  # and those just being started
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


@dataclass
class Interrupt:
    """Remembers the first SIGINT, SIGTERM or SIGHUP; a further Ctrl-C means at once."""

    number: int | None = None
    at_once: bool = False

    def remember(self, number: int, frame: FrameType | None) -> None:
        self.at_once |= self.number is not None and number == signal.SIGINT
        self.number = self.number or number


@contextlib.contextmanager
def caught() -> Iterator[Interrupt]:
    """Catch the signals that end a command, those that are ignored (nohup) excepted."""
    interrupt, before = Interrupt(), {number: signal.getsignal(number) for number in ENDING}
    try:
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, interrupt.remember)
        yield interrupt
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, handler)


def ignore() -> None:
    """Ignore those signals from now on, to the very end of the process."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def hand_on(process: "subprocess.Popen[bytes]", number: int) -> None:
    """Pass a signal on to torchrun, which passes it on to its ranks."""
    process.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)


def follow(
    process: "subprocess.Popen[bytes]",
    mark: str,
    interrupt: Interrupt,
    *,
    stop: Callable[[int], None],
    show: Callable[[], None] = lambda: None,
) -> int:
    """Wait for a torchrun, ask it once to `stop` on a signal, leave none of its processes; its exit code."""
    asked = False
    try:
        while process.poll() is None and not interrupt.at_once:
            if interrupt.number is not None and not asked:
                stop(interrupt.number)
                asked = True
            show()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
    finally:
        kill(mark)
        process.wait(GONE_WITHIN_S)
    return process.returncode
