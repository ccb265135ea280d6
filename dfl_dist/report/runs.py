"""Reading what a run left behind."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dfl_dist.config import Config, load, refusal
from dfl_dist.metrics import read_lines


@dataclass(frozen=True)
class Run:
    """The settings in force and the lines of metrics.jsonl, a round each."""

    folder: Path
    config: Config
    lines: list[dict[str, Any]]

    @property
    def evaluated(self) -> list[dict[str, Any]]:
        """The lines of the rounds in which the mean model was evaluated."""
        return [line for line in self.lines if "test_accuracy" in line]


def find_runs(folder: Path) -> list[Path]:
    """The folder itself if it is a run's, else the runs directly in it; refused where there is none."""
    found = [path for path in (folder, *sorted(folder.glob("*/"))) if (path / "resolved.yaml").is_file()]
    if not found:
        raise refusal("run", folder, "the folder of a run, such as runs/latest, or of several")
    return found[:1] if found[0] == folder else found


def read_run(folder: Path) -> Run:
    """A run from its folder."""
    return Run(folder, load(folder / "resolved.yaml"), read_lines(folder / "metrics.jsonl"))
