"""Reading and writing the files of a run folder, without torch."""

import errno
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ENDED_BY = "ended_by"  # in environment.json: the setting of `stop` by which a run is finished


def json_safe(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line as JSON can say it: null for what is not finite."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in line.items()
    }


class LineFile:
    """A file with one JSON object per line, appended and flushed line by line."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("a")

    def write(self, line: Mapping[str, Any]) -> None:
        self.file.write(json.dumps(json_safe(line)) + "\n")
        self.file.flush()

    def sync(self) -> None:
        os.fsync(self.file.fileno())

    def close(self) -> None:
        self.file.close()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of such a file; a torn last one, from a process that was killed, is dropped."""
    lines = []
    if path.exists():
        for text in path.read_text(errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                break
            if not (isinstance(line, dict) and "round" in line):
                break
            lines.append(line)
    return lines


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write a file with one JSON object per line, whole or not at all."""
    write_atomic(path, "".join(json.dumps(line) + "\n" for line in lines).encode())


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a file; an empty one where it is missing or damaged."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def says_finished(facts: Mapping[str, Any], rounds: int) -> bool:
    """Whether environment.json says that the results after this number of rounds were written; or of fewer, by `stop`.

    The rounds in metrics.jsonl alone do not: the model is written after the last of them.
    """
    return facts.get("finished_after") == rounds or ENDED_BY in facts


def aside(path: Path, pid: int) -> Path:
    """Where a process writes a file before it takes its name."""
    return path.with_name(f".{path.name}.{pid}")


def write_atomic(path: Path, content: bytes) -> None:
    """Write aside, fsync, rename: the file is there whole or not at all."""
    beside = aside(path, os.getpid())
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def check_can_be_made(folder: Path) -> None:
    """Raise what making a folder, or writing into it, would raise, as far as its name and rights tell."""
    first, place = folder, folder
    while not os.path.lexists(place):
        first, place = place, place.parent
    if not place.is_dir():
        number = errno.EEXIST if place == folder else errno.ENOTDIR
        raise OSError(number, os.strerror(number), str(folder))
    if not os.access(place, os.W_OK | os.X_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(first))


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
