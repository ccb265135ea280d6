"""Signals at any moment of `python -m dfl_dist.train`: no traceback, one summary, the exit code of a shell."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from launching import TIMEOUT_S, TRAINER, Finished, lines, ranks, run, running, wait_for_rounds

from dfl_dist.run_folder import checkpoint
from dfl_dist.run_folder.files import read_lines
from dfl_dist.run_folder.folder import is_finished

ENDLESS = ("--rounds", "5000", "--num_clients", "2", "--local.steps", "1", "--out", "run", "--report", "false")
PYTHON = [sys.executable, "-m", "dfl_dist.train"]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end, "it never comes"
        time.sleep(0.001)


def catches_sigterm(pid: int) -> bool:
    """Whether a process has a handler of its own: the trainer's first act, before its imports."""
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def assert_quiet(done: Finished) -> None:
    assert "Traceback" not in done.err + done.out
    assert "KeyboardInterrupt" not in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("later_s", [0.0, 0.4, 0.9])
def test_before_the_run_begins(tmp_path: Path, number: int, later_s: float) -> None:
    """While torch is being imported, and a little later, when the run may have begun."""
    with running([*PYTHON, *ENDLESS], tmp_path) as job:
        wait_until(lambda: catches_sigterm(job.process.pid))
        time.sleep(later_s)
        os.kill(job.process.pid, number)
        done = job.finish()
    assert_quiet(done)
    assert done.code == 128 + number
    if later_s and read_lines(tmp_path / "run" / "metrics.jsonl"):
        assert done.out.count("stopped by ") == 1
    else:
        assert done.err == f"dfl_dist: stopped by {signal.Signals(number).name} before the run began\n"
        assert not done.out


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "Ctrl-C (SIGINT)"), (signal.SIGTERM, "SIGTERM")])
def test_within_the_run(tmp_path: Path, number: int, name: str) -> None:
    with running([*PYTHON, *ENDLESS], tmp_path) as job:
        wait_for_rounds(tmp_path / "run", 3)
        os.kill(job.process.pid, number)
        done = job.finish()
    assert_quiet(done)
    assert done.code == 128 + number
    count = len(lines(tmp_path / "run" / "metrics.jsonl"))
    summary = done.out.splitlines()
    assert summary[0].startswith(f"stopped by {name} after round {count} of 5000")
    assert summary[-1] == "go on with: python -m dfl_dist.train --resume run"
    assert done.out.count("stopped by") == 1


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    """In the midst of a step that takes minutes."""
    slow = ("--model.name", "small_models:slow", "--rounds", "5", "--num_clients", "2", "--out", "run")
    with running([*PYTHON, *slow], tmp_path, DFL_TEST_PASS_S="200") as job:
        wait_until((tmp_path / "run" / "checkpoints" / "round-000000" / "manifest.json").exists)
        os.kill(job.process.pid, signal.SIGINT)
        time.sleep(1.2)  # else it is the same press
        os.kill(job.process.pid, signal.SIGINT)
        pressed = time.monotonic()
        done = job.finish()
    assert time.monotonic() - pressed < 5
    assert_quiet(done)
    assert done.code == 130
    assert done.err.endswith("dfl_dist: ended at once by a second Ctrl-C\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("later_s", [0.0, 0.3])
def test_after_the_run_is_finished_nothing_changes(tmp_path: Path, number: int, later_s: float) -> None:
    """While the report is written and the process ends."""
    words = ("--rounds", "2", "--num_clients", "2", "--local.steps", "1", "--out", "run")
    with running([*PYTHON, *words], tmp_path) as job:
        wait_until(lambda: is_finished(tmp_path / "run", 2))
        time.sleep(later_s)
        os.kill(job.process.pid, number)
        done = job.finish()
    assert_quiet(done)
    assert done.code == 0, done.err
    assert "finished after round 2 of 2" in done.out
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_process_that_a_rank_forks_has_its_own_signals(tmp_path: Path) -> None:
    """A worker of a user's data function: ended by SIGTERM, which is not the rank's."""
    words = ("--data.name", "own_project:load_with_a_worker", "--model.name", "own_project:tiny", "--out", "run")
    with running([*PYTHON, *words, "--rounds", "2", "--num_clients", "2", "--report", "false"], tmp_path) as job:
        done = job.finish()
    assert done.code == 0, done.err
    assert "finished after round 2 of 2" in done.out


def test_when_the_time_is_up_the_run_stops_with_a_checkpoint(tmp_path: Path) -> None:
    """That is no failure, and the command that goes on is told."""
    done = run(ranks(2, TRAINER, *ENDLESS, "--max_seconds", "0.5"), tmp_path)
    assert done.code == 0, done.err
    rounds = len(lines(tmp_path / "run" / "metrics.jsonl"))
    assert 0 < rounds < 5000
    assert done.out.startswith(f"stopped by max_seconds 0.5 after round {rounds} of 5000, ")
    assert "go on with: " in done.out
    newest = checkpoint.newest(tmp_path / "run")
    assert newest
    assert checkpoint.round_of(newest) == rounds
