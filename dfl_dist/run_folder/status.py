"""What the trainer tells its launcher: where the run is kept, and how it ended.

`dfl-dist launch` names a folder in `DFL_STATUS`. The first rank of a host writes two things there: `run`, a link to the
run folder, and `ending`, a word. So a launcher can stop a run by a file `run/STOP`, and torchrun is not asked to start
again what must fail again: then all ranks leave with exit code 0, and the launcher gives the job's exit code.
"""

import os
from dataclasses import dataclass
from pathlib import Path

STATUS = "DFL_STATUS"
FINISHED, STOPPED, REFUSED, FAILED = "finished", "stopped", "refused", "failed"
EXIT_CODES = {FINISHED: 0, STOPPED: 0, REFUSED: 2, FAILED: 1}


@dataclass(frozen=True)
class StatusFolder:
    """The folder that a launcher named, if there is a launcher; written by the first rank of a host."""

    path: Path | None = None
    writes: bool = False

    @classmethod
    def from_environment(cls, local_rank: int) -> "StatusFolder":
        named = os.environ.get(STATUS)
        return cls(Path(named) if named else None, local_rank == 0)

    @property
    def is_there(self) -> bool:
        return self.path is not None

    def tell_folder(self, folder: Path) -> None:
        """Write where the run is kept."""
        if self.path and self.writes:
            (aside := temporary_name(self.path)).symlink_to(folder)
            aside.replace(self.path / "run")

    def tell_ending(self, ending: str) -> None:
        """Write how the run ended."""
        if self.path and self.writes:
            (aside := temporary_name(self.path)).write_text(f"{ending}\n")
            aside.replace(self.path / "ending")


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


def clear(status: Path) -> None:
    """Remove what an earlier launch left."""
    for name in ("run", "ending"):
        (status / name).unlink(missing_ok=True)
