"""What the reports of a round say: what stops a run, who asks for it, and the numbers of all clients."""

import math
from collections.abc import Sequence

import pytest

from dfl_dist.run_folder.metrics import RankReport
from dfl_dist.training.judge import GROWN, Growth, has_grown, judge

OWNERS = [0, 0, 1]


def report(
    losses: list[float], weights: list[float], *, finite: bool = True, in_flight: float = 0.0, wants_stop: bool = False
) -> RankReport:
    return RankReport(wants_stop, 1.0, 2.0, 3.0, 100, in_flight, losses, weights, [finite] * len(losses))


def find_fault(
    round_idx: int, reports: Sequence[RankReport], trained: Sequence[int], expected: Sequence[float]
) -> str | None:
    return judge(round_idx, reports, trained, expected, OWNERS).fault


def test_a_sound_round_has_no_fault() -> None:
    reports = [report([1.0, 2.0], [0.5, 1.5]), report([3.0], [1.0])]
    verdict = judge(1, reports, range(3), [0.5, 1.5, 1.0], OWNERS)
    assert (verdict.fault, verdict.stop_reason) == (None, None)
    assert (verdict.losses, verdict.push_weights) == ([1.0, 2.0, 3.0], [0.5, 1.5, 1.0])


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_divergence_names_round_client_rank_and_cure(loss: float) -> None:
    fault = find_fault(7, [report([1.0, 1.0], [1.0, 1.0]), report([loss], [1.0])], range(3), [1.0] * 3)
    assert fault is not None
    assert fault.startswith("round 8: the training diverged")
    assert "client 2 on rank 1" in fault
    assert "client 0" not in fault
    assert "clip_norm" in fault


def test_a_model_that_is_not_finite_is_divergence_too() -> None:
    reports = [report([1.0, 1.0], [1.0, 1.0], finite=False), report([1.0], [1.0])]
    fault = find_fault(7, reports, range(3), [1.0] * 3)
    assert fault is not None
    assert "not finite at client 0 on rank 0, client 1 on rank 0)" in fault


def test_only_the_losses_of_those_that_trained_count() -> None:
    reports = [report([1.0, math.nan], [0.5, 1.5]), report([5.0], [1.0])]
    assert find_fault(0, reports, [0, 2], [0.5, 1.5, 1.0]) is None
    assert find_fault(0, reports, [0, 1], [0.5, 1.5, 1.0]), "the loss of one that trained"


@pytest.mark.parametrize(
    ("weights", "culprits"),
    [
        ([0.5, 1.5, 1.0 + 1e-6], ["client 2 on rank 1"]),
        ([0.5 + 1e-3, 1.5 - 1e-3, 1.0], ["client 0 on rank 0", "client 1 on rank 0"]),
        ([0.5, math.nan, 1.0], ["client 1 on rank 0"]),
    ],
)
def test_lost_mass_names_the_clients_and_ranks(weights: list[float], culprits: list[str]) -> None:
    reports = [report([1.0, 1.0], weights[:2]), report([1.0], weights[2:])]
    fault = find_fault(3, reports, range(3), [0.5, 1.5, 1.0])
    assert fault is not None
    assert fault.startswith("round 4: push-sum lost mass")
    assert all(culprit in fault for culprit in culprits)
    assert fault.count(" on rank ") == len(culprits)


def test_what_is_in_flight_belongs_to_the_mass() -> None:
    expected = [0.5, 1.0, 1.0]
    sound = [report([1.0, 1.0], [0.5, 1.0], in_flight=0.25), report([5.0], [1.0], in_flight=0.25)]
    assert find_fault(0, sound, range(3), expected) is None
    lost = [report([1.0, 1.0], [0.5, 1.0], in_flight=0.2), report([5.0], [1.0], in_flight=0.25)]
    fault = find_fault(0, lost, range(3), expected)
    assert fault is not None
    assert "push-sum lost mass: the w's sum to 2.95" in fault
    assert "wrong at no single client" in fault


def test_many_culprits_are_counted_instead_of_named() -> None:
    reports = [report([math.nan] * 7, [1.0] * 7)]
    fault = judge(0, reports, range(7), [1.0] * 7, [0] * 7).fault
    assert fault is not None
    assert "client 3 on rank 0 and 3 more" in fault
    assert "client 4" not in fault


def test_ranks_that_ask_for_a_stop_are_named() -> None:
    reports = [report([1.0], [1.0], wants_stop=rank in (0, 2)) for rank in range(3)]
    verdict = judge(0, reports, range(3), [1.0] * 3, range(3))
    assert (verdict.fault, verdict.stop_reason) == (None, "a signal to rank 0, 2")


def test_a_loss_has_grown_when_training_does_not_come_back_from_it() -> None:
    assert has_grown(2.5 * GROWN, 2.0)
    assert not has_grown(2.0 * GROWN, 2.0)
    assert has_grown(1e9, 1e9), "also one that has at first"


def test_the_round_in_which_a_loss_has_grown_is_known_until_it_comes_back() -> None:
    growth, found = Growth(), []
    for round_idx, loss in enumerate((2.0, 100.0, 1e9, None, 1e25, 1.0, 1e6)):  # None: not finite, in a file
        growth.note({"round": round_idx, "train_loss": loss})
        found.append(growth.since)
    assert found == [None, None, 3, 3, 3, None, 7]
    assert growth.first == 2.0
