"""What a run is measured by: one row of MEASURES per number. Tables in text, LaTeX and on the page follow from it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from dfl_dist.report.read import Run, finite, rounds_done
from dfl_dist.run_folder.metrics import METRICS, Form

LAST_ROUNDS = 10


@dataclass(frozen=True)
class Reached:
    """A number of one run, None where it is missing or not finite, and the round that it is of, if it is of one."""

    value: float | None = None
    round: int | None = None  # counted from 1


# How a metric is reduced to one number per run: functions of the run, the metric's key and the target.

Reduction = Callable[[Run, str, float | None], Reached]


def last(run: Run, key: str, target: float | None) -> Reached:
    """The value of the last round that has one; a run that diverged has reached no end."""
    found = [line for line in run.lines if key in line]
    if not found:
        return Reached()
    return Reached(finite(found[-1], key) if run.diverged is None else None, rounds_done(found[-1]))


def mean_of_last(run: Run, key: str, target: float | None) -> Reached:
    """The mean over those of the last rounds that have a value; a run that diverged has reached no end."""
    rounds = run.lines[-LAST_ROUNDS:] if run.diverged is None else []
    values = [finite(line, key) for line in rounds if key in line]
    known = [value for value in values if value is not None]
    return Reached(fmean(known) if known and len(known) == len(values) else None)


def highest(run: Run, key: str, target: float | None) -> Reached:
    """The highest value of all rounds, and the first round that has it."""
    return Reached(*max(finite_values(run, key), key=lambda found: found[0], default=()))


def lowest(run: Run, key: str, target: float | None) -> Reached:
    """The lowest value of all rounds, and the first round that has it."""
    return Reached(*min(finite_values(run, key), key=lambda found: found[0], default=()))


def total(run: Run, key: str, target: float | None) -> Reached:
    """The sum over all rounds; None where there is no round yet, or one that does not have the value."""
    values = [value for value, _ in finite_values(run, key)]
    return Reached(math.fsum(values) if values and len(values) == len(run.lines) else None)


def rounds_to_target(run: Run, key: str, target: float | None) -> Reached:
    """How many rounds were done when the value first reached the target."""
    done = [done for value, done in finite_values(run, key) if target is not None and value >= target]
    return Reached(done[0], done[0]) if done else Reached()


def finite_values(run: Run, key: str) -> list[tuple[float, int]]:
    """The finite values of a metric, each with the number of rounds done."""
    return [(value, rounds_done(line)) for line in run.lines if (value := finite(line, key)) is not None]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One number per run: how it follows from a metric, and how it is shown.

    With `low` and `high` a column in text also says the range between these two measures; with `high` alone the measure
    itself is the lower end.
    """

    metric: str
    reduce: Reduction
    label: str  # on the page
    digits: str  # in text, as Python formats numbers
    column: str = ""  # its heading in text; a measure without one is the end of another's range
    meaning: str = ""  # of that column, for the help
    low: str | None = None
    high: str | None = None
    always_std: bool = False  # the deviation over seeds is shown on the screen too, where room is short
    is_tile: bool = True  # whether the summary of a run's page shows it, if it has a column
    detail: str = ""  # below the number in that summary, where its round or range would not say enough

    @property
    def needs_target(self) -> bool:
        return self.reduce is rounds_to_target

    @property
    def is_range(self) -> bool:
        """Whether its column says nothing but a range, of which it is the lower end."""
        return self.high is not None and self.low is None

    @property
    def is_optional(self) -> bool:
        """Whether text leaves the column out where no run has it."""
        return METRICS[self.metric].rounds == "clients evaluated"

    @property
    def form(self) -> Form:
        """How the page writes it."""
        return "number" if self.needs_target else METRICS[self.metric].form


RANKED_BY = "final_accuracy"
# In the order of the columns. {unit} and {target} are filled in for the runs at hand.
MEASURES = {
    "final_accuracy": Measure(
        metric="test_accuracy",
        reduce=last,
        label="final accuracy",
        digits=".2%",
        column="final",
        meaning="test accuracy of the mean model after the last evaluated round",
        always_std=True,
    ),
    "best_accuracy": Measure(
        metric="test_accuracy",
        reduce=highest,
        label="best accuracy",
        digits=".2%",
        column="best",
        meaning="its highest accuracy in any evaluated round",
        always_std=True,
    ),
    "last_accuracy": Measure(
        metric="test_accuracy",
        reduce=mean_of_last,
        label=f"mean of last {LAST_ROUNDS} rounds",
        digits=".2%",
        column=f"last {LAST_ROUNDS}",
        meaning=f"its mean accuracy in the evaluated rounds among the last {LAST_ROUNDS}",
        always_std=True,
        detail="where evaluated",
    ),
    "test_loss": Measure(
        metric="test_loss",
        reduce=last,
        label="test loss",
        digits=".4f",
        column="test loss",
        meaning="of the mean model after the last evaluated round",
    ),
    "client_accuracy_mean": Measure(
        metric="client_accuracy_mean",
        reduce=last,
        label="clients’ own models",
        digits=".1%",
        column="clients",
        meaning="mean accuracy (lowest–highest) of the clients' own models, after the last round that evaluated them",
        low="client_accuracy_min",
        high="client_accuracy_max",
    ),
    "client_accuracy_min": Measure(metric="client_accuracy_min", reduce=last, label="lowest client", digits=".1%"),
    "client_accuracy_max": Measure(metric="client_accuracy_max", reduce=last, label="highest client", digits=".1%"),
    "rounds_to_target": Measure(
        metric="test_accuracy",
        reduce=rounds_to_target,
        label="rounds to {target}",
        digits=".1f",
        column="to {target}",
        meaning="with --target: rounds done when an evaluation of the mean model first reached it",
        always_std=True,
        detail="first evaluated so",
    ),
    "consensus_distance": Measure(
        metric="consensus_distance",
        reduce=last,
        label="consensus distance",
        digits=".3g",
        column="consensus",
        meaning="mean distance of the clients' models from the mean model, after the last evaluated round",
        detail="mean ‖z − x̄‖",
    ),
    "push_weight_min": Measure(
        metric="push_weight_min",
        reduce=lowest,
        label="lowest w",
        digits=".3g",
        column="push weights",
        meaning="lowest–highest weight w of any client in any round",
        high="push_weight_max",
        is_tile=False,
    ),
    "push_weight_max": Measure(metric="push_weight_max", reduce=highest, label="highest w", digits=".3g"),
    "bytes_sent": Measure(
        metric="bytes_sent",
        reduce=total,
        label="sent in all",
        digits=".4g",
        column="{unit} sent",
        meaning="by all clients together, in all rounds",
    ),
    "seconds": Measure(
        metric="seconds_total",
        reduce=total,
        label="training time",
        digits=".1f",
        column="seconds",
        meaning="of all rounds, without evaluation and checkpoints",
    ),
}


def measure(run: Run, target: float | None) -> dict[str, Reached]:
    """Every measure of a run, by name; without a target no run has reached it."""
    return {name: row.reduce(run, row.metric, target) for name, row in MEASURES.items()}


def shown_measures(target: float | None) -> dict[str, Measure]:
    """The measures to show: those that need a target only where there is one."""
    return {name: row for name, row in MEASURES.items() if target is not None or not row.needs_target}
