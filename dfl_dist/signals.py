"""Signals that end a run or a command, and the system that all of this needs."""

import platform
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from dfl_dist.errors import ConfigError

SAME_PRESS_S = 1.0  # a terminal's Ctrl-C reaches a rank twice: once directly, once through torchrun


def require_linux() -> None:
    """Refuse any other system."""
    if (system := platform.system()) != "Linux":
        raise ConfigError(f"needs Linux, given {system} (it uses /proc and Linux network interfaces)")


# In a rank: the run ends after a round.


@contextmanager
def signals_restored() -> Iterator[None]:
    """Leave the handlers of SIGINT and SIGTERM as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if in_main_thread() and handler is not None:
                signal.signal(number, handler)


def in_main_thread() -> bool:
    """Whether this thread may handle signals."""
    return threading.current_thread() is threading.main_thread()


@dataclass
class StopSignal:
    """Remembers a SIGINT or SIGTERM, so that the run can end after a round; a second Ctrl-C ends it at once."""

    received: str | None = None
    at: float = 0.0

    def install(self) -> "StopSignal":
        for number in (signal.SIGINT, signal.SIGTERM):
            if in_main_thread():
                signal.signal(number, self._remember)
        return self

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self.at = signal.Signals(number).name, time.monotonic()
        elif number == signal.SIGINT and time.monotonic() - self.at > SAME_PRESS_S:
            raise KeyboardInterrupt


# In a command that supervises ranks: it ends after they have.

# By name: Windows has no SIGHUP, and is to be refused by `require_linux`, not by an import that fails.
ENDING = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@dataclass
class Interrupt:
    """Remembers the first SIGINT, SIGTERM or SIGHUP; a further Ctrl-C means at once."""

    number: int | None = None
    at_once: bool = False

    def remember(self, number: int, frame: FrameType | None) -> None:
        self.at_once |= self.number is not None and number == signal.SIGINT
        self.number = self.number or number


@contextmanager
def signals_caught() -> Iterator[Interrupt]:
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


def ignore_signals() -> None:
    """Ignore those signals from now on, to the very end of the process."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
