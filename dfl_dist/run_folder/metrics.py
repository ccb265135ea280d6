"""What each rank reports of a round, and what is recorded of it: one row of METRICS per key of metrics.jsonl."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class RankReport:
    """The scalars of one rank in one round."""

    wants_stop: bool
    seconds_local: float
    seconds_exchange: float
    seconds_total: float
    bytes_sent: int
    weight_in_flight: float
    losses: list[float]  # of clients that did not train in the round: anything
    push_weights: list[float]
    finite: list[bool]

    @staticmethod
    def size(clients: int) -> int:
        return 6 + 3 * clients

    def pack(self) -> list[float]:
        seconds = [self.seconds_local, self.seconds_exchange, self.seconds_total]
        head = [self.wants_stop, *seconds, self.bytes_sent, self.weight_in_flight]
        return [float(number) for number in (*head, *self.losses, *self.push_weights, *self.finite)]

    @classmethod
    def unpack(cls, packed: Sequence[float]) -> "RankReport":
        wants_stop, local, exchange, total, num_bytes, in_flight, *rest = packed
        clients = len(rest) // 3
        losses, weights, finite = rest[:clients], rest[clients : 2 * clients], map(bool, rest[2 * clients :])
        return cls(bool(wants_stop), local, exchange, total, int(num_bytes), in_flight, losses, weights, list(finite))


def record(
    round_idx: int, lr: float, reports: Sequence[RankReport], trained: Sequence[int], scores: Mapping[str, float]
) -> dict[str, Any]:
    """The line of a round in metrics.jsonl: means and sums over clients, the slowest rank's seconds."""
    every_loss = [loss for report in reports for loss in report.losses]
    losses = [every_loss[client] for client in trained]
    weights = [weight for report in reports for weight in report.push_weights]
    return {
        "round": round_idx,
        "lr": lr,
        "train_loss": math.fsum(losses) / len(losses),
        "push_weight_min": min(weights),
        "push_weight_max": max(weights),
        "push_weight_sum": math.fsum([*weights, *(report.weight_in_flight for report in reports)]),
        "bytes_sent": sum(report.bytes_sent for report in reports),
        "seconds_local": max(report.seconds_local for report in reports),
        "seconds_exchange": max(report.seconds_exchange for report in reports),
        "seconds_total": max(report.seconds_total for report in reports),
        **scores,
    }


