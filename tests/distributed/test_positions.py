"""A rank that hangs: one table of all ranks, the one at the root named once, every other rank silent and gone."""

import os
import signal
import time
from pathlib import Path

import pytest
from launching import TIMEOUT_S, TRAINER, Finished, Running, ranks, run, running, wait_for_rounds

TIMEOUT = 4.0
SETTINGS = ("--out", "run", "--rounds", "500", "--local.steps", "1", "--checkpoint.every", "0", "--eval.every", "500")
SETTINGS += ("--report", "false", "--timeout_s", f"{TIMEOUT:g}")


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def end_without(job: Running, rank: int, size: int) -> tuple[Finished, float]:
    """Wait until all ranks but one have left by themselves, and end that one; how they ended, after how long."""
    started = time.monotonic()
    while len(pids := job.ranks()) < size:
        assert time.monotonic() - started < TIMEOUT_S, "they do not start"
    while not all(has_ended(pid) for number, pid in enumerate(pids) if number != rank):
        assert time.monotonic() - started < TIMEOUT_S, "the others hang"
        time.sleep(0.02)
    took = time.monotonic() - started
    assert not has_ended(pids[rank])
    os.kill(pids[rank], signal.SIGKILL)
    return job.finish(), took


def assert_one_table(done: Finished, size: int) -> str:
    """One table with all ranks, and no other word of who waited for whom; its last line."""
    assert done.code == 1
    lines = done.err.splitlines()
    (first,) = [number for number, line in enumerate(lines) if "waited for" in line]
    assert lines[first].endswith("s (timeout_s); all ranks:"), done.err
    head, *rows, root = lines[first + 1 :]
    assert head.startswith("rank  host"), done.err
    assert sorted(int(row.split()[0]) for row in rows) == list(range(size))
    return root


@pytest.mark.parametrize("rank", [0, 2])
def test_a_stopped_rank_is_at_the_root(tmp_path: Path, rank: int) -> None:
    """In the local steps, which take a while. Rank 0 does not serve the store."""
    settings = (*SETTINGS, "--model.name", "small_models:slow")
    with running(ranks(4, TRAINER, *settings), tmp_path, DFL_TEST_PASS_S="0.6") as job:
        wait_for_rounds(tmp_path / "run", 2)
        os.kill(job.ranks()[rank], signal.SIGSTOP)
        done, took = end_without(job, rank, 4)
    root = assert_one_table(done, 4)
    assert root.startswith(f"rank {rank} is at the root: nothing was heard of it for")
    assert root.endswith(tuple(f"it was in the {phase} of round {t} then" for phase in PHASES for t in range(2, 6)))
    assert TIMEOUT - 0.1 < took < TIMEOUT + 4, "the local steps that others are in come first"


PHASES = ("local steps", "exchange", "report")


def test_a_dead_loop_in_a_users_model_is_at_the_root(tmp_path: Path) -> None:
    with running(ranks(3, TRAINER, *SETTINGS, "--model.name", "small_models:endless_on_rank_1"), tmp_path) as job:
        done, _ = end_without(job, 1, 3)
    root = assert_one_table(done, 3)
    assert root.startswith("rank 1 is at the root: it has been in the local steps of round 2 for")


def test_a_rank_stopped_before_the_first_round_is_at_the_root(tmp_path: Path) -> None:
    """Ranks wait for minutes there for one that loads its data, but not for one that is silent."""
    with running(ranks(3, "standing_still:stopped_at_the_start", f"{TIMEOUT:g}"), tmp_path) as job:
        done, took = end_without(job, 1, 3)
    assert took < TIMEOUT + 6
    assert "rank 1 is at the root: nothing was heard of it for" in done.err
    assert done.err.count("is at the root") == 1
    assert done.code == 1


@pytest.mark.parametrize("timeout_s", ["2", "0.5"])
def test_a_slow_start_is_waited_for(tmp_path: Path, timeout_s: str) -> None:
    """Longer than the timeout, by ranks that are heard of, however seldom that is."""
    done = run(ranks(3, "standing_still:slow_at_the_start", timeout_s), tmp_path)
    assert done.code == 0, done.err


def test_a_killed_rank_is_told_as_lost_without_a_table(tmp_path: Path) -> None:
    with running(ranks(3, TRAINER, *SETTINGS), tmp_path) as job:
        wait_for_rounds(tmp_path / "run", 3)
        os.kill(job.ranks()[2], signal.SIGKILL)
        done = job.finish()
    assert "the connection is gone" in done.err
    assert "is at the root" not in done.err


def test_the_thread_that_tells_the_position_ends_with_the_run(tmp_path: Path) -> None:
    """In one process, which has nobody to tell, there is none."""
    for size, helpers in ((1, "none\n"), (2, "positions\n" * 2)):
        done = run(ranks(size, "standing_still:tell_helpers"), tmp_path)
        assert (done.code, done.out) == (0, helpers), done.err
