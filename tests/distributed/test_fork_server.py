"""The fork server of these tests: what it starts is like what torchrun starts, and nothing of it is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launching import TRAINER, environment, ranks, run, running

STARTS_RANKS_AND_STAYS = """
import time
from pathlib import Path
import forked
job = forked.Forked(forked.Ranks(2, "rank_programs:stay", ()), Path.cwd(), forked.environment())
print(job.pid, flush=True)
time.sleep(600)
"""


def session(number: int) -> list[int]:
    """The processes of a session that are not zombies."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, own = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it has ended meanwhile
            continue
        if int(own) == number and state not in "ZX":
            found.append(int(path.parent.name))
    return found


def wait_for(count: int, number: int) -> None:
    end = time.monotonic() + 60
    while len(session(number)) != count:
        assert time.monotonic() < end, f"{session(number)} are there, not {count}"
        time.sleep(0.02)


def test_nothing_is_left_when_the_tests_are_killed(tmp_path: Path) -> None:
    """Not even with SIGKILL: the server ends without its client, a job without the server, the ranks without it."""
    command = [sys.executable, "-c", STARTS_RANKS_AND_STAYS]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout
        job = int(tests.stdout.readline())
        wait_for(3, job)
        tests.kill()
    wait_for(0, job)


def test_a_job_that_is_left_early_is_killed(tmp_path: Path) -> None:
    with running(ranks(3, "rank_programs:stay"), tmp_path) as job:
        wait_for(4, job.process.pid)
        assert len(job.ranks()) == 3
        assert set(job.members()) == {job.process.pid, *job.ranks()}
    assert session(job.process.pid) == []


def test_the_first_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    with running(ranks(2, "rank_programs:stay"), tmp_path) as job:
        wait_for(3, job.process.pid)
        os.kill(job.ranks()[1], signal.SIGUSR1)
        assert job.finish(timeout_s=30).code == -signal.SIGUSR1


def test_a_wait_ends_at_its_timeout(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run(ranks(1, "rank_programs:stay"), tmp_path, timeout_s=0.2)


def test_a_job_has_its_own_folder_environment_and_output(tmp_path: Path) -> None:
    done = run(ranks(2, "rank_programs:tell", "a word"), tmp_path, DFL_TEST_WORD="of its own")
    expected = [f"rank {rank} of 2 in {tmp_path}: ['a word'], of its own" for rank in range(2)]
    assert sorted(done.out.splitlines()) == expected
    assert done.err == ""


def test_a_job_leaves_nothing_in_the_server(tmp_path: Path) -> None:
    """Else what is forked from it may hang."""
    assert run(ranks(1, TRAINER, "--rounds", "1"), tmp_path).code == 0, "a job has threads and runs kernels"
    done = run(ranks(1, "rank_programs:tell_threads"), tmp_path)
    assert done.out == "1 thread, torchvision is not imported\n", done
