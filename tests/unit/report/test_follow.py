"""Runs that may be at work: what is read again, how they stand, and for how long more is waited for."""

import os
from pathlib import Path
from typing import Any

import pytest
from run_folders import ELSEWHERE, GONE, HERE, grow, lead, write_run

from dfl_dist.errors import ConfigError
from dfl_dist.report.follow import BEGIN_S, ELSEWHERE_S, RESTART_S, Followed, Standing


def look(folder: Path) -> Followed:
    followed = Followed(folder)
    followed.look()
    return followed


def stand(folder: Path) -> Standing:
    return look(folder).stand()


def make_old(folder: Path) -> None:
    for file in folder.iterdir():
        os.utime(file, (0, 0))


def test_a_run_is_read_again_when_it_has_changed_and_only_then(tmp_path: Path) -> None:
    one, other = write_run(tmp_path / "a", [0.5]), write_run(tmp_path / "b", [0.5])
    (tmp_path / "latest").symlink_to("a")
    followed = Followed(tmp_path)
    assert followed.look()
    before = followed.runs
    assert [run.folder for run in before] == [one, other], "a link is not a run of its own"
    assert not followed.look()
    grow(other, 1)
    assert followed.look()
    after = followed.runs
    assert (after[0] is before[0], len(after[1].lines)) == (True, 2)
    write_run(tmp_path / "A", [])
    assert followed.look()
    assert [run.folder.name for run in followed.runs] == ["a", "b", "A"], "those that were there before come first"


def test_a_run_stands_in_words(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [])
    lead(folder, leader=HERE)
    text = "no round recorded yet"
    assert stand(folder) == Standing((str(folder),), f"live, {text}", text, RESTART_S)
    grow(folder, 0)
    assert stand(folder).text == "live, round 1 of 4"
    lead(folder, leader=GONE)
    ending = "not finished, 1 of 4 rounds"
    assert stand(folder) == Standing((), "round 1 of 4, but rank 0 is gone", ending, RESTART_S)
    for round_idx in (1, 2, 3):
        grow(folder, round_idx)
    assert stand(folder).ending == "not finished, 4 of 4 rounds", "its results are missing"
    lead(folder, leader=ELSEWHERE)
    assert stand(folder).text == "live, round 4 of 4, on host elsewhere"
    make_old(folder)
    now = stand(folder)
    assert (now.running, now.patience_s) == ((), ELSEWHERE_S), "a round may take long there"
    assert now.text.startswith("round 4 of 4, nothing new for ")


@pytest.mark.parametrize(
    ("facts", "lines", "ending"),
    [
        ({"finished_after": 4}, [{}] * 4, "finished, 4 rounds"),
        ({"finished_after": 2}, [{}] * 2, "stopped early, 2 of 4 rounds"),
        ({"finished_after": 1, "ended_by": "stop.target 0.5"}, [{}], "finished by stop.target 0.5, 1 of 4 rounds"),
        ({}, [{}, {"train_loss": None}], "diverged in round 2 of 4"),
    ],
)
def test_nothing_more_comes_of_a_run_that_has_ended(
    tmp_path: Path, facts: dict[str, Any], lines: list[dict[str, Any]], ending: str
) -> None:
    folder = write_run(tmp_path / "run", [0.5] * len(lines), lines)
    lead(folder, leader=HERE, **facts)  # rank 0 may still write its report
    assert stand(folder) == Standing((), ending, ending, 0.0)


def test_runs_stand_together(tmp_path: Path) -> None:
    assert stand(tmp_path) == Standing((), "no run has begun yet", "no run has begun", BEGIN_S)
    lead(write_run(tmp_path / "a", [0.5] * 4), finished_after=4)
    lead(write_run(tmp_path / "b", [0.5]), leader=HERE)
    now = stand(tmp_path)
    assert (now.running, now.text) == ((str(tmp_path / "b"),), "live, 1 at work, 1 ended")
    lead(tmp_path / "b", leader=GONE)
    assert stand(tmp_path) == Standing(
        (), "waiting, 1 broken off, 1 ended", "2 runs, 1 finished, 1 unfinished", RESTART_S
    )
    lead(tmp_path / "b", leader=ELSEWHERE)
    make_old(tmp_path / "b")
    assert stand(tmp_path).patience_s == ELSEWHERE_S
    lead(tmp_path / "b", finished_after=1)
    assert stand(tmp_path).patience_s == RESTART_S, "a sweep may begin another"


def test_who_expects_to_see_something_grow_is_told_why_not(tmp_path: Path) -> None:
    assert look(tmp_path).note() == "no run has begun there yet: waits 300 s for one"
    folder = write_run(tmp_path / "run", [0.5])
    lead(folder, leader=HERE)
    assert look(folder).note() is None
    assert look(tmp_path).note() is None
    lead(folder, leader=GONE)
    assert look(folder).note() == "its rank 0 is not alive: waits 20 s for one"
    assert look(tmp_path).note() == "no run is at work there just now: waits 20 s for one"
    lead(folder, leader=ELSEWHERE)
    text = "its rank 0 is on host elsewhere: it counts as ended after 600 s without anything new"
    assert look(folder).note() == text
    lead(folder)
    assert "on an unknown host" in str(look(folder).note())


def test_a_run_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    lead(write_run(tmp_path / "a", [0.5]), format=99)
    write_run(tmp_path / "b", [0.5])
    assert [run.folder.name for run in look(tmp_path).runs] == ["b"]
    with pytest.raises(ConfigError, match="of format 99"):
        look(tmp_path / "a")
