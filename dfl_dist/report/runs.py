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


def read_run(folder: Path) -> Run:
    """A run from its folder; refused where there is none."""
    if not (folder / "resolved.yaml").is_file():
        raise refusal("run", folder, "the folder of a run, such as runs/latest")
    return Run(folder, load(folder / "resolved.yaml"), read_lines(folder / "metrics.jsonl"))
