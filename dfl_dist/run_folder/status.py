"""What the trainer tells its launcher, and what a launcher leaves for scripts in the folder that --status names.

A rank that `dfl-dist launch` started has a socket, whose number is in `DFL_NEWS`. On it goes one message per piece of
news, a JSON object each: {"folder": path, "timeout_s": seconds, "trackers_s": seconds} once the run has a folder,
{"ending": word} when the run ends for good, so that nothing is started again that must fail again, and
{"words": text, "rank": number}, which the launcher shows at the very end and keeps in that rank's log. So a launcher
can stop a run by a file `STOP` in its folder, and give the job's exit code.
"""

import contextlib
import json
import os
import socket
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from dfl_dist.errors import refusal

NEWS = "DFL_NEWS"  # the number of the socket
LAUNCH = "DFL_LAUNCH"  # names this very launch: the same for all starts of its ranks
COMMAND = "DFL_COMMAND"  # the words of the launcher's command line, up to the settings of the run
VERDICT = "dfl_dist/verdict"  # the key of the ranks' store that has how the job ended for good
WHY = "dfl_dist/why"  # the one that has why a rank failed, for the other hosts
FINISHED, STOPPED, REFUSED, FAILED = "finished", "stopped", "refused", "failed"
EXIT_CODES = {FINISHED: 0, STOPPED: 0, REFUSED: 2, FAILED: 1}
MOST_CHARS = 32_000  # of a text, so that a message fits into the socket
SENT_WITHIN_S, SENT_WITHIN_US = 5, 0  # a launcher that does not listen must not hold up a rank


@dataclass(frozen=True)
class Status:
    """The way to the launcher, if there is one."""

    news: int | None = None
    first: bool = False  # whether this is the first rank of its host

    @classmethod
    def from_environment(cls, local_rank: int) -> "Status":
        named = os.environ.get(NEWS, "")
        return cls(int(named) if named.isdecimal() and is_socket(int(named)) else None, local_rank == 0)

    @property
    def is_there(self) -> bool:
        return self.news is not None

    def tell_run(self, folder: Path, timeout_s: float, trackers_s: float) -> None:
        """Say where the run is kept, how long its ranks wait for each other, and how long its end for trackers.

        One rank of a host is enough.
        """
        if self.first:
            self._send(folder=str(folder), timeout_s=timeout_s, trackers_s=trackers_s)

    def tell_ending(self, ending: str) -> None:
        """Say how the run ended."""
        self._send(ending=ending)

    def tell_last_words(self, rank: int, text: str) -> None:
        """Hand over what a person is to see at the very end."""
        left_out = f"\n… {len(text) - MOST_CHARS} characters are left out here …\n"
        whole = len(text) <= MOST_CHARS
        words = text if whole else text[: MOST_CHARS // 2] + left_out + text[-MOST_CHARS // 2 :]
        self._send(words=words, rank=rank)

    def _send(self, **news: str | float) -> None:
        if self.news is None:
            return
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.news)) as way:  # a launcher may be gone
            way.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SENT_WITHIN_S, SENT_WITHIN_US))
            way.send(json.dumps(news).encode())


def is_socket(number: int) -> bool:
    """Whether this file descriptor is a socket: a process started by a rank inherits the variable, not the socket."""
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False


# The folder that --status names: `run`, a link to the run folder, and `ending`, a word.


def write_run(status: Path, run: Path) -> None:
    """Write where the launched run is kept."""
    (aside := temporary_name(status)).symlink_to(run)
    aside.replace(status / "run")


def write_ending(status: Path, ending: str) -> None:
    """Write how the launched run ended."""
    (aside := temporary_name(status)).write_text(f"{ending}\n")
    aside.replace(status / "ending")


def temporary_name(folder: Path) -> Path:
    """Written first, then renamed: hosts that share the folder write the same, and nobody reads half of it."""
    aside = folder / f".{os.uname().nodename}.{os.getpid()}"
    aside.unlink(missing_ok=True)
    return aside


def read_run_folder(status: Path) -> Path | None:
    """Where the launched run is kept, once it is known."""
    return (status / "run").resolve() if (status / "run").exists() else None


def read_ending(status: Path) -> str | None:
    """How the launched run ended; None where it wrote nothing."""
    try:
        return (status / "ending").read_text().strip()
    except FileNotFoundError:
        return None


def check(status: Path) -> None:
    """Refuse a folder with a `run` or an `ending` that no launch has left there."""
    left = {"run": (status / "run").is_symlink(), "ending": is_ending(status / "ending")}
    for name, ours in left.items():
        if os.path.lexists(status / name) and not ours:
            allowed = "a folder without it, or that of an earlier launch"
            raise refusal("status", f"{status}, which holds {name}", allowed)


def is_ending(path: Path) -> bool:
    """Whether a file has one of the words that `write_ending` writes."""
    try:
        return path.read_text().strip() in EXIT_CODES
    except (OSError, UnicodeDecodeError):
        return False


def clear(status: Path) -> None:
    """Remove what an earlier launch left."""
    check(status)
    for name in ("run", "ending"):
        (status / name).unlink(missing_ok=True)
