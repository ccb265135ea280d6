"""Early stopping: which accuracies are enough."""

import pytest

from dfl_dist.training.stopping import Stopping


def noted(stopping: Stopping, *accuracies: float | None) -> list[str | None]:
    """What is said after each of these rounds; None is a round that was not evaluated."""
    reasons = []
    for number, accuracy in enumerate(accuracies):
        stopping.note({"round": number} | ({} if accuracy is None else {"test_accuracy": accuracy}))
        reasons.append(stopping.reason)
    return reasons


def test_a_target_counts_as_reached_when_it_is_met_exactly() -> None:
    assert noted(Stopping(0.9, None), 0.5, None, 0.89, 0.9) == [None, None, None, "stop.target 0.9"]


def test_patience_counts_evaluations_without_a_better_accuracy() -> None:
    said = noted(Stopping(None, 2), 0.5, 0.4, 0.6, None, 0.6, None, 0.59)
    assert said == [None] * 6 + ["stop.patience 2 (best: 60.00% after round 3)"]


@pytest.mark.parametrize("value", [None, 0.0])
def test_without_either_nothing_is_enough(value: float | None) -> None:
    assert noted(Stopping(None, None), *[value] * 50) == [None] * 50
