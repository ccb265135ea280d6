"""Who is to blame: an exception in user code shows the user's traceback, once; a bug of ours is no user's mistake."""

from pathlib import Path

import pytest
from launching import TRAINER, Finished, elastic, run

SHORT = ("--num_clients", "4", "--rounds", "3", "--local.steps", "1", "--local.rho", "0", "--timeout_s", "20")
TINY = ("--model.name", "own_project:tiny")


def run_on_two_ranks(cwd: Path, target: str, *arguments: str) -> Finished:
    """A run that fails; its ranks meet in torchrun's store, which is still there when one of them has left."""
    done = run(elastic(2, 0, target, *arguments), cwd)
    assert done.code == 1, done.err
    return done


@pytest.mark.parametrize("function", ["raises", "raises_on_rank_1"])
def test_a_data_function_that_raises_shows_its_traceback_once(tmp_path: Path, function: str) -> None:
    done = run_on_two_ranks(tmp_path, TRAINER, "--data.name", f"own_project:{function}", *TINY, *SHORT)
    assert done.err.count(f", in {function}\n") == 1
    assert done.err.count("ValueError: no such table") == 1
    assert "dfl_dist/data/supplied.py" not in done.err, "only the user's own frames"
    assert f"dfl_dist: data.name: own_project:{function} failed: ValueError in own_project.py, line " in done.err


def test_a_model_that_raises_in_round_2_shows_its_traceback_once(tmp_path: Path) -> None:
    """On both ranks, in the same round."""
    done = run_on_two_ranks(tmp_path, TRAINER, "--model.name", "small_models:failing", "--num_clients", "2", *SHORT[2:])
    assert done.err.count(", in forward\n") == 1
    assert done.err.count("KeyError: 'a layer that is not there'") == 1
    assert "failed in round 2" in done.err


def test_an_on_round_that_raises_shows_its_traceback_once(tmp_path: Path) -> None:
    """In a script, which gets its own exception on the rank that has it, and a PeerError on the other."""
    done = run_on_two_ranks(tmp_path, "own_project:call_and_stumble")
    assert done.err.count(", in stumble\n") == 1
    assert done.err.count("ZeroDivisionError: a tracker that divides") == 1


@pytest.mark.parametrize("bug", ["bug_in_the_plan", "bug_on_rank_1"])
def test_an_unexpected_value_error_is_a_bug_with_a_traceback(tmp_path: Path, bug: str) -> None:
    done = run_on_two_ranks(tmp_path, f"broken_trainer:{bug}", *SHORT)
    assert done.err.count("] failed\nTraceback (most recent call last):") == 1
    assert "is not in list" in done.err
    assert "dfl_dist: " not in done.err, "no refusal: it is not the user's mistake"
