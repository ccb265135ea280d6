"""Early stopping on real ranks: the same round on all, a finished run, and one that can go on with another `stop`."""

from pathlib import Path

import pytest
from forked import Ranks
from launching import TRAINER, assert_same_clients, assert_same_run, lines, run, train
from oracle_checks import BASE, resume

from dfl_dist.report.read import read_run
from dfl_dist.report.states import state_of
from dfl_dist.run_folder.folder import read_environment

WORDS = (*BASE, "--report", "false", "--num_clients", "4", "--local.batch_size", "40", "--eval.every", "2")
IDLE = (*WORDS, "--local.lr", "1e-9")  # which never gets better


def scores(folder: Path) -> dict[int, float]:
    return {line["round"]: line["test_accuracy"] for line in lines(folder / "metrics.jsonl") if "test_accuracy" in line}


@pytest.mark.parametrize("world_size", [None, 3])
def test_a_run_ends_after_the_evaluation_that_reaches_the_target(world_size: int | None, tmp_path: Path) -> None:
    words = (*WORDS, "--rounds", "40", "--stop.target", "0.85", "--eval.clients_every", "30", "--out", "run")
    done = run(Ranks(world_size, TRAINER, words), tmp_path)
    assert done.code == 0, done.err
    folder = tmp_path / "run"
    reached = scores(folder)
    *before, last = reached.values()
    assert max(before) < 0.85 <= last
    assert max(reached) + 1 == len(lines(folder / "metrics.jsonl")) < 40
    assert done.out.startswith(f"finished by stop.target 0.85 after round {max(reached) + 1} of 40, ")
    assert "go on with" not in done.out
    assert "client_accuracy_mean" in lines(folder / "metrics.jsonl")[-1], "the last round has what a last round has"
    assert state_of(read_run(folder)) == "finished"
    again = run(Ranks(world_size, TRAINER, ("--resume", "run")), tmp_path)
    assert again.code == 2
    said = f"stop.target: given 0.85, allowed: another value, or null: {folder} has ended by it after round"
    assert said in again.err


def test_patience_counts_on_after_an_interruption(tmp_path: Path) -> None:
    whole = train(2, tmp_path / "whole", *IDLE, "--rounds", "30", "--stop.patience", "3")
    assert list(scores(whole)) == [1, 3, 5, 7]
    parts = train(2, tmp_path / "parts", *IDLE, "--rounds", "5", "--stop.patience", "3")
    assert list(scores(parts)) == [1, 3, 4], "the last round always is evaluated"
    resume(None, parts, "--rounds", "30")
    assert scores(parts) == scores(whole)
    assert read_environment(parts)["ended_by"] == read_environment(whole)["ended_by"]
    assert_same_clients(parts, whole, 8)


def test_with_another_stop_a_run_goes_on_as_if_it_had_never_ended(tmp_path: Path) -> None:
    """Also with models in flight, which were drained at its end."""
    words = (*WORDS, "--overlap", "1", "--eval.clients_every", "4")
    never = train(2, tmp_path / "never", *words, "--rounds", "10")
    parts = train(2, tmp_path / "parts", *words, "--rounds", "10", "--stop.target", "0.5")
    ended = len(lines(parts / "metrics.jsonl"))
    assert 0 < ended < 10
    resume(2, parts, "--stop.target", "null")
    assert scores(parts) == scores(never)
    assert "ended_by" not in read_environment(parts)
    assert_same_run(parts, never, 10)
