"""The numbers of a report: of runs, over seeds, and along curves."""

import math
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_folders import read_groups, write_run

from dfl_dist.config.resolve import resolve
from dfl_dist.config.values import ask
from dfl_dist.report.groups import Group
from dfl_dist.report.measures import Reached, measure
from dfl_dist.report.read import Run, read_run
from dfl_dist.report.statistics import Spread, mean_curve, one_per_seed, summarise


def values(run: Run, target: float | None = None) -> dict[str, float | None]:
    """The measures of a run, without their rounds."""
    return {name: reached.value for name, reached in measure(run, target).items()}


def test_what_one_run_has_reached(tmp_path: Path) -> None:
    more = [
        {"push_weight_min": 0.25, "push_weight_max": 1.75, "bytes_sent": 100, "seconds_total": 0.5},
        {"push_weight_min": 0.75, "push_weight_max": 1.25, "bytes_sent": 200, "seconds_total": 0.125},
        {"client_accuracy_mean": 0.5, "client_accuracy_min": 0.25, "client_accuracy_max": 0.75},
        {"test_loss": 0.5, "consensus_distance": 0.0625},
    ]
    run = read_run(write_run(tmp_path / "run", [0.5, None, 0.875, 0.75], more))
    found = values(run, target=0.6)
    assert found["last_accuracy"] == pytest.approx((0.5 + 0.875 + 0.75) / 3)
    expected = {
        "final_accuracy": 0.75,
        "best_accuracy": 0.875,
        "test_loss": 0.5,
        "client_accuracy_mean": 0.5,
        "client_accuracy_min": 0.25,
        "client_accuracy_max": 0.75,
        "rounds_to_target": 3,
        "consensus_distance": 0.0625,
        "push_weight_min": 0.25,
        "push_weight_max": 1.75,
        "bytes_sent": 100 + 200 + 500_000 + 500_000,
        "seconds": 0.5 + 0.125 + 0.25 + 0.25,
    }
    assert {name: found[name] for name in expected} == expected
    rounds = {name: reached.round for name, reached in measure(run, target=0.6).items()}
    of_a_round = ("final_accuracy", "best_accuracy", "client_accuracy_min", "rounds_to_target")
    assert [rounds[name] for name in of_a_round] == [4, 3, 3, 3], "counted from 1"


def test_the_last_ten_rounds_are_rounds_and_not_evaluations(tmp_path: Path) -> None:
    """Of 12 rounds the first two are not among the last ten, and of those only some are evaluated."""
    accuracies = [0.1, 0.2, None, None, 0.5, None, None, None, None, None, 0.6, 0.7]
    run = read_run(write_run(tmp_path / "run", accuracies, rounds=12))
    assert values(run)["last_accuracy"] == pytest.approx(0.6)
    sparse = read_run(write_run(tmp_path / "sparse", [0.9, *[None] * 10], rounds=20))
    assert values(sparse)["last_accuracy"] is None
    assert measure(sparse, None)["final_accuracy"] == Reached(0.9, 1)


@pytest.mark.parametrize(("target", "rounds"), [(None, None), (0.5, 1), (0.51, 3), (0.875, 3), (0.9, None)])
def test_rounds_to_a_target(tmp_path: Path, target: float | None, rounds: int | None) -> None:
    run = read_run(write_run(tmp_path / "run", [0.5, None, 0.875, 0.75]))
    assert values(run, target)["rounds_to_target"] == rounds


