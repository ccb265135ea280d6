"""Restarts by torchrun: a rank is killed at any moment, and the run ends with the bits of one that was not."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest
from launching import (
    TIMEOUT_S,
    Running,
    assert_same_run,
    elastic,
    lines,
    ranks,
    run,
    running,
    torchrun,
    train,
    wait_for_rounds,
)

ROUNDS = 12
SETTINGS = ("--rounds", str(ROUNDS), "--local.epochs", "1", "--checkpoint.every", "3", "--eval.every", "4")
SETTINGS += ("--graph.out_degree", "1", "--report", "false", "--timeout_s", "30")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(None, tmp_path_factory.mktemp("undisturbed") / "run", "--num_clients", "3", *SETTINGS)


def assert_same_end(undisturbed: Path, cwd: Path) -> None:
    """In the one folder that the run has chosen for itself."""
    (folder,) = [path for path in (cwd / "runs").iterdir() if not path.is_symlink()]
    assert_same_run(undisturbed, folder, ROUNDS)
    assert "test_accuracy" in lines(folder / "metrics.jsonl")[-1]
    assert (folder / "model.pt").is_file()


@pytest.mark.parametrize(
    ("moment", "rank", "count"),
    [
        ("start", 1, 1),
        ("local steps", 0, 8),
        ("local steps", 2, 5),
        ("frames pushed", 0, 6),
        ("evaluation", 2, 2),
        ("a client's file", 1, 3),
        ("manifest", 0, 3),
        ("old checkpoints", 0, 4),
    ],
)
def test_a_rank_killed_at_this_moment(undisturbed: Path, tmp_path: Path, moment: str, rank: int, count: int) -> None:
    """torchrun's own engine, with ranks that are forked."""
    done = run(elastic(3, 3, "broken_trainer:killed", moment, str(rank), str(count), *SETTINGS), tmp_path)
    assert done.code == 0, done.err
    assert (tmp_path / "killed").exists(), "the moment never came"
    assert_same_end(undisturbed, tmp_path)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_rank_killed_at_any_moment(undisturbed: Path, tmp_path: Path, seed: int) -> None:
    """Under torchrun, from outside, two times, after so much of the run as the dice say."""
    dice = random.Random(seed)
    folder = tmp_path / "runs" / "dfedsgpsm-digits-001"
    with running(torchrun(3, *SETTINGS, max_restarts=3), tmp_path) as job:
        for rounds in sorted(dice.sample(range(1, ROUNDS - 2), 2)):
            wait_for_rounds(folder, rounds)
            time.sleep(0.1 * dice.random())
            kill_one(job, dice)
        done = job.finish()
    assert done.code == 0, done.err
    assert_same_end(undisturbed, tmp_path)


def kill_one(job: Running, dice: random.Random) -> None:
    """Kill a rank; while they are just being started again there may be none yet."""
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(dice.choice(job.torchrun_ranks()), signal.SIGKILL)
            return
    raise AssertionError("there are no ranks")


def test_ranks_meet_though_their_hosts_have_counted_other_restarts(tmp_path: Path) -> None:
    """Words of the ranks that were there before are still in the store, and torchrun's counts differ."""
    done = run(ranks(3, "rank_programs:meet_again"), tmp_path)
    assert done.code == 0, done.err
