"""Who works on a cell: taken over only from what has ended."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dfl_dist.sweep import locks
from dfl_dist.sweep.locks import Held, claim, started_at


def claimed(lock: Path) -> str | None:
    """Who has the cell, None where it could be claimed; then it is as if this process had been killed."""
    found = claim(lock)
    if isinstance(found, Held):
        os.close(found.file)
        return None
    return found


def test_a_lock_is_taken_over_only_from_a_dead_process_of_this_host(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    assert claimed(lock) is None
    assert "process" in str(claimed(lock)), "held by this very process"
    mine = json.loads(lock.read_text())
    me = {"host": socket.gethostname(), "pid": os.getpid(), "started": started_at(os.getpid())}
    assert mine == me | {"job": os.environ.get("SLURM_JOB_ID")}
    lock.write_text(json.dumps(mine | {"started": "1"}))  # its number went to another process
    assert claimed(lock) is None
    assert json.loads(lock.read_text()) == mine
    lock.write_text(json.dumps(mine | {"started": "1", "host": "elsewhere"}))
    held = f"a sweep on host elsewhere, process {os.getpid()}; if it is gone, remove {lock}"
    assert claimed(lock) == held
    lock.write_text("")
    assert "host unknown" in str(claimed(lock))


def test_a_job_that_was_requeued_on_another_host_takes_its_lock_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "a.lock"
    lock.write_text(json.dumps({"host": "elsewhere", "pid": 1, "started": "1", "job": "77"}))
    monkeypatch.setenv("SLURM_JOB_ID", "78")
    assert "host elsewhere" in str(claimed(lock))
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    assert claimed(lock) is None


def test_what_is_released_is_free(tmp_path: Path) -> None:
    first = claim(tmp_path / "a.lock")
    assert isinstance(first, Held)
    first.release()
    assert not (tmp_path / "a.lock").exists()
    assert claimed(tmp_path / "a.lock") is None


SWEEP = """
import os, sys, time
from pathlib import Path
from dfl_dist.sweep.locks import claim
claim(Path(sys.argv[1]))
if os.fork() == 0:
    print(flush=True)
    time.sleep(float(sys.argv[2]))
    os._exit(0)
time.sleep(60)
"""


def be_killed(lock: Path, *, outlived_by_s: float) -> None:
    """A process claims a cell, forks another, as a sweep does its ranks, and is killed; the other lives on."""
    command = [sys.executable, "-c", SWEEP, str(lock), str(outlived_by_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as sweep:
        assert sweep.stdout is not None
        assert sweep.stdout.read(1) == b"\n"
        sweep.kill()


def test_a_cell_is_not_taken_over_before_all_that_was_forked_for_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, began = tmp_path / "a.lock", time.monotonic()
    be_killed(lock, outlived_by_s=1.0)
    monkeypatch.setattr(locks, "LEFT_WITHIN_S", 0.1)
    assert re.fullmatch(r"what a sweep that was killed, process \d+, left running", str(claimed(lock)))
    monkeypatch.setattr(locks, "LEFT_WITHIN_S", 30.0)
    assert claimed(lock) is None
    assert time.monotonic() - began > 1.0
