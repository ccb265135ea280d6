"""Who is to blame: an exception in user code shows the user's traceback, once; a bug of ours is no user's mistake."""

from pathlib import Path

import pytest
from launching import TRAINER, Finished, elastic, ranks, run, torchrun
from news import heard, listening
from own_trackers import told

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
    """On both ranks, in the same round; and a tracker that needs its time is told of it."""
    asked = ("--out", "run", "--tracker", "own_trackers:TakesItsTime", "--num_clients", "2", *SHORT[2:])
    done = run_on_two_ranks(tmp_path, TRAINER, "--model.name", "small_models:failing", *asked)
    assert done.err.count(", in forward\n") == 1
    assert done.err.count("KeyError: 'a layer that is not there'") == 1
    assert "failed in round 2" in done.err
    assert told(tmp_path / "run", 0)[-1] == {"state": "failed", "model": None}


def test_under_torchrun_too_the_traceback_is_shown_once(tmp_path: Path) -> None:
    """Beside what torchrun itself has to say."""
    model = ("--model.name", "small_models:failing_on_rank_1", "--num_clients", "2")
    done = run(torchrun(2, *model, *SHORT[2:]), tmp_path)
    assert done.code == 1
    assert done.err.count(", in forward\n") == done.err.count("KeyError: 'a layer that is not there'") == 1
    assert "[rank 1] user code failed: KeyError in small_models.py, line " in done.err
    assert "dfl_dist/training" not in done.err, "only the user's own frames"


def test_an_on_round_that_raises_shows_its_traceback_once(tmp_path: Path) -> None:
    """In a script, which gets its own exception on the rank that has it, and a PeerError on the other."""
    done = run_on_two_ranks(tmp_path, "own_project:call_and_stumble")
    assert done.err.count(", in stumble\n") == 1
    assert done.err.count("ZeroDivisionError: a tracker that divides") == 1


@pytest.mark.parametrize("bug", ["bug_in_the_plan", "bug_on_rank_1"])
def test_an_unexpected_value_error_is_a_bug_with_a_traceback(tmp_path: Path, bug: str) -> None:
    done = run_on_two_ranks(tmp_path, f"broken_trainer:{bug}", *SHORT)
    assert done.err.count("] failed\n") == done.err.count("Traceback (most recent call last):") == 1
    assert "is not in list" in done.err
    assert "dfl_dist: " not in done.err, "no refusal: it is not the user's mistake"


# Under a launcher, which shows the user's traceback at the very end, and starts nothing again.


def run_with_a_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[Finished, list[dict[str, str]]]:
    """A run on two ranks, and what they told."""
    monkeypatch.chdir(tmp_path)
    with listening(2) as place:
        done = run(ranks(2, "news:train", *arguments), tmp_path)
        return done, heard(place, 2)


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (("--data.name", "own_project:raises", *TINY), "raises"),
        (("--data.name", "own_project:raises_on_rank_1", *TINY), "raises_on_rank_1"),
        (("--model.name", "small_models:failing"), "forward"),
        (("--model.name", "small_models:failing_on_rank_1"), "forward"),
    ],
    ids=["data", "data on rank 1", "model in round 1", "model in round 1 on rank 1"],
)
def test_a_launcher_gets_the_traceback_of_user_code_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], place: str
) -> None:
    done, told = run_with_a_launcher(tmp_path, monkeypatch, *arguments, *SHORT)
    assert done.code == 1, done.err
    (words,) = [message["words"] for message in told if "words" in message]
    assert words.startswith("Traceback (most recent call last):\n")
    assert words.count(f", in {place}\n") == 1
    assert words.splitlines()[-1].startswith("dfl_dist: ")
    assert {"ending": "failed"} in told
    assert "Traceback" not in done.err + done.out
    assert "waited for" not in done.err, "what the others have to say buries nothing"


def test_a_launcher_hears_of_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one rank at least: as soon as one has left, the others are ended."""
    done, told = run_with_a_launcher(tmp_path, monkeypatch, "--model.name", "small_models:misfit")
    assert done.code == 2
    assert done.err.count("dfl_dist: ") == 1
    assert told in ([{"ending": "refused"}], [{"ending": "refused"}] * 2)


def test_a_launcher_hears_where_the_run_is_and_how_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, told = run_with_a_launcher(tmp_path, monkeypatch, *SHORT, "--out", "run", "--report", "false")
    assert done.code == 0, done.err
    place = {"folder": str(tmp_path / "run"), "timeout_s": 20.0, "trackers_s": 0.0}
    assert sorted(map(str, told)) == sorted(map(str, [place, *[{"ending": "finished"}] * 2]))
