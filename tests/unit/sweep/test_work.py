"""Working off the cells of a sweep: what an earlier one left running is ended first."""

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dfl_dist.launcher.processes import Processes, start
from dfl_dist.signals import Interrupt
from dfl_dist.sweep.cells import Place, mark_of
from dfl_dist.sweep.grid import Cell, read_sweep
from dfl_dist.sweep.work import Work

SWEEP = "out: out\nranks: 1\ngrid: {seed: [0, 1]}\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Place, list[Cell]]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.yaml").write_text(SWEEP)
    sweep = read_sweep(tmp_path / "g.yaml", {})
    sweep.out.mkdir()
    return Place(sweep.out, sweep.ranks), sweep.cells


@contextmanager
def idle(mark: str) -> Iterator[Processes]:
    """A process that does nothing, found by a mark."""
    job = start([sys.executable, "-c", "import time; time.sleep(60)"], mark, dict(os.environ))
    try:
        yield job
    finally:
        job.first.kill()
        job.first.wait(timeout=10)


def test_processes_that_outlived_their_sweep_are_ended_before_their_cell_goes_on(
    place: tuple[Place, list[Cell]], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, (cell, other) = place
    dead = {"host": socket.gethostname(), "pid": os.getpid(), "started": "1", "job": None}
    where.lock(cell).write_text(json.dumps(dead))
    with idle(mark_of(where.folder(cell))) as left, idle(mark_of(where.folder(other))) as of_another:
        seen: list[int | None] = []
        monkeypatch.setattr(Work, "run_claimed", lambda *_: seen.append(left.first.poll()))
        Work([cell], where, Interrupt()).run()
        assert seen == [-signal.SIGKILL]
        assert of_another.first.poll() is None


def test_the_processes_of_a_cell_are_found_by_its_folder(
    place: tuple[Place, list[Cell]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a later sweep, which knows only the folder, finds them too."""
    from dfl_dist.sweep import cells

    where, (cell, _) = place
    marks: list[str] = []
    monkeypatch.setattr(cells, "start_ranks", lambda program, *, mark, **_: marks.append(mark))
    cells.start(cell, where, cells.State.TO_DO)
    assert marks == [mark_of(where.folder(cell))]
