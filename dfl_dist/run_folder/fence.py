"""The fence around a run folder: only the newest start of a run writes there."""

import json
import os
from pathlib import Path

from dfl_dist.errors import StaleStartError
from dfl_dist.run_folder.folder import ENVIRONMENT


class Fence:
    """Asked before anything is written: a start whose name environment.json no longer has must not write.

    Opening the file makes a network file system look again; it is read only where it has changed since.
    """

    def __init__(self, folder: Path, start_id: str) -> None:
        self.folder, self.start_id = folder, start_id
        self.path = os.fspath(folder / ENVIRONMENT)
        self.seen: tuple[int, int, int] | None = None

    def check(self) -> None:
        """Raise where another start has taken over."""
        try:
            handle = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            raise self._stale() from None
        with open(handle) as file:
            state = os.fstat(handle)
            mark = (state.st_ino, state.st_mtime_ns, state.st_size)
            if mark == self.seen:
                return
            try:
                found = json.load(file).get("start")
            except (ValueError, AttributeError):
                found = None
        if found != self.start_id:
            raise self._stale()
        self.seen = mark

    def _stale(self) -> StaleStartError:
        return StaleStartError(f"another start of this run has taken over {self.folder}; this one writes nothing more")
