"""What runs have reached over seeds: in numbers, and along curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from dfl_dist.report.groups import Group
from dfl_dist.report.measures import MEASURES, RANKED_BY, Reached, measure
from dfl_dist.report.read import Run, finite, rounds_done
from dfl_dist.run_folder.metrics import Axis

ADDED_UP: dict[Axis, str] = {"bytes": "bytes_sent", "seconds": "seconds_total"}  # rounds are counted


@dataclass(frozen=True)
class Spread:
    """A number over seeds: its values, one per seed, and how many seeds have none."""

    values: tuple[float, ...]
    missing: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Spread":
        there = tuple(value for value in values if value is not None)
        return cls(there, len(values) - len(there))

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """The sample standard deviation; one seed has none."""
        return stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Summary:
    """A group in numbers: the runs that count, one per seed, and their measures, by name."""

    group: Group
    runs: list[Run]
    each: list[dict[str, Reached]]
    over_seeds: dict[str, Spread]

    @property
    def score(self) -> Spread:
        """The measure by which groups are ranked."""
        return self.over_seeds[RANKED_BY]

    @property
    def finished(self) -> bool:
        return all(run.is_finished for run in self.runs)

    @property
    def left_out(self) -> list[Run]:
        """Runs that only repeat the seed of another."""
        counted = {run.folder for run in self.runs}
        return [run for run in self.group.runs if run.folder not in counted]


@dataclass(frozen=True)
class MeanCurve:
    """The mean over seeds, and the sample standard deviation where there are several, at the rounds all of them have.

    Where x is not rounds, it is the mean over seeds too, of what has added up by the end of the round.
    """

    x: np.ndarray
    mean: np.ndarray
    std: np.ndarray | None


def summarise(group: Group, target: float | None) -> Summary:
    """The numbers of a group; without a target no run has reached it."""
    runs = one_per_seed(group)
    each = [measure(run, target) for run in runs]
    over_seeds = {name: Spread.of([reached[name].value for reached in each]) for name in MEASURES}
    return Summary(group, runs, each, over_seeds)


def one_per_seed(group: Group) -> list[Run]:
    """The runs that count: of several with the same seed the one with the most rounds, else the first of them.

    A run repeated with its seed is the same run, not another sample.
    """
    kept: dict[int, Run] = {}
    for run in group.runs:
        seed = run.config.seed
        if seed not in kept or len(run.lines) > len(kept[seed].lines):
            kept[seed] = run
    return list(kept.values())


def drawn_runs(group: Group) -> list[Run]:
    """The runs of a curve: those of the seeds that came to their end; where none has, all of them.

    Else a curve would shrink to the first round whenever another seed begins.
    """
    counted = one_per_seed(group)
    return [run for run in counted if run.is_finished or run.diverged is not None] or counted


def mean_curve(group: Group, axis: Axis, key: str) -> MeanCurve:
    """A metric along rounds done, bytes sent or seconds; runs that have nothing of it are left out."""
    seeds = [found for run in drawn_runs(group) if (found := points(run, axis, key))]
    shared = sorted(set.intersection(*map(set, seeds))) if seeds else []
    if not shared:
        return MeanCurve(np.empty(0), np.empty(0), None)
    table = np.array([[found[done] for done in shared] for found in seeds])
    places, heights = table[..., 0], table[..., 1]
    return MeanCurve(places.mean(axis=0), heights.mean(axis=0), heights.std(axis=0, ddof=1) if len(seeds) > 1 else None)


def points(run: Run, axis: Axis, key: str) -> dict[int, tuple[float, float]]:
    """Where and how high a run's curve is, by the number of rounds done."""
    found, so_far = {}, 0.0
    for line in run.lines:
        if axis in ADDED_UP:
            step = finite(line, ADDED_UP[axis])
            if step is None:
                break  # from here on the sum is not known
            so_far += step
        height = finite(line, key)
        if height is not None:
            done = rounds_done(line)
            found[done] = (so_far if axis in ADDED_UP else done, height)
    return found
