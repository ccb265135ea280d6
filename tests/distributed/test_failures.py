"""Ranks that die, hang, diverge or lose mass: the rest ends in time and says why; nothing written is lost."""

import os
import re
import signal
import time
from pathlib import Path

import pytest
from launching import (
    TRAINER,
    Command,
    Finished,
    assert_same_run,
    elastic,
    lines,
    ranks,
    run,
    running,
    train,
    wait_for_rounds,
)

from dfl_dist.run_folder import checkpoint
from dfl_dist.run_folder.folder import is_finished

SHORT = ("--rounds", "200", "--local.epochs", "1", "--checkpoint.every", "2", "--checkpoint.keep", "0")


def assert_usable(folder: Path) -> None:
    """What was written before the failure is whole, and the run can go on from it."""
    recorded = [line["round"] for line in lines(folder / "metrics.jsonl")]
    assert recorded == list(range(len(recorded)))
    goal = str(checkpoint.round_of(checkpoint.complete(folder)[-1]) + 1)
    again = run(ranks(4, TRAINER, "--resume", str(folder), "--rounds", goal), folder.parent)
    assert again.code == 0, again.err


def ended_alone(command: Command, cwd: Path) -> Finished:
    """Run a command that must end by itself, with no process left behind."""
    with running(command, cwd) as job:
        done = job.finish()
        assert not job.members(), "processes were left behind"
    return done


def test_a_rank_that_raises_ends_the_whole_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    program = ranks(4, "broken_trainer:raise_in_round_4", "--out", str(folder), *SHORT, "--timeout_s", "20")
    done = ended_alone(program, tmp_path)
    assert done.code == 1
    assert "[rank 2] failed in round 4" in done.err
    assert "ValueError: the disk of this client is on fire" in done.err
    assert done.err.count("Traceback") == 1, "not one per rank"
    assert_usable(folder)


def test_a_rank_that_hangs_is_noticed_at_the_timeout(tmp_path: Path) -> None:
    """Stopped by SIGSTOP: the process is there, its connections too, and nothing comes."""
    folder = tmp_path / "run"
    command = ranks(4, TRAINER, "--out", str(folder), *SHORT, "--timeout_s", "6")
    with running(command, tmp_path) as job:
        wait_for_rounds(folder, 3)
        *others, stopped = job.ranks()
        os.kill(stopped, signal.SIGSTOP)
        started = time.monotonic()
        while not all(map(has_ended, others)):
            assert time.monotonic() - started < 30, "the others hang"
            time.sleep(0.05)
        os.kill(stopped, signal.SIGKILL)
        done = job.finish()
    assert done.code == 1
    assert "waited for" in done.err
    assert "rank 3" in done.err
    assert_usable(folder)


def has_ended(pid: int) -> bool:
    """Gone, or waiting for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_lost_mass_stops_the_run_and_names_round_and_rank(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    arguments = ("--out", str(folder), "--rounds", "50", "--local.epochs", "1", "--eval.every", "50")
    done = ended_alone(ranks(4, "broken_trainer:lose_mass", *arguments), tmp_path)
    assert done.code == 1
    assert done.err.count("dfl_dist: round 5: push-sum lost mass") == 1
    assert "on rank 1" in done.err
    assert len(lines(folder / "metrics.jsonl")) <= 7, "it stops within two rounds, not at the next evaluation"


def test_a_loss_that_leaves_every_measure_is_told(tmp_path: Path) -> None:
    arguments = "--out run --rounds 2 --local.lr 1e6 --local.steps 1 --local.rho 0 --model.name small_models:softmax"
    done = run(ranks(2, TRAINER, *arguments.split()), tmp_path)
    assert done.code == 0, done.err
    assert done.err.count("likely cures, in a new run: a smaller --local.lr") == 1


@pytest.mark.parametrize(("every", "good_rounds"), [(1, 3), (10, 2)])
def test_divergence_stops_the_run_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, every: int, good_rounds: int
) -> None:
    """Two steps per round: round 4 is the first in which a pass gives NaN, before a regular checkpoint or after it."""
    folder = tmp_path / "run"
    arguments = ("--out", str(folder), "--rounds", "60", "--model.name", "small_models:fragile", "--local.rho", "0")
    arguments += ("--local.steps", "2", "--checkpoint.every", str(every), "--checkpoint.keep", "1")
    done = ended_alone(ranks(3, TRAINER, *arguments), tmp_path)
    assert done.code == 1
    assert done.err.count("dfl_dist: ") == 1
    assert "dfl_dist: round 4: the training diverged (loss or model not finite at client 0 on rank 0" in done.err
    assert "--local.clip_norm" in done.err
    (good,) = checkpoint.complete(folder)
    assert good.name == f"round-{good_rounds:06d}"
    assert (folder / "report.html").is_file()
    assert f"the last good checkpoint is {good}" in done.err
    assert [line["train_loss"] is None for line in lines(folder / "metrics.jsonl")] == [False, False, False, True]


@pytest.mark.parametrize("every", [1, 10])
def test_the_last_good_checkpoint_is_of_before_the_loss_explodes(tmp_path: Path, every: int) -> None:
    """It is 2, 1e2, 1e9, 1e25, NaN: beyond every measure in round 3, and a checkpoint is due after round 4."""
    folder = tmp_path / "run"
    arguments = ("--num_clients", "4", "--rounds", "30", "--model.name", "small_models:cubic", "--local.steps", "1")
    arguments += ("--local.lr", "5", "--local.clip_norm", "0", "--local.momentum", "0")
    arguments += ("--checkpoint.every", str(every), "--checkpoint.keep", "1")
    for words in (("--out", str(folder), *arguments), ("--resume", str(folder))):
        done = ended_alone(ranks(2, TRAINER, *words), tmp_path)
        assert done.code == 1
        assert "dfl_dist: round 5: the training diverged" in done.err
        assert f"the last good checkpoint is {folder}/checkpoints/round-000002" in done.err
        assert [checkpoint.round_of(found) for found in checkpoint.complete(folder)] == [2, 4]


def test_a_full_disk_ends_the_run_with_one_line_and_a_state_to_go_on_from(tmp_path: Path) -> None:
    """Nothing is started again, where it would fail the same; with room again, the run goes on."""
    words = ("--rounds", "8", "--local.steps", "1", "--checkpoint.every", "2", "--report", "false", "--seed", "1")
    done = run(elastic(2, 3, "broken_trainer:without_room", "--out", "run", *words), tmp_path)
    assert done.code == 1
    (line,) = [line for line in done.err.splitlines() if "cannot be written" in line]
    why = re.escape("cannot be written: [Errno 28] No space left on device; make room; --resume goes on")
    assert re.match(rf"\[rank 1\] dfl_dist: the run folder run \([\d.]+ \w+ free\) {why}", line)
    assert "Traceback" not in done.err
    assert "start again" not in done.err
    assert not is_finished(tmp_path / "run", 8)
    good = checkpoint.newest(tmp_path / "run")
    assert good
    assert good.name == "round-000004"
    done = run(ranks(2, TRAINER, "--resume", "run"), tmp_path)
    assert done.code == 0, done.err
    assert_same_run(train(2, tmp_path / "undisturbed", *words), tmp_path / "run", 8)