def test_what_is_not_there_or_not_finite_is_none(tmp_path: Path) -> None:
    empty = values(read_run(write_run(tmp_path / "empty", [])), 0.5)
    assert set(empty.values()) == {None}
    young = values(read_run(write_run(tmp_path / "young", [None])), 0.5)
    accuracies = ("final_accuracy", "best_accuracy", "last_accuracy")
    assert [young[name] for name in (*accuracies, "consensus_distance")] == [None] * 4
    assert (young["bytes_sent"], young["push_weight_min"]) == (500_000, 0.5)
    hot = {"test_loss": None, "consensus_distance": None, "test_accuracy": None, "push_weight_min": None}
    diverged = values(read_run(write_run(tmp_path / "hot", [0.5, 0.25], [{}, hot])), 0.5)
    assert (diverged["final_accuracy"], diverged["last_accuracy"], diverged["test_loss"]) == (None, None, None)
    assert (diverged["best_accuracy"], diverged["rounds_to_target"], diverged["push_weight_min"]) == (0.5, 1, 0.5)
    strange = [{"test_loss": math.nan, "push_weight_max": math.inf}]
    odd = values(read_run(write_run(tmp_path / "odd", [0.5], strange)))
    assert (odd["test_loss"], odd["push_weight_max"]) == (None, None)
    old = values(read_run(write_run(tmp_path / "old", [0.5, 0.5], [{"seconds_total": None}])))
    assert old["seconds"] is None, "a sum of which a part is not known"


def test_mean_and_sample_deviation_over_seeds(tmp_path: Path) -> None:
    """0.80, 0.84, 0.88: their mean is 0.84 and their deviations' squares add up to 0.0032, over two 0.0016."""
    runs = [write_run(tmp_path / f"{seed}", [value], seed=seed) for seed, value in enumerate((0.80, 0.84, 0.88))]
    (group,) = read_groups(*runs)
    final = summarise(group, 0.83).over_seeds["final_accuracy"]
    assert (final.mean, final.std, final.missing) == (pytest.approx(0.84), pytest.approx(0.04), 0)
    reached = summarise(group, 0.83).over_seeds["rounds_to_target"]
    assert (reached.values, reached.missing) == ((1, 1), 1)
    assert not summarise(group, None).finished
    (single,) = read_groups(runs[0])
    assert summarise(single, None).over_seeds["final_accuracy"].std is None
    assert summarise(single, None).over_seeds["client_accuracy_mean"] == Spread((), 1)
    assert summarise(single, None).over_seeds["client_accuracy_mean"].mean is None


