"""What the trainer tells the one who launched it: where the run is kept, and how it ended.

`dfl-dist launch` names a folder in `DFL_STATUS`. The first rank of a host leaves two things there: `run`, a link to the
run folder, and `ending`, a word. So a launcher can stop a run by a file in `run/STOP`, and torchrun is not asked to
start again what must fail again: then all ranks leave as if all were well, and the launcher gives the exit code.
"""

import os
from dataclasses import dataclass
from pathlib import Path

STATUS = "DFL_STATUS"
FINISHED, STOPPED, REFUSED, FAILED = "finished", "stopped", "refused", "failed"
EXIT_CODES = {FINISHED: 0, STOPPED: 0, REFUSED: 2, FAILED: 1}


@dataclass(frozen=True)
class Launcher:
    """Who launched this rank, if anybody did; told by the first rank of a host."""

    status: Path | None = None
    speaks: bool = False

    @classmethod
    def from_environment(cls, local_rank: int) -> "Launcher":
        named = os.environ.get(STATUS)
        return cls(Path(named) if named else None, local_rank == 0)

    @property
    def is_there(self) -> bool:
        return self.status is not None

    def tell_folder(self, folder: Path) -> None:
        """Say where the run is kept."""
        if self.status and self.speaks:
            (aside := self._aside()).symlink_to(folder)
            aside.replace(self.status / "run")

    def tell_ending(self, ending: str) -> None:
        """Say how the run ended."""
        if self.status and self.speaks:
            (aside := self._aside()).write_text(f"{ending}\n")
            aside.replace(self.status / "ending")

    def _aside(self) -> Path:
        """Written first, then renamed: hosts that share the folder say the same, and nobody reads half of it."""
        assert self.status is not None
        aside = self.status / f".{os.uname().nodename}.{os.getpid()}"
        aside.unlink(missing_ok=True)
        return aside


def run_folder(status: Path) -> Path | None:
    """Where the launched run is kept, once it is known."""
    return (status / "run").resolve() if (status / "run").exists() else None


def ending(status: Path) -> str | None:
    """How the launched run ended; None where it did not come to say."""
    try:
        return (status / "ending").read_text().strip()
    except FileNotFoundError:
        return None


def forget(status: Path) -> None:
    """Remove what an earlier launch was told."""
    for name in ("run", "ending"):
        (status / name).unlink(missing_ok=True)
