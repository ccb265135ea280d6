"""What is recorded of a round, and what stops a run."""

import math
from pathlib import Path

import pytest

from dfl_dist.metrics import LineFile, RankReport, find_fault, read_lines, record


def report(
    losses: list[float], weights: list[float], *, finite: bool = True, seconds: float = 1.0, in_flight: float = 0.0
) -> RankReport:
    return RankReport(False, seconds, 2 * seconds, 3 * seconds, 100, in_flight, losses, weights, [finite] * len(losses))


def test_reports_survive_packing() -> None:
    original = RankReport(True, 0.25, 0.5, 0.75, 2**40 + 1, 0.75, [1.5, math.inf], [0.3, 1 / 3], [True, False])
    packed = original.pack()
    assert len(packed) == RankReport.size(2)
    assert RankReport.unpack(packed) == original


def test_record_is_over_clients_and_the_slowest_rank() -> None:
    line = record(
        4, 0.1, [report([1.0, 2.0], [0.5, 1.5]), report([6.0], [1.0], seconds=5)], range(3), {"test_accuracy": 0.9}
    )
    assert list(line)[:7] == [
        *("round", "lr", "train_loss", "push_weight_min", "push_weight_max", "push_weight_sum", "bytes_sent"),
    ]
    assert (line["round"], line["lr"], line["train_loss"], line["bytes_sent"]) == (4, 0.1, 3.0, 200)
    assert (line["push_weight_min"], line["push_weight_max"], line["push_weight_sum"]) == (0.5, 1.5, 3.0)
    assert (line["seconds_local"], line["seconds_exchange"], line["seconds_total"]) == (5, 10, 15)
    assert line["test_accuracy"] == 0.9


def test_record_is_over_those_that_trained_and_with_what_is_in_flight() -> None:
    reports = [report([1.0, math.nan], [0.5, 1.0], in_flight=0.25), report([5.0], [1.0], in_flight=0.25)]
    line = record(0, 0.1, reports, [0, 2], {})
    assert (line["train_loss"], line["push_weight_sum"], line["push_weight_max"]) == (3.0, 3.0, 1.0)
    assert find_fault(0, reports, [0, 2], [0.5, 1.0, 1.0], OWNERS) is None
    assert find_fault(0, reports, [0, 1], [0.5, 1.0, 1.0], OWNERS), "the loss of one that trained"
    reports[0] = report([1.0, 1.0], [0.5, 1.0], in_flight=0.2)
    assert "push-sum lost mass: the w's sum to 2.95" in str(find_fault(0, reports, [0], [0.5, 1.0, 1.0], OWNERS))


OWNERS = [0, 0, 1]


def test_a_sound_round_has_no_fault() -> None:
    assert (
        find_fault(1, [report([1.0, 1.0], [0.5, 1.5]), report([1.0], [1.0])], range(3), [0.5, 1.5, 1.0], OWNERS) is None
    )


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_divergence_names_round_client_rank_and_cure(loss: float) -> None:
    fault = find_fault(7, [report([1.0, 1.0], [1.0, 1.0]), report([loss], [1.0])], range(3), [1.0] * 3, OWNERS)
    assert fault is not None
    assert fault.startswith("round 7: the training diverged")
    assert "client 2 on rank 1" in fault
    assert "client 0" not in fault
    assert "clip_norm" in fault


def test_a_model_that_is_not_finite_is_divergence_too() -> None:
    assert find_fault(
        7, [report([1.0, 1.0], [1.0, 1.0], finite=False), report([1.0], [1.0])], range(3), [1.0] * 3, OWNERS
    )


@pytest.mark.parametrize(
    ("weights", "culprits"),
    [
        ([0.5, 1.5, 1.0 + 1e-6], ["client 2 on rank 1"]),
        ([0.5 + 1e-3, 1.5 - 1e-3, 1.0], ["client 0 on rank 0", "client 1 on rank 0"]),
        ([0.5, math.nan, 1.0], ["client 1 on rank 0"]),
    ],
)
def test_lost_mass_names_the_clients_and_ranks(weights: list[float], culprits: list[str]) -> None:
    fault = find_fault(
        3, [report([1.0, 1.0], weights[:2]), report([1.0], weights[2:])], range(3), [0.5, 1.5, 1.0], OWNERS
    )
    assert fault is not None
    assert fault.startswith("round 3: push-sum lost mass")
    assert all(culprit in fault for culprit in culprits)
    assert fault.count(" on rank ") == len(culprits)


def test_lines_are_json_and_a_torn_one_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = LineFile(path)
    file.write({"round": 0, "train_loss": 0.1})
    file.write({"round": 1, "train_loss": math.nan})
    assert read_lines(path) == [{"round": 0, "train_loss": 0.1}, {"round": 1, "train_loss": None}]
    file.close()
    with path.open("a") as torn:
        torn.write('{"round": 2, "tra')
    assert [line["round"] for line in read_lines(path)] == [0, 1]
    path.write_bytes(b'{"round": 0}\n[3]\n{"round": 2}\n')
    assert [line["round"] for line in read_lines(path)] == [0], "what does not belong there ends it"
    path.write_bytes(b'{"round": 0}\n\xff\xfe\n')
    assert [line["round"] for line in read_lines(path)] == [0]
    assert read_lines(tmp_path / "none.jsonl") == []
