"""Runs that differ in nothing but their seed belong together; by what groups of runs are told apart."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from dfl_dist.config.meaning import means_something
from dfl_dist.config.schema import DEFAULTS, SETTINGS
from dfl_dist.config.values import RESUMABLE, get
from dfl_dist.report.names import data_set_name, method_name, partition_in_words, tell_setting
from dfl_dist.report.read import Run

# What says where and how a run was made, not what it is; `rounds` may change on resume and still tells runs apart.
INDIFFERENT = {*RESUMABLE, "seed", "window"} - {"rounds", "stop"}
TELLING = [key for key in SETTINGS if not {key, key.split(".")[0]} & INDIFFERENT]
PARTITION = ("data.partition", "data.alpha", "data.classes_per_client", "data.file")  # told together, in one name


@dataclass(frozen=True)
class Group:
    """The runs of one cell of a grid, by seed.

    `settings` are those that tell groups apart, with the values in force, as far as they mean something in this one.
    """

    method: str
    others: tuple[str, ...]  # settings, in words, by which it differs from other groups, but for its data
    data: tuple[str, ...]  # data set and partition, in words, where groups differ in them
    settings: dict[str, Any]
    runs: list[Run]

    @property
    def row(self) -> str:
        """Its name in a table whose columns are data sets and partitions."""
        return ", ".join([self.method, *self.others])

    @property
    def label(self) -> str:
        """Its name where nothing else tells of it."""
        return ", ".join([self.row, *self.data])


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """The runs in groups, in the order in which they are given."""
    found: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        found.setdefault(identity(run), []).append(run)
    members = [sorted(same, key=lambda run: run.config.seed) for same in found.values()]
    firsts = [same[0] for same in members]
    told, within = differing_keys(firsts), differing_within(firsts)
    return [make_group(same, told, within[same[0].config.algorithm]) for same in members]


def identity(run: Run) -> tuple[str, ...]:
    """What makes a run another than others: the settings in force that mean something in it."""
    return tuple(f"{key} {get(run.config, key)!r}" for key in TELLING if means_something(run.config, key))


def make_group(runs: list[Run], told: Sequence[str], within: Collection[str]) -> Group:
    """A group, with names for what others differ in: a default only where the same method has other values too."""
    run = runs[0]
    settings = {key: get(run.config, key) for key in told if means_something(run.config, key)}
    named = [key for key in settings if key in within or setting(run, key) != DEFAULTS[key]]
    others = tuple(
        tell_setting(key, settings[key]) for key in named if key not in (*PARTITION, "algorithm", "data.name")
    )
    parts = {data_set_name(run): ("data.name",), partition_in_words(run.config.data): PARTITION}
    data = tuple(words for words, keys in parts.items() if {*keys} & {*told})
    return Group(method_name(run), others, data, settings, runs)


def differing_keys(runs: Sequence[Run]) -> list[str]:
    """The settings in which the runs differ, the algorithm first and always.

    What is filled in where nothing is asked, by the method or the surroundings, makes no difference by itself.
    """
    asked = asked_differently(runs)
    others = asked.union(*differing_within(runs).values()) - {"algorithm"}
    return ["algorithm", *(key for key in TELLING if key in others)]


def differing_within(runs: Sequence[Run]) -> dict[str, set[str]]:
    """For each method the settings in which its runs differ."""
    found = {}
    for method in {run.config.algorithm for run in runs}:
        of_method = [run for run in runs if run.config.algorithm == method]
        keys = asked_differently(of_method)
        alike: dict[str, list[Run]] = {}
        for run in of_method:
            alike.setdefault(repr([setting(run, key) for key in sorted(keys)]), []).append(run)
        found[method] = keys.union(*map(filled_differently, alike.values()))
    return found


def asked_differently(runs: Sequence[Run]) -> set[str]:
    """Settings, as asked, that differ among the runs in which they mean something."""
    return {
        key for key in TELLING if len({repr(setting(run, key)) for run in runs if means_something(run.config, key)}) > 1
    }


def filled_differently(runs: Sequence[Run]) -> set[str]:
    """Settings in force that differ, among runs that were asked for in the same way: defaults were others once."""
    return {key for key in TELLING if len({repr(get(run.config, key)) for run in runs}) > 1}


def setting(run: Run, key: str) -> Any:
    """What was asked; of the clients, the number in force: where none was asked it is that of the ranks."""
    return run.config.num_clients if key == "num_clients" else run.asked[key]