def worst_tenth(accuracies: Sequence[float]) -> float:
    """The mean of the ⌈n/10⌉ lowest."""
    return mean(sorted(accuracies)[: -(-len(accuracies) // 10)])


@dataclass(frozen=True)
class EvalSchedule:
    """Which rounds are evaluated."""

    every: int
    clients_every: int

    def each_client(self, round_idx: int, *, last: bool) -> bool:
        return self.clients_every > 0 and (last or (round_idx + 1) % self.clients_every == 0)

    def due(self, round_idx: int, *, last: bool) -> bool:
        return last or (round_idx + 1) % self.every == 0 or self.each_client(round_idx, last=last)


# Every key of metrics.jsonl. What reports say and draw of a round follows from this table.

Form = Literal["number", "percent", "bytes", "seconds"]  # how a value is written for people
Rounds = Literal["every", "evaluated", "clients evaluated"]  # which lines have the key
Axis = Literal["rounds", "bytes", "seconds"]

# The charts of a run's page, each with the curves that name it.
CHARTS = {
    "accuracy": "test accuracy",
    "loss": "loss",
    "consensus": "distance from consensus",
    "weights": "push weights",
}


@dataclass(frozen=True)
class Curve:
    """How a metric is drawn over the rounds: as a line, or with two others as a band.

    With `low` and `high` it is a line within the band that these two metrics bound; with `high` alone the metric itself
    is the lower bound.
    """

    name: str  # names its figure
    chart: str  # of CHARTS
    label: str = ""  # of the band; a line has the metric's
    note: str = ""  # how to read it
    low: str | None = None
    high: str | None = None
    figures: tuple[Axis, ...] = ("rounds",)  # what its figures are drawn against; none: there is no figure
    figure_scale: Literal["linear", "log"] = "linear"
    page_scale: Literal["linear", "log", "either"] = "linear"  # either: linear, with a button for log
    mark: float | None = None  # a value to compare with
    uneventful: tuple[float, str] | None = None  # a value that needs no chart if it never changes, and what to say


@dataclass(frozen=True)
class Metric:
    """A key of metrics.jsonl."""

    label: str
    form: Form
    rounds: Rounds
    curve: Curve | None = None
    must_be_finite: bool = False  # otherwise the run has diverged
    of_clients: Callable[[Sequence[float]], float] | None = None  # how it follows from every client's accuracy


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


ACCURACY = Curve("accuracy", "accuracy", figures=("rounds", "bytes", "seconds"))
TEST_LOSS = Curve("test-loss", "loss", figures=(), page_scale="either")
TRAIN_LOSS = Curve("train-loss", "loss", figure_scale="log", page_scale="either")
CONSENSUS = Curve(
    "consensus",
    "consensus",
    figure_scale="log",
    page_scale="log",
    uneventful=(0.0, "0 in every round: all clients had one and the same model."),
)
PUSH_WEIGHTS = Curve(
    "push-weights",
    "weights",
    label="push weights w, lowest and highest",
    note="lowest and highest w of all clients; 1 is even",
    high="push_weight_max",
    figure_scale="log",
    mark=1.0,
    uneventful=(1.0, "every client’s w was 1 in every round."),
)
CLIENTS = Curve(
    "clients",
    "accuracy",
    label="test accuracy of the clients’ own models",
    note="mean, with a band from the lowest to the highest client",
    low="client_accuracy_min",
    high="client_accuracy_max",
)
# In the order in which reports show them.
METRICS = {
    "round": Metric("the round, counted from 0", "number", "every"),
    "test_accuracy": Metric("test accuracy of the mean model x̄", "percent", "evaluated", ACCURACY),
    "test_loss": Metric("test loss of the mean model x̄", "number", "evaluated", TEST_LOSS, must_be_finite=True),
    "train_loss": Metric("training loss, mean over clients", "number", "every", TRAIN_LOSS, must_be_finite=True),
    "consensus_distance": Metric("mean distance of clients from the mean model x̄", "number", "evaluated", CONSENSUS),
    "push_weight_min": Metric("lowest push weight w", "number", "every", PUSH_WEIGHTS),
    "push_weight_max": Metric("highest push weight w", "number", "every"),
    "push_weight_sum": Metric("sum of all w, with what is in flight", "number", "every"),
    "client_accuracy_mean": Metric(
        "mean test accuracy of the clients’ own models", "percent", "clients evaluated", CLIENTS, of_clients=mean
    ),
    "client_accuracy_min": Metric("lowest of them", "percent", "clients evaluated", of_clients=min),
    "client_accuracy_max": Metric("highest of them", "percent", "clients evaluated", of_clients=max),
    "client_accuracy_worst_tenth": Metric(
        "mean of the worst tenth of them", "percent", "clients evaluated", of_clients=worst_tenth
    ),
    "lr": Metric("learning rate", "number", "every"),
    "bytes_sent": Metric("bytes sent by all clients together", "bytes", "every"),
    "seconds_local": Metric("seconds of local steps, slowest rank", "seconds", "every"),
    "seconds_exchange": Metric("seconds of the exchange, slowest rank", "seconds", "every"),
    "seconds_total": Metric("seconds of the round, slowest rank", "seconds", "every"),
}

CURVES = {key: metric.curve for key, metric in METRICS.items() if metric.curve}


def label_curve(key: str) -> str:
    """What the curve of a metric shows."""
    return CURVES[key].label or METRICS[key].label


def score_clients(accuracies: Sequence[float]) -> dict[str, float]:
    """What is recorded of the accuracies of all clients' own models."""
    return {key: metric.of_clients(accuracies) for key, metric in METRICS.items() if metric.of_clients}