@given(st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_a_spread_is_of_the_values_that_are_there(given_values: list[float | None]) -> None:
    there = [value for value in given_values if value is not None]
    found = Spread.of(given_values)
    assert len(found.values) + found.missing == len(given_values)
    assert found.mean == (fmean(there) if there else None)
    assert found.std == (stdev(there) if len(there) > 1 else None)
    if found.std is not None:
        assert found.std == pytest.approx(np.std(there, ddof=1), abs=1e-6)


def test_a_repeated_seed_is_no_other_sample(tmp_path: Path) -> None:
    short = write_run(tmp_path / "a", [0.5], seed=1)
    long = write_run(tmp_path / "b", [0.5, 0.75], seed=1)
    again = write_run(tmp_path / "c", [0.5, 0.25], seed=1)
    other = write_run(tmp_path / "d", [0.5, 0.25], seed=0)
    (group,) = read_groups(short, long, again, other)
    assert [run.folder for run in one_per_seed(group)] == [other, long]
    found = summarise(group, None)
    assert found.over_seeds["final_accuracy"].values == (0.25, 0.75)
    assert [run.folder for run in found.left_out] == [short, again]
    assert mean_curve(group, "rounds", "test_accuracy").mean.tolist() == [0.5, 0.5]


def test_runs_on_different_numbers_of_clients_are_not_one_group(tmp_path: Path) -> None:
    """Where none is asked, it is that of the ranks."""
    few, many = write_run(tmp_path / "few", [0.5]), write_run(tmp_path / "many", [0.5], seed=1)
    (many / "resolved.yaml").write_text(
        (many / "resolved.yaml").read_text().replace("num_clients: 8", "num_clients: 16")
    )
    assert [group.label for group in read_groups(few, many)] == [
        "DFedSGPSM, 8 clients",
        "DFedSGPSM, 16 clients",
    ]


def test_curves_join_seeds_where_all_have_been_evaluated(tmp_path: Path) -> None:
    first = [{"bytes_sent": 10, "seconds_total": 1.0}, {"bytes_sent": 20}, {"bytes_sent": 30, "seconds_total": 2.0}]
    second = [{"bytes_sent": 30, "seconds_total": 3.0}, {"bytes_sent": 20}, {"bytes_sent": 50, "seconds_total": 4.0}]
    one = write_run(tmp_path / "one", [0.25, 0.5, 0.75, 1.0], first, rounds=5)
    two = write_run(tmp_path / "two", [0.75, None, 0.25], second, seed=1, rounds=5)
    none = write_run(tmp_path / "none", [None], seed=2, rounds=5)
    (group,) = read_groups(one, two, none)
    found = mean_curve(group, "rounds", "test_accuracy")
    assert found.std is not None
    assert (found.x.tolist(), found.mean.tolist()) == ([1, 3], [0.5, 0.5])
    assert found.std.tolist() == pytest.approx([math.sqrt(0.125)] * 2)
    assert mean_curve(group, "bytes", "test_accuracy").x.tolist() == [(10 + 30) / 2, (60 + 100) / 2]
    assert mean_curve(group, "seconds", "test_accuracy").x.tolist() == [(1 + 3) / 2, (3.25 + 7.25) / 2]
    (alone,) = read_groups(one)
    assert mean_curve(alone, "rounds", "test_accuracy").std is None
    assert mean_curve(alone, "bytes", "train_loss").x.tolist() == [10, 30, 60, 500_060]
    assert mean_curve(alone, "rounds", "client_accuracy_mean").x.size == 0


def test_a_seed_that_goes_on_does_not_shorten_the_curve_of_those_that_have_ended(tmp_path: Path) -> None:
    ended = write_run(tmp_path / "ended", [0.25, 0.5, 0.75, 1.0])
    begun = write_run(tmp_path / "begun", [0.75], seed=1)
    first, second = read_groups(ended, begun)[0], read_groups(begun)[0]
    assert mean_curve(first, "rounds", "test_accuracy").mean.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert mean_curve(second, "rounds", "test_accuracy").mean.tolist() == [0.75]
    diverged = write_run(tmp_path / "diverged", [0.75, None], [{}, {"train_loss": None}], seed=2)
    (group,) = read_groups(ended, begun, diverged)
    assert mean_curve(group, "rounds", "test_accuracy").mean.tolist() == [0.5], "it has come to its end"


def test_a_curve_has_no_point_where_a_value_is_not_finite(tmp_path: Path) -> None:
    (group,) = read_groups(write_run(tmp_path / "run", [0.25, 0.5, 0.75], [{}, {"train_loss": None}]))
    assert mean_curve(group, "rounds", "train_loss").x.tolist() == [1, 3]
    (old,) = read_groups(write_run(tmp_path / "old", [0.25, 0.5, 0.75], [{}, {"seconds_total": None}]))
    assert mean_curve(old, "seconds", "train_loss").x.tolist() == [0.25], "no further than the sum is known"


@given(st.lists(st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=8), min_size=1, max_size=4))
def test_curves_are_means_of_their_seeds(histories: list[list[float | None]]) -> None:
    runs = []
    for seed, history in enumerate(histories):
        lines = [{"round": t, **({} if value is None else {"test_accuracy": value})} for t, value in enumerate(history)]
        asked = ask({"seed": seed})
        runs.append(Run(Path(str(seed)), asked, resolve(asked), lines))
    found = mean_curve(Group("SGP", (), (), {"algorithm": "sgp"}, runs), "rounds", "test_accuracy")
    counted = [history for history in histories if any(value is not None for value in history)]
    for place, mean in zip(found.x, found.mean, strict=True):
        heights = [history[int(place) - 1] for history in counted]
        assert mean == pytest.approx(fmean(value for value in heights if value is not None))
        assert None not in heights
    joined = [t for t in range(8) if counted and all(t < len(one) and one[t] is not None for one in counted)]
    assert [t + 1 for t in joined] == found.x.tolist()
