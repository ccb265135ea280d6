"""Runs that differ in nothing but their seed belong together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dfl_dist.config import RESUMABLE, SETTINGS, get, word
from dfl_dist.report.runs import Run

# What says where and how a run was made, not what it is; `rounds` may change on resume and still tells runs apart.
INDIFFERENT = {*RESUMABLE, "seed", "window"} - {"rounds"}


@dataclass(frozen=True)
class Group:
    """The runs of one cell of a grid, by seed; `settings` are those by which it differs from the other groups."""

    label: str
    settings: dict[str, Any]
    runs: list[Run]


def telling_keys(runs: Sequence[Run]) -> list[str]:
    """The settings, as asked, in which the runs differ, the algorithm first and always."""
    keys = [key for key in SETTINGS if not {key, key.split(".")[0]} & INDIFFERENT and key != "algorithm"]
    return ["algorithm", *(key for key in keys if len({repr(setting(run, key)) for run in runs}) > 1)]


def setting(run: Run, key: str) -> Any:
    """What was asked; but the number of clients in force, which is that of the ranks where none was asked."""
    return get(run.config if key == "num_clients" else run.asked, key)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """The runs in groups, in the order in which they are given."""
    keys = telling_keys(runs)
    found: dict[str, list[Run]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for run in runs:
        values = {key: setting(run, key) for key in keys}
        label = ", ".join(
            [str(values["algorithm"]), *(f"{key} {word(value)}" for key, value in values.items() if key != "algorithm")]
        )
        found.setdefault(label, []).append(run)
        settings[label] = values
    return [
        Group(label, settings[label], sorted(members, key=lambda run: run.config.seed))
        for label, members in found.items()
    ]
