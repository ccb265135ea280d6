"""Decoded arrays on the disk: one process of a host makes them, all map the same pages of memory."""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from dfl_dist.errors import ConfigError

Arrays = dict[str, np.ndarray]


def fingerprint(folder: Path) -> str:
    """What tells the files of a folder from others, or from what they were: names, sizes, times."""
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    facts = [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def places(root: Path) -> list[Path]:
    """Where decoded arrays may be: beside the data, or where that cannot be written, in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [root / ".dfl_dist", Path(home) / "dfl_dist"]


def map_arrays(folder: Path, names: Sequence[str]) -> Arrays | None:
    """The arrays of a folder, mapped: what is not written to is shared with every process that maps it too.

    None where there are none, or where they cannot be read or are damaged.
    """
    try:
        return {name: np.load(folder / f"{name}.npy", mmap_mode="c") for name in names}
    except (OSError, ValueError, EOFError):
        return None


def cached(
    name: str, root: Path, raw: Path, names: Sequence[str], decode: Callable[[], Mapping[str, np.ndarray]]
) -> Arrays:
    """The arrays that `decode` makes of the files in `raw`; made only where they are not there yet."""
    for place in places(root):
        if (found := map_arrays(place / f"{name}-{fingerprint(raw)}", names)) is not None:
            return found
    arrays = decode()
    problems = []
    for place in places(root):
        try:
            return keep(arrays, place / f"{name}-{fingerprint(raw)}")
        except OSError as error:
            problems.append(str(error))
    raise ConfigError(f"data.root: given {root}, whose decoded {name} can be kept nowhere: {'; '.join(problems)}")


def keep(arrays: Mapping[str, np.ndarray], folder: Path) -> Arrays:
    """Write arrays as a folder of files, whole or not at all; whoever comes second takes the first one's."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        aside.chmod(0o755)
        for name, array in arrays.items():
            with (aside / f"{name}.npy").open("wb") as file:
                np.save(file, array)
                file.flush()
                os.fsync(file.fileno())
        if map_arrays(folder, list(arrays)) is None:
            shutil.rmtree(folder, ignore_errors=True)  # damaged
        with contextlib.suppress(OSError):  # somebody else was faster
            aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    if (found := map_arrays(folder, list(arrays))) is None:
        raise OSError(f"{folder} cannot be read")
    return found
