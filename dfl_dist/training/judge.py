"""What the reports of a round say: a pure judgement, from which rank 0 learns whether the run may go on."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dfl_dist.run_folder.metrics import RankReport

CURES = "likely cures, in a new run: a smaller --local.lr or --local.clip_norm, or --local.step z"
MASS_TOLERANCE = 1e-9  # relative; the w's are float64 and shares are exact to 1e-16
GROWN = 100  # times the first loss: no longer a loss that training comes back from
LARGEST_FIRST = 20.0  # a first loss beyond this has grown already: a model that knows nothing has ln(classes)
SHOWN = 4  # clients named in a message


@dataclass(frozen=True)
class Verdict:
    """A round as all ranks together report it."""

    fault: str | None  # why the run must not go on
    diverged: bool  # whether that is why
    stop_reason: str | None  # who asks for a clean stop
    push_weights: list[float]
    losses: list[float]  # of clients that did not train in the round: anything


def judge(
    round_idx: int,
    reports: Sequence[RankReport],
    trained: Sequence[int],
    expected_weights: Sequence[float],
    owners: Sequence[int],
) -> Verdict:
    """Look at a round's reports; `trained` are its clients, `owners` the rank of each client."""
    losses = [loss for report in reports for loss in report.losses]
    weights = [weight for report in reports for weight in report.push_weights]
    finite = [flag for report in reports for flag in report.finite]
    in_flight = [report.weight_in_flight for report in reports]
    divergence = find_divergence(losses, finite, trained, owners)
    fault = divergence or find_lost_mass(weights, in_flight, expected_weights, owners)
    askers = [str(rank) for rank, report in enumerate(reports) if report.wants_stop]
    return Verdict(
        fault and f"round {round_idx + 1}: {fault}",
        divergence is not None,
        f"a signal to rank {', '.join(askers)}" if askers else None,
        weights,
        losses,
    )


def find_divergence(
    losses: Sequence[float], finite: Sequence[bool], trained: Sequence[int], owners: Sequence[int]
) -> str | None:
    """Clients whose loss or model is not finite."""
    diverged = {client for client, sound in enumerate(finite) if not sound}
    diverged |= {client for client in trained if not math.isfinite(losses[client])}
    if not diverged:
        return None
    where = describe_clients(sorted(diverged), owners)
    return f"the training diverged (loss or model not finite at {where}); {CURES}"


def find_lost_mass(
    weights: Sequence[float], in_flight: Sequence[float], expected: Sequence[float], owners: Sequence[int]
) -> str | None:
    """Push weights that are not what the graphs alone say they must be."""
    wrong = [
        client
        for client, (weight, right) in enumerate(zip(weights, expected, strict=True))
        if not math.isclose(weight, right, rel_tol=MASS_TOLERANCE)
    ]
    total = math.fsum([*weights, *in_flight])
    if not wrong and math.isclose(total, len(weights), rel_tol=MASS_TOLERANCE):
        return None
    found = ", ".join(
        f"client {client} has w {weights[client]!r} instead of {expected[client]!r}" for client in wrong[:SHOWN]
    )
    return (
        f"push-sum lost mass: the w's sum to {total!r}, expected {len(weights)}; "
        f"wrong at {describe_clients(wrong, owners)} ({found})"
    )


def describe_clients(clients: Sequence[int], owners: Sequence[int]) -> str:
    """Clients and their ranks in words, shortened when there are many."""
    shown = ", ".join(f"client {client} on rank {owners[client]}" for client in clients[:SHOWN])
    return shown + (f" and {len(clients) - SHOWN} more" if len(clients) > SHOWN else "") or "no single client"


def has_grown(loss: float, first_loss: float) -> bool:
    """Whether a loss that is still a number has left every measure."""
    return loss > GROWN * min(first_loss, LARGEST_FIRST)


class Growth:
    """Whether the loss of a run has left every measure, by the rounds that were recorded, and since when."""

    def __init__(self) -> None:
        self.first = 0.0  # the loss of the first round
        self.since: int | None = None  # the round, counted from 1, since which it has

    def note(self, line: Mapping[str, Any]) -> None:
        """Take a round into account; read from a file, what was not finite is None."""
        loss = math.inf if line["train_loss"] is None else line["train_loss"]
        self.first = self.first or loss
        self.since = (self.since or line["round"] + 1) if has_grown(loss, self.first) else None
