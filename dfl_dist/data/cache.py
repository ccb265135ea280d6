"""Decoded arrays on the disk: one process of a host makes them, all map the same pages of memory."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]


def fingerprint(folder: Path) -> str:
    """What tells the files of a folder from others, or from what they were: names, sizes, times."""
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    facts = [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def places(root: Path) -> list[Path]:
    """Where decoded arrays may be: beside the data, or where that cannot be written, in the user's cache."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [root / ".dfl_dist", home / "dfl_dist"]


def map_arrays(folder: Path) -> Arrays:
    """The arrays of a folder, mapped: what is not written to is shared with every process that maps it too."""
    return {path.stem: np.load(path, mmap_mode="c") for path in sorted(folder.glob("*.npy"))}


def cached(name: str, root: Path, raw: Path, decode: Callable[[], Mapping[str, np.ndarray]]) -> Arrays:
    """The arrays that `decode` makes of the files in `raw`; made only where they are not there yet."""
    for place in places(root):
        if (folder := place / f"{name}-{fingerprint(raw)}").is_dir():
            return map_arrays(folder)
    arrays = decode()
    problems = []
    for place in places(root):
        try:
            return map_arrays(keep(arrays, place / f"{name}-{fingerprint(raw)}"))
        except OSError as error:
            problems.append(str(error))
    raise ValueError(f"data.root: given {root}, whose decoded {name} can be kept nowhere: {'; '.join(problems)}")


def keep(arrays: Mapping[str, np.ndarray], folder: Path) -> Path:
    """Write arrays as a folder of files, whole or not at all; whoever comes second takes the first one's."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        aside.chmod(0o755)
        for name, array in arrays.items():
            np.save(aside / f"{name}.npy", array)
        try:
            aside.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder
