"""Trackers of a user: one that keeps all that it is told, and others that fail, one in each way."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dfl_dist import signals


class Keep:
    """Writes what it is told into the run folder, in a file of this rank."""

    def __init__(self, settings: Mapping[str, Any], folder: Path) -> None:
        self.path = folder / f"told-{os.environ.get('RANK', 'alone')}.jsonl"
        self._write(settings=dict(settings))

    def log(self, line: Mapping[str, Any]) -> None:
        self._write(line=line)

    def finish(self, state: str, model_path: Path | None) -> None:
        self._write(state=state, model=model_path and str(model_path))

    def _write(self, **told: object) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(told) + "\n")


def cannot_be_made(settings: Mapping[str, Any], folder: Path) -> Keep:
    raise OSError("the table is\nlocked")


class CannotLog(Keep):
    def log(self, line: Mapping[str, Any]) -> None:
        raise KeyError("loss")


class CannotFinish(Keep):
    def _write(self, **told: object) -> None:
        """Keep nothing."""

    def finish(self, state: str, model_path: Path | None) -> None:
        raise SystemExit(3)


class TakesItsTime(Keep):
    """Longer at the end than a launcher leaves to ranks once another has failed."""

    def finish(self, state: str, model_path: Path | None) -> None:
        threading.Event().wait(1.5)
        super().finish(state, model_path)


class Hangs(Keep):
    """Waits for ever when it is told of a round, and has begun a process of its own."""

    def log(self, line: Mapping[str, Any]) -> None:
        child = subprocess.Popen(["sleep", "600"])
        self.path.with_name("child").write_text(str(child.pid))
        threading.Event().wait()


class LeavesThreads(Keep):
    """Does not end what it has begun, which Python waits for: a pool and a thread."""

    def __init__(self, settings: Mapping[str, Any], folder: Path) -> None:
        super().__init__(settings, folder)
        signals.LEAVE_WITHIN_S = 1.0  # so that no test need wait for longer
        ThreadPoolExecutor(1).submit(time.sleep, 600)
        threading.Thread(target=time.sleep, args=(600,), daemon=False).start()


def told(folder: Path, rank: int | str = "alone") -> list[dict[str, Any]]:
    """What `Keep` was told, in that order."""
    return [json.loads(line) for line in (folder / f"told-{rank}.jsonl").read_text().splitlines()]
