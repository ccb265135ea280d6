"""Who works on a cell: taken over only from what has ended."""

import json
import os
import socket
from pathlib import Path

import pytest

from dfl_dist.sweep.locks import claim, started_at


def claimed(lock: Path) -> tuple[str | None, bool]:
    """Who has the cell, and whether another's work was cleaned up."""
    cleaned = []
    holder = claim(lock, lambda: cleaned.append(True))
    return holder, bool(cleaned)


def test_a_lock_is_taken_over_only_from_a_dead_process_of_this_host(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    assert claimed(lock) == (None, False)
    holder, cleaned = claimed(lock)
    assert "process" in str(holder), "held by this very process"
    assert not cleaned
    mine = json.loads(lock.read_text())
    me = {"host": socket.gethostname(), "pid": os.getpid(), "started": started_at(os.getpid())}
    assert mine == me | {"job": os.environ.get("SLURM_JOB_ID")}
    lock.write_text(json.dumps(mine | {"started": "1"}))  # its number went to another process
    assert claimed(lock) == (None, True)
    assert json.loads(lock.read_text()) == mine
    lock.write_text(json.dumps(mine | {"started": "1", "host": "elsewhere"}))
    held = f"a sweep on host elsewhere, process {os.getpid()}; if it is gone, remove {lock}"
    assert claimed(lock) == (held, False)
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
    assert claimed(lock) == (None, True)
