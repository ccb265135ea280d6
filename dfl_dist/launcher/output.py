"""What the ranks of a host print: on the screen what a person wants to see at once, in files everything.

The screen has all of the host's first rank, as it prints it, and the standard error of every other rank, line by
line, with the rank before it. The files are in `logs/` of the run folder, one for each rank and attempt; what is
printed before the run has a folder is kept until then.
"""

import contextlib
import fcntl
import os
import pty
import select
import struct
import termios
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dfl_dist.launcher.news import MOST_BYTES

CHUNK = 1 << 16
RESIZED_WITHIN_S = 1.0
KEPT_BYTES = 1 << 20  # of each rank, while the run has no folder


@dataclass
class Log:
    """The file of one rank and attempt, opened once it is known where."""

    name: str
    header: str
    waiting: list[bytes] = field(default_factory=list)
    file: int | None = None
    folder: Path | None = None

    def open(self, folder: Path) -> None:
        """Open the file, and write what had to wait for it. A disk that cannot be written costs the log only."""
        if self.file is None and self.folder is None:
            self.folder = folder
            with contextlib.suppress(OSError):
                path = folder / self.name
                path.parent.mkdir(parents=True, exist_ok=True)
                self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self.write(b"".join([f"--- {self.header}\n".encode(), *self.waiting]))
            self.waiting = []

    def write(self, text: bytes) -> None:
        if self.file is not None:
            with contextlib.suppress(OSError):
                os.write(self.file, text)
        elif self.folder is None and sum(map(len, self.waiting)) < KEPT_BYTES:
            self.waiting.append(text)

    def close(self) -> None:
        if self.file is not None:
            os.close(self.file)
            self.file = None


@dataclass
class Stream:
    """Standard output or standard error of one rank: where it goes, and the line that is not complete yet."""

    log: Log
    screen: int | None  # a file descriptor; None: not shown
    prefix: bytes | None  # before each line that does not have it yet; None: shown byte for byte, as it comes
    rest: bytes = b""

    def take(self, chunk: bytes) -> None:
        if self.screen is not None and self.prefix is None:
            write_all(self.screen, chunk)
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        for line in lines:
            self.take_line(line)

    def take_line(self, line: bytes) -> None:
        text = line.rstrip(b"\r").rpartition(b"\r")[2] + b"\n"  # of a bar that is drawn again and again, the last one
        self.log.write(text)
        if self.screen is not None and self.prefix is not None:
            write_all(self.screen, text if text.startswith(self.prefix) else self.prefix + b" " + text)

    def end(self) -> None:
        if self.rest:
            self.take_line(self.rest)
            self.rest = b""


def write_all(file: int, text: bytes) -> None:
    """Write to the screen; one that is gone is no reason to stop."""
    with contextlib.suppress(OSError):
        while text:
            text = text[os.write(file, text) :]


class Output:
    """Reads what the ranks print and tell, in a thread of its own."""

    def __init__(self, out: int, err: int) -> None:
        self.out, self.err = out, err
        self.poll, self.streams = select.epoll(), dict[int, Stream]()
        self.logs: list[Log] = []
        self.newest: dict[int, Log] = {}  # of each rank
        self.folder: Path | None = None
        self.news: int | None = None
        self.on_news: Callable[[bytes], None] = lambda message: None
        self.hears = False  # some that was read
        self.terminal: int | None = None  # the one that the first rank sees
        self.lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True, name="output of the ranks").start()

    def listen(self, news: int, on_news: Callable[[bytes], None]) -> None:
        """Read what the ranks tell too."""
        self.news, self.on_news = news, on_news
        self.poll.register(news, select.EPOLLIN)

    def attach(self, rank: int, attempt: int, *, first: bool) -> tuple[int, int]:
        """Standard output and standard error for a rank that is about to be started, the first of its host or not."""
        header = f"{time.strftime('%Y-%m-%d %H:%M:%S')} rank {rank} on {os.uname().nodename}, attempt {attempt}"
        log = Log(f"attempt-{attempt}/rank-{rank:04d}.log", header)
        prefix = None if first else f"[rank {rank}]".encode()
        ends = []
        for screen, shown, terminal in ((self.out, first, False), (self.err, True, first)):
            ours, theirs = self._make_terminal() if terminal and os.isatty(self.err) else os.pipe()
            os.set_blocking(ours, False)
            self.streams[ours] = Stream(log, screen if shown else None, prefix)
            self.poll.register(ours, select.EPOLLIN)
            ends.append(theirs)
        with self.lock:
            self.logs.append(log)
            self.newest[rank] = log
            if self.folder:
                log.open(self.folder)
        return ends[0], ends[1]

    def keep_in(self, folder: Path) -> None:
        """From now on the logs have a place."""
        with self.lock:
            self.folder = folder
            for log in self.logs:
                log.open(folder)

    def keep(self, rank: int, text: str) -> None:
        """Write what a rank has told, and not printed, into its log."""
        with self.lock:
            self.newest[rank].write(f"{text}\n".encode())

    def drain(self, within_s: float) -> None:
        """Wait until everything that ranks which have ended wrote was read."""
        end = time.monotonic() + within_s
        while (self.streams or self._has_news()) and time.monotonic() < end:
            time.sleep(0.002)
        with self.lock:
            for log in self.logs:
                log.close()
            self.logs = [log for log in self.logs if log.folder is None]  # those that still wait for one

    def _has_news(self) -> bool:
        return self.news is not None and bool(select.select([self.news], [], [], 0)[0] or self.hears)

    def _make_terminal(self) -> tuple[int, int]:
        """A terminal like the one of the command, for the bar that the first rank draws."""
        ours, theirs = pty.openpty()
        settings = termios.tcgetattr(theirs)
        settings[1] &= ~termios.OPOST  # every byte as it is
        termios.tcsetattr(theirs, termios.TCSANOW, settings)
        self.terminal = ours
        self._resize()
        return ours, theirs

    def _resize(self) -> None:
        with contextlib.suppress(OSError):
            if self.terminal is not None:
                size = fcntl.ioctl(self.err, termios.TIOCGWINSZ, struct.pack("4H", 0, 0, 0, 0))
                fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, size)

    def _read(self) -> None:
        while True:
            for file, _ in self.poll.poll(RESIZED_WITHIN_S):
                if file == self.news:
                    self.hears = True
                    self.on_news(os.read(file, MOST_BYTES))
                    self.hears = False
                else:
                    self._read_stream(file)
            self._resize()

    def _read_stream(self, file: int) -> None:
        try:
            chunk = os.read(file, CHUNK)
        except BlockingIOError:
            return
        except OSError:  # a terminal whose other end is closed
            chunk = b""
        if chunk:
            self.streams[file].take(chunk)
            return
        if file == self.terminal:
            self.terminal = None
        self.poll.unregister(file)
        self.streams.pop(file).end()
        os.close(file)  # last: a stream that is attached meanwhile may get its number
