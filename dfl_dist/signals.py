"""Signals that end a run or a command, and the system that all of this needs."""

import os
import platform
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

from dfl_dist.errors import ConfigError
from dfl_dist.system import leave

STOPPING = (signal.SIGINT, signal.SIGTERM)
LEAVE_WITHIN_S = 10.0  # once the work is done: a user's threads and exit handlers, as trackers may have left them
SAME_PRESS_S = 1.0  # a terminal's Ctrl-C reaches a rank twice: once directly, once through torchrun


def require_linux() -> None:
    """Refuse any other system."""
    if (system := platform.system()) != "Linux":
        raise ConfigError(f"needs Linux, given {system} (it uses /proc and Linux network interfaces)")


# In a rank: the run ends after a round.


def name_signal(number: int) -> str:
    """A signal as a person knows it."""
    return "Ctrl-C (SIGINT)" if number == signal.SIGINT else signal.Signals(number).name


@contextmanager
def signals_restored() -> Iterator[None]:
    """Leave the handlers of SIGINT and SIGTERM as they were."""
    before = {number: signal.getsignal(number) for number in STOPPING}
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
    """The first SIGINT or SIGTERM that came, after which a run ends when its round is done."""

    number: int | None = None
    at: float = 0.0

    @property
    def name(self) -> str | None:
        """What a person is told of it."""
        return None if self.number is None else name_signal(self.number)

    def remember(self, number: int) -> bool:
        """Take a signal in; whether it is a Ctrl-C that was pressed again, which means at once."""
        if self.number is None:
            self.number, self.at = number, time.monotonic()
        return number == signal.SIGINT and time.monotonic() - self.at > SAME_PRESS_S


class Stops(Protocol):
    """What signals do to a run: before it begins, until its results are written, and from then on."""

    heard: StopSignal

    def begin(self) -> None:
        """From now on a signal ends the run after its round."""

    def finish(self) -> None:
        """From now on a signal changes nothing: the run is complete."""


class InScript:
    """In a user's own script, whose handlers are in force before; a second Ctrl-C is a KeyboardInterrupt there."""

    def __init__(self) -> None:
        self.heard = StopSignal()

    def begin(self) -> None:
        for number in STOPPING:
            if in_main_thread():
                signal.signal(number, self._remember)

    def finish(self) -> None:
        """Nothing: what a script does next may be stopped too."""

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.heard.remember(number):
            raise KeyboardInterrupt


class OwnProcess:
    """In a process that does nothing but train, from its first moment to its last, without a traceback.

    A thread hears the signals: the main one may be in a call that waits for another rank, and Python would tell it
    afterwards only. Before the run begins a signal ends the process; later a second Ctrl-C does.
    """

    def __init__(self) -> None:
        self.heard = StopSignal()
        self.begun = self.finished = False

    def begin(self) -> None:
        self.begun = True

    def finish(self) -> None:
        self.finished = True

    def hear(self, number: int) -> None:
        """Do what a signal asks for; one process speaks for all ranks."""
        first = self.heard.number is None
        if not self.begun:
            say(f"stopped by {signal.Signals(number).name} before the run began")
            os._exit(128 + number)
        if self.heard.remember(number):
            say("ended at once by a second Ctrl-C")
            os._exit(0 if self.finished else 128 + number)
        if first and not self.finished:
            say("stopping after the current round; Ctrl-C again ends it at once")

    def listen(self, news: int) -> None:
        """Hear of the signals whose numbers come from this file, to the end of the process."""
        while byte := os.read(news, 1):
            if byte[0] in STOPPING:
                self.hear(byte[0])


PROCESS: list[OwnProcess] = []  # this one, where it does nothing but train


def take_over() -> None:
    """Let this process do nothing but train: called as early as possible, by what starts it."""
    news, told = os.pipe()
    os.set_blocking(told, False)
    PROCESS.append(OwnProcess())
    threading.Thread(target=PROCESS[0].listen, args=(news,), daemon=True).start()
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    for number in STOPPING:
        if signal.getsignal(number) != signal.SIG_IGN:  # as it is in the background of a shell without job control
            signal.signal(number, leave_to_thread)
    os.register_at_fork(before=hold, after_in_parent=release, after_in_child=hand_back)


def leave_to_thread(number: int, frame: FrameType | None) -> None:
    """Nothing: the thread hears of it."""


# A process that such a one forks, a loader's worker perhaps: it has no such thread, and its signals are its own.


def hold() -> None:
    """Before a fork: signals wait until it is clear whose they are."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)


def release() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


def hand_back() -> None:
    """In the child: signals do what they do to any process."""
    if PROCESS:
        PROCESS.clear()
        signal.set_wakeup_fd(-1)
        for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
            if signal.getsignal(number) is leave_to_thread:
                signal.signal(number, handler)
    release()


def say(text: str) -> None:
    """Tell a person, from a thread, in whatever state the rest of the process is."""
    if os.environ.get("RANK", "0") == "0":
        with suppress(OSError):  # a terminal that was closed
            os.write(2, f"dfl_dist: {text}\n".encode())


def begin_to_leave(code: int) -> None:
    """The work is done: from now on no signal changes the exit code, and nobody's threads hold up the end for long."""
    ignore_signals()
    threading.Thread(target=leave_by_force, args=(code,), daemon=True).start()


def leave_by_force(code: int) -> None:
    """End this process, if it has not ended by itself in time."""
    time.sleep(LEAVE_WITHIN_S)
    say(f"threads or exit handlers, perhaps of a tracker, go on {LEAVE_WITHIN_S:g} s after the end; left by force")
    leave(code)


@contextmanager
def stops_of_command() -> Iterator[Stops]:
    """What signals do to the trainer's command: of the process, where that was taken over, else only within."""
    if PROCESS:
        yield PROCESS[0]
    else:
        with signals_restored():
            yield InScript()


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


@contextmanager
def ending_quietly(command: str) -> Iterator[None]:
    """Let a signal end this process with one line, where it has started nothing yet: from the very first moment."""

    def leave(number: int, frame: FrameType | None) -> None:
        os.write(2, f"\n{command}: stopped by {name_signal(number)}\n".encode())
        os._exit(128 + number)

    before = {number: signal.getsignal(number) for number in ENDING} if in_main_thread() else {}
    try:
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, leave)
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is leave:
                signal.signal(number, handler)
