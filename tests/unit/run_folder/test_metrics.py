"""What ranks report of a round, what is recorded of it, and which rounds are evaluated."""

import math

import pytest

from dfl_dist.run_folder.metrics import (
    CHARTS,
    CURVES,
    METRICS,
    EvalSchedule,
    RankReport,
    record,
    score_clients,
    worst_tenth,
)


def report(losses: list[float], weights: list[float], *, seconds: float = 1.0, in_flight: float = 0.0) -> RankReport:
    return RankReport(False, seconds, 2 * seconds, 3 * seconds, 100, in_flight, losses, weights, [True] * len(losses))


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


def test_every_recorded_key_is_a_row_of_the_table_with_the_rounds_that_have_it() -> None:
    line = record(0, 0.1, [report([1.0], [1.0])], [0], {})
    assert set(line) == {key for key, metric in METRICS.items() if metric.rounds == "every"}
    of_clients = score_clients([0.5, 0.25, 1.0, 0.75])
    expected = {"mean": 0.625, "min": 0.25, "max": 1.0, "worst_tenth": 0.25}
    assert of_clients == {f"client_accuracy_{word}": value for word, value in expected.items()}
    assert set(of_clients) == {key for key, metric in METRICS.items() if metric.rounds == "clients evaluated"}


def test_every_curve_is_drawn_of_metrics_that_there_are_in_a_chart_that_there_is() -> None:
    for curve in CURVES.values():
        assert curve.chart in CHARTS
        assert {curve.low, curve.high} - {None} <= set(METRICS)


def test_evaluated_rounds() -> None:
    schedule = EvalSchedule(every=4, clients_every=6)
    assert [t for t in range(12) if schedule.due(t, last=False)] == [3, 5, 7, 11]
    assert [t for t in range(12) if schedule.each_client(t, last=False)] == [5, 11]
    assert schedule.due(0, last=True)
    assert schedule.each_client(0, last=True)
    assert not EvalSchedule(every=4, clients_every=0).each_client(3, last=True)


@pytest.mark.parametrize(("clients", "value"), [(1, 0.0), (10, 0.0), (11, 0.5), (20, 0.5), (21, 1.0)])
def test_the_worst_tenth_is_rounded_up(clients: int, value: float) -> None:
    assert worst_tenth([float(number) for number in reversed(range(clients))]) == value
