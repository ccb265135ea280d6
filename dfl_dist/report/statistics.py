"""What runs have reached: each by itself, and over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import fmean, stdev
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from dfl_dist.report.groups import Group
from dfl_dist.report.runs import Run, finite

T = TypeVar("T")
Axis = Literal["rounds", "bytes", "seconds"]
ADDED_UP = {"bytes": "bytes_sent", "seconds": "seconds_total"}
LAST_ROUNDS = 10


@dataclass(frozen=True)
class Measures(Generic[T]):
    """What is measured: of a run a number, or None for what it has not reached (yet); over seeds a `Spread`."""

    final_accuracy: T  # of the mean model, after the last evaluated round
    best_accuracy: T  # the highest of all evaluated rounds
    last_accuracy: T  # the mean of the evaluated rounds among the last 10
    test_loss: T  # of the mean model, after the last evaluated round
    client_accuracy_mean: T  # of the clients' own models, after the last round that evaluated them
    client_accuracy_min: T
    client_accuracy_max: T
    consensus_distance: T  # after the last evaluated round
    push_weight_min: T  # of all clients and rounds
    push_weight_max: T
    bytes_sent: T  # in all
    seconds: T  # of all rounds, without evaluation and checkpoints
    rounds_to_target: T  # rounds done when an evaluation first reached the target


@dataclass(frozen=True)
class Spread:
    """A number over seeds: its values, a seed each, and how many seeds have none."""

    values: tuple[float, ...]
    missing: int

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """The sample standard deviation; one seed has none."""
        return stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Summary:
    """A group in numbers: the runs that count, one a seed, and what they have reached."""

    group: Group
    runs: list[Run]
    each: list[Measures[float | None]]
    over_seeds: Measures[Spread]

    @property
    def finished(self) -> bool:
        return all(len(run.lines) >= run.config.rounds for run in self.runs)

    @property
    def left_out(self) -> list[Run]:
        """Runs that only repeat the seed of another."""
        counted = {run.folder for run in self.runs}
        return [run for run in self.group.runs if run.folder not in counted]


@dataclass(frozen=True)
class Curve:
    """The mean over seeds, and the sample standard deviation where there are several, at the rounds all of them have.

    Where x is not rounds, it is the mean over seeds too, of what has added up by the end of the round.
    """

    x: np.ndarray
    mean: np.ndarray
    std: np.ndarray | None


def summarise(group: Group, target: float | None) -> Summary:
    """The numbers of a group; without a target no run has reached it."""
    runs = one_a_seed(group)
    each = [measure(run, target) for run in runs]
    names = [field.name for field in fields(Measures)]
    return Summary(
        group, runs, each, Measures(**{name: spread([getattr(one, name) for one in each]) for name in names})
    )


def one_a_seed(group: Group) -> list[Run]:
    """The runs that count: of several with the same seed the one with the most rounds, else the first of them.

    A run repeated with its seed is the same run, not another sample.
    """
    kept: dict[int, Run] = {}
    for run in group.runs:
        seed = run.config.seed
        if seed not in kept or len(run.lines) > len(kept[seed].lines):
            kept[seed] = run
    return list(kept.values())


def measure(run: Run, target: float | None) -> Measures[float | None]:
    """What one run has reached; one that diverged has reached no end."""
    evaluated, ends = run.evaluated, [] if run.diverged else run.lines
    last: dict[str, Any] = next((line for line in reversed(ends) if "test_accuracy" in line), {})
    clients: dict[str, Any] = next((line for line in reversed(ends) if "client_accuracy_mean" in line), {})
    accuracies = [(line["round"] + 1, finite(line, "test_accuracy")) for line in evaluated]
    late = [finite(line, "test_accuracy") for line in ends[-LAST_ROUNDS:] if "test_accuracy" in line]
    reached = [done for done, value in accuracies if target is not None and value is not None and value >= target]
    return Measures(
        final_accuracy=finite(last, "test_accuracy"),
        best_accuracy=max((value for _, value in accuracies if value is not None), default=None),
        last_accuracy=fmean(value for value in late if value is not None) if late and None not in late else None,
        test_loss=finite(last, "test_loss"),
        client_accuracy_mean=finite(clients, "client_accuracy_mean"),
        client_accuracy_min=finite(clients, "client_accuracy_min"),
        client_accuracy_max=finite(clients, "client_accuracy_max"),
        consensus_distance=finite(last, "consensus_distance"),
        push_weight_min=min(known(run.lines, "push_weight_min"), default=None),
        push_weight_max=max(known(run.lines, "push_weight_max"), default=None),
        bytes_sent=add_up(run.lines, "bytes_sent"),
        seconds=add_up(run.lines, "seconds_total"),
        rounds_to_target=min(reached, default=None),
    )


def curve(group: Group, x: Axis, key: str) -> Curve:
    """A key of metrics.jsonl along rounds done, bytes sent or seconds; runs that have nothing of it are left out."""
    seeds = [found for run in one_a_seed(group) if (found := points(run, x, key))]
    shared = sorted(set.intersection(*map(set, seeds))) if seeds else []
    table = np.array([[found[round_idx] for round_idx in shared] for found in seeds]).reshape(
        len(seeds), len(shared), 2
    )
    if not shared:
        return Curve(np.empty(0), np.empty(0), None)
    places, heights = table[..., 0], table[..., 1]
    return Curve(places.mean(axis=0), heights.mean(axis=0), heights.std(axis=0, ddof=1) if len(seeds) > 1 else None)


def points(run: Run, x: Axis, key: str) -> dict[int, tuple[float, float]]:
    """Where and how high a run's curve is, by the rounds that have a value."""
    found, total = {}, 0.0
    for line in run.lines:
        if x != "rounds":
            step = finite(line, ADDED_UP[x])
            if step is None:
                break  # from here on the sum is not known
            total += step
        height = finite(line, key)
        if height is not None:
            found[line["round"]] = (line["round"] + 1 if x == "rounds" else total, height)
    return found


def spread(values: Sequence[float | None]) -> Spread:
    there = tuple(value for value in values if value is not None)
    return Spread(there, len(values) - len(there))


def known(lines: Sequence[dict[str, Any]], key: str) -> list[float]:
    return [value for line in lines if (value := finite(line, key)) is not None]


def add_up(lines: Sequence[dict[str, Any]], key: str) -> float | None:
    """The sum over all rounds; None where there is no round yet, or one that does not have it."""
    values = known(lines, key)
    return math.fsum(values) if lines and len(values) == len(lines) else None
