"""Runs that differ in nothing but their seed belong together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dfl_dist.config.schema import SETTINGS
from dfl_dist.config.values import RESUMABLE, format_value
from dfl_dist.report.read import Run

# What says where and how a run was made, not what it is; `rounds` may change on resume and still tells runs apart.
INDIFFERENT = {*RESUMABLE, "seed", "window"} - {"rounds"}


@dataclass(frozen=True)
class Group:
    """The runs of one cell of a grid, by seed; `settings` are those by which it differs from the other groups."""

    label: str
    settings: dict[str, Any]
    runs: list[Run]


def differing_keys(runs: Sequence[Run]) -> list[str]:
    """The settings, as asked, in which the runs differ, the algorithm first and always."""
    keys = [key for key in SETTINGS if not {key, key.split(".")[0]} & INDIFFERENT and key != "algorithm"]
    return ["algorithm", *(key for key in keys if len({repr(setting(run, key)) for run in runs}) > 1)]


def setting(run: Run, key: str) -> Any:
    """What was asked; of the clients, the number in force: where none was asked it is that of the ranks."""
    return run.config.num_clients if key == "num_clients" else run.asked[key]


def label_group(method: str, settings: Mapping[str, Any], told_elsewhere: Sequence[str] = ()) -> str:
    """A method and the settings that tell it from others, but for those that are told elsewhere."""
    others = {key: value for key, value in settings.items() if key not in ("algorithm", *told_elsewhere)}
    return ", ".join([method, *(f"{key} {format_value(value)}" for key, value in others.items())])


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """The runs in groups, in the order in which they are given."""
    keys = differing_keys(runs)
    found: dict[str, list[Run]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for run in runs:
        values = {key: setting(run, key) for key in keys}
        label = label_group(str(values["algorithm"]), values)
        found.setdefault(label, []).append(run)
        settings[label] = values
    return [
        Group(label, settings[label], sorted(members, key=lambda run: run.config.seed))
        for label, members in found.items()
    ]
