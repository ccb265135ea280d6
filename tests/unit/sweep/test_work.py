"""Working off the cells of a sweep, one or several at a time, with ranks that only pretend to train."""

import json
import re
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest
from tqdm import tqdm

from dfl_dist.launcher.jobs import Program
from dfl_dist.launcher.news import Told
from dfl_dist.run_folder.status import FAILED
from dfl_dist.signals import Interrupt
from dfl_dist.sweep import cells as cells_of_sweep
from dfl_dist.sweep import work as work_of_sweep
from dfl_dist.sweep.cells import Place
from dfl_dist.sweep.grid import Cell, read_sweep
from dfl_dist.sweep.work import Work

ROUNDS = 6
SWEEP = f"out: out\nranks: 1\nsettings: {{num_clients: 2, rounds: {ROUNDS}}}\ngrid: {{seed: [0, 1, 2, 3, 4]}}\n"


@dataclass
class Pretended:
    """A job of the launcher that does a round each time it is asked whether it has ended."""

    folder: Path
    others: "list[Pretended]"
    fails: bool = False
    deaf: bool = False  # to a request to stop
    rounds: int = 0
    last: int = ROUNDS  # the round after which it ends
    code: int | None = None
    at_once: int = 0  # jobs that ran together with this one, itself included
    told: Told = field(default_factory=Told)

    def poll(self) -> int | None:
        if self.code is None:
            self.at_once = max(self.at_once, sum(other.code is None for other in self.others))
            self.rounds += 1
            line = {"round": self.rounds - 1, "test_accuracy": self.rounds / 10}
            with (self.folder / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            if self.fails and self.rounds == 2:
                self.told.ending, self.code = FAILED, 1
            elif self.rounds == self.last:
                (self.folder / "environment.json").write_text(json.dumps({"finished_after": self.rounds}))
                self.code = 0
        return self.code

    def stop(self, number: int) -> bool:
        assert self.last == ROUNDS, "asked twice"
        if self.rounds == 0:
            self.kill()
        elif not self.deaf:
            self.last = self.rounds + 2
        return self.rounds > 0

    def kill(self) -> None:
        self.code = -signal.SIGKILL if self.code is None else self.code


@dataclass
class Grid:
    """A grid, and what was started of it."""

    place: Place
    cells: list[Cell]
    interrupt: Interrupt = field(default_factory=Interrupt)
    started: list[Pretended] = field(default_factory=list)
    fails: tuple[int, ...] = ()
    deaf: bool = False

    def start(self, program: Program, *, environment: Mapping[str, str], output: IO[str]) -> Pretended:
        folder = Path(program.arguments[-1])
        job = Pretended(folder, self.started, fails=int(folder.name[-1]) in self.fails, deaf=self.deaf)
        self.started.append(job)
        return job

    def run(self, jobs: int) -> Work:
        work = Work(self.cells, self.place, self.interrupt, jobs)
        work.run()
        return work

    def after(self, polls: int, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
        """Do something after so many looks at what runs."""
        looks = iter(range(1, 1000))
        monkeypatch.setattr(work_of_sweep.time, "sleep", lambda _: act() if next(looks) == polls else None)

    def locks(self) -> list[str]:
        return [path.name for path in self.place.out.glob("*.lock")]


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Grid:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.yaml").write_text(SWEEP)
    sweep = read_sweep(tmp_path / "g.yaml", {})
    sweep.out.mkdir()
    grid = Grid(Place(sweep.out, sweep.ranks), sweep.cells)
    monkeypatch.setattr(cells_of_sweep.jobs, "start", grid.start)
    monkeypatch.setattr(work_of_sweep, "POLL_S", 0.0)
    return grid


@pytest.mark.parametrize(("jobs", "together"), [(1, [1, 1, 1, 1, 1]), (3, [3, 3, 3, 2, 2])])
def test_so_many_run_at_a_time_and_each_is_told_of(
    grid: Grid, jobs: int, together: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    work = grid.run(jobs)
    assert [job.at_once for job in grid.started] == together
    assert all(map(work.is_finished, grid.cells))
    assert not grid.locks()
    told = capsys.readouterr().out.splitlines()
    for number, cell in enumerate(grid.cells, start=1):
        first = told.index(f"[{number}/5] {cell.name}: begins, see out/{cell.name}.log")
        last = rf"\[{number}/5\] {cell.name}: finished, accuracy 60\.00%, \d+\.\d s(, ETA 00:00:0\d)?"
        assert any(re.fullmatch(last, line) for line in told[first:])
    assert len(told) == 10
    assert sum("ETA" in line for line in told) == {1: 4, 3: 3}[jobs], "as long as there is more to do"


def test_one_that_fails_stops_neither_those_beside_it_nor_those_after_it(
    grid: Grid, capsys: pytest.CaptureFixture[str]
) -> None:
    grid.fails = (1, 2)
    work = grid.run(2)
    assert [cell.name for cell in work.failed] == ["seed1", "seed2"]
    assert [work.is_finished(cell) for cell in grid.cells] == [True, False, False, True, True]
    assert "[2/5] seed1: failed, 0.0 s" in capsys.readouterr().out
    assert not grid.locks()


def test_a_signal_stops_all_that_run_after_their_round_and_nothing_more_begins(
    grid: Grid, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grid.after(3, lambda: grid.interrupt.remember(signal.SIGTERM, None), monkeypatch)
    work = grid.run(3)
    assert [job.rounds for job in grid.started] == [5, 5, 5]
    assert not work.failed
    out = capsys.readouterr().out
    assert out.count("stopping after the current round; Ctrl-C again ends it at once\n") == 1
    assert re.findall(r"\] (\w+): stopped after round 5 of 6\n", out) == ["seed0", "seed1", "seed2"]
    assert not grid.locks()


def test_what_has_not_begun_is_not_waited_for(
    grid: Grid, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Pretended, "poll", lambda job: job.code)  # its rounds do not begin
    grid.after(2, lambda: grid.interrupt.remember(signal.SIGINT, None), monkeypatch)
    work = grid.run(2)
    out = capsys.readouterr().out
    assert "current round" not in out
    assert out.count(": stopped after round 0 of 6\n") == 2
    assert not work.failed


def test_a_second_ctrl_c_ends_all_at_once(
    grid: Grid, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def press() -> None:
        grid.interrupt.remember(signal.SIGINT, None)
        grid.interrupt.remember(signal.SIGINT, None)

    grid.deaf = True
    grid.after(2, press, monkeypatch)
    work = grid.run(2)
    assert [job.code for job in grid.started] == [-signal.SIGKILL] * 2
    assert capsys.readouterr().out.count(": stopped after round 2 of 6\n") == 2
    assert not work.failed
    assert not grid.locks()


def test_a_failure_is_one_also_while_all_are_stopped(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    grid.deaf, grid.fails = True, (0,)
    grid.after(1, lambda: grid.interrupt.remember(signal.SIGINT, None), monkeypatch)
    assert [cell.name for cell in grid.run(2).failed] == ["seed0"]


def test_an_error_of_our_own_leaves_nothing_running_and_no_lock(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    grid.after(2, fail, monkeypatch)
    with pytest.raises(ZeroDivisionError):
        grid.run(2)
    assert [job.code for job in grid.started] == [-signal.SIGKILL] * 2
    assert not grid.locks()


def test_a_cell_that_cannot_be_started_is_free_for_others(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(cells_of_sweep.jobs, "start", refuse)
    assert grid.run(2).failed == grid.cells
    assert not grid.locks()


def test_a_cell_that_another_sweep_is_at_is_left_to_it(grid: Grid) -> None:
    holder = {"host": "elsewhere", "pid": 1, "started": "1", "job": None}
    grid.place.lock(grid.cells[1]).write_text(json.dumps(holder))
    work = grid.run(2)
    assert [cell.name for cell in work.taken] == ["seed1"]
    assert [job.folder.name for job in grid.started] == ["seed0", "seed2", "seed3", "seed4"]
    assert grid.locks() == ["seed1.lock"]


# The bar.


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody looks at the screen."""
    monkeypatch.setattr(work_of_sweep.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(work_of_sweep, "BAR_EVERY_S", 0.0)
    monkeypatch.setattr(tqdm, "monitor", None)


@pytest.mark.usefixtures("watched")
def test_the_bar_counts_the_rounds_of_all_cells_without_a_thread(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, str]] = []
    before = threading.enumerate()
    grid.fails = (1,)
    work = Work(grid.cells, grid.place, grid.interrupt, 2)
    bar = work.bar
    assert bar is not None
    monkeypatch.setattr(bar, "set_postfix_str", lambda text: seen.append((int(bar.n), text.partition(",")[0])))
    work.run()
    assert threading.enumerate() == before
    two = "seed0 and 1 more"
    assert seen[:3] == [(0, two), (2, two), (8, two)], "2 rounds of the first, and all 6 of the one that failed"
    assert [count for count, _ in seen] == sorted(count for count, _ in seen)
    assert seen[-1] == (29, "seed4")
