"""Reading what a run left behind."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dfl_dist.config.schema import Config
from dfl_dist.config.values import Asked, load_asked, load_resolved, values_of
from dfl_dist.errors import ConfigError, refusal
from dfl_dist.formats import FORMAT, described, format_of
from dfl_dist.run_folder.files import ENDED_BY, read_json, read_lines, says_finished
from dfl_dist.run_folder.metrics import METRICS

MUST_BE_FINITE = [key for key, metric in METRICS.items() if metric.must_be_finite]


@dataclass(frozen=True)
class Classes:
    """Who holds what: the classes' names, and for each client how many training samples of each class it has."""

    names: list[str]
    counts: list[list[int]]


@dataclass(frozen=True)
class Run:
    """A run's settings, as asked (by dotted key) and in force, and the lines of metrics.jsonl, one per round."""

    folder: Path
    asked: Asked
    config: Config
    lines: list[dict[str, Any]]

    @property
    def evaluated(self) -> list[dict[str, Any]]:
        """The lines of the rounds in which the mean model was evaluated."""
        return [line for line in self.lines if "test_accuracy" in line]

    @cached_property
    def diverged(self) -> int | None:
        """The first round, counted from 1, with a loss that is not finite; None where there is none."""
        for line in self.lines:
            if any(key in line and finite(line, key) is None for key in MUST_BE_FINITE):
                return rounds_done(line)
        return None

    def graphs(self) -> list[dict[str, Any]]:
        """The lines of topology.jsonl, one per round."""
        return read_lines(self.folder / "topology.jsonl")

    def environment(self) -> dict[str, Any]:
        """What environment.json says; nothing where it is missing or damaged."""
        return read_json(self.folder / "environment.json")

    @cached_property
    def ended_by(self) -> str | None:
        """The setting of `stop` by which the run is finished before its last round, if so."""
        found: str | None = self.environment().get(ENDED_BY)
        return found

    @cached_property
    def is_finished(self) -> bool:
        """Whether it has done all that it was to do, and its results were written."""
        return says_finished(self.environment(), self.config.rounds)

    def classes(self) -> Classes | None:
        """Who holds which classes, if the run has written it down."""
        found = read_json(self.folder / "classes.json")
        return Classes(found["classes"], found["counts"]) if {"classes", "counts"} <= set(found) else None


def rounds_done(line: dict[str, Any]) -> int:
    """The number of rounds done by the end of a line's round: files count rounds from 0, people from 1."""
    return int(line["round"]) + 1


def finite(line: dict[str, Any], key: str) -> float | None:
    """A number of a line; None where it is missing or was not finite."""
    value = line.get(key)
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def is_run(folder: Path) -> bool:
    return (folder / "resolved.yaml").is_file()


def runs_in(folder: Path) -> list[Path]:
    """The folder itself if it is a run's, else the runs directly in it."""
    try:
        found = [path for path in (folder, *sorted(folder.glob("*/"))) if is_run(path)]
    except OSError as error:
        raise refusal("run", folder, f"a folder that can be read ({error.strerror})") from error
    return found[:1] if folder in found else found


def find_runs(folder: Path) -> list[Path]:
    """The folder itself if it is a run's, else the runs directly in it; refused where there is none."""
    if not (found := runs_in(folder)):
        raise no_runs(folder)
    return found


def no_runs(folder: Path) -> ConfigError:
    """What is said of a named folder without runs."""
    return refusal("run", folder, "the folder of a run, such as runs/latest, or of several")


def check_format(key: str, folder: Path) -> None:
    """Refuse a run of a format that this version cannot read; it can read older ones."""
    facts = read_json(folder / "environment.json")
    if not (isinstance(format_of(facts), int) and format_of(facts) <= FORMAT):
        raise refusal(key, f"{folder}, of {described(facts)}", f"up to format {FORMAT}, which this version writes")


def read_run(folder: Path) -> Run:
    """A run from its folder, after a look at its format."""
    check_format("run", folder)
    config = load_resolved(folder / "resolved.yaml")
    asked = load_asked(folder / "config.yaml") if (folder / "config.yaml").is_file() else values_of(config)
    return Run(folder, asked, config, read_lines(folder / "metrics.jsonl"))
