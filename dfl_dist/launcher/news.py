"""What the ranks of a host tell their launcher: the agent hears it, and passes it on to the command."""

import contextlib
import json
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 1 << 20


@dataclass
class Told:
    """What was told of a run: where it is kept, its timeouts, how it ended, a user's traceback."""

    folder: Path | None = None
    timeout_s: float | None = None  # how long its ranks wait for each other
    trackers_s: float = 0.0  # how long its end waits for its trackers
    ending: str | None = None
    words: str | None = None

    def add(self, message: bytes) -> None:
        """One message. The first to tell an ending, or last words, is the one who knows."""
        news = json.loads(message)
        if "folder" in news:
            self.folder, self.timeout_s, self.trackers_s = Path(news["folder"]), news["timeout_s"], news["trackers_s"]
        self.ending = self.ending or news.get("ending")
        self.words = self.words or news.get("words")


class News(Told):
    """The agent's side."""

    def __init__(
        self, command: socket.socket, on_folder: Callable[[Path], None], on_words: Callable[[int, str], None]
    ) -> None:
        super().__init__()
        self.own, self.for_ranks = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.command, self.on_folder, self.on_words = command, on_folder, on_words

    def hear(self, message: bytes) -> None:
        self.add(message)
        news = json.loads(message)
        if self.folder is not None and "folder" in news:
            self.on_folder(self.folder)
        if "words" in news:
            self.on_words(news["rank"], news["words"])
        with contextlib.suppress(OSError):  # a command that is gone
            self.command.send(message)

    def forget(self) -> None:
        """A new attempt begins."""
        self.ending = self.words = None

    def stop_is_asked(self) -> bool:
        """Whether the command has been asked to stop: then nothing is started again."""
        return bool(select.select([self.command], [], [], 0)[0])
