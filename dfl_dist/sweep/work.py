"""The cells of a sweep, run one after the other or several at a time, each in its own folder."""

import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NoReturn

from tqdm import tqdm

from dfl_dist.errors import ConfigError, refusal
from dfl_dist.launcher.jobs import Job
from dfl_dist.run_folder.folder import is_finished
from dfl_dist.run_folder.status import FAILED, REFUSED
from dfl_dist.signals import Interrupt
from dfl_dist.sweep.cells import (
    Place,
    State,
    find_state,
    last_accuracy,
    last_lines,
    prepare,
    rounds_recorded,
    start,
    write_last_words,
)
from dfl_dist.sweep.grid import Cell, share_of
from dfl_dist.sweep.locks import Held, claim
from dfl_dist.sweep.pace import Pace, longest_row
from dfl_dist.sweep.page import GridPage

BAR = "{n_fmt}/{total_fmt} rounds |{bar}|{postfix}"
POLL_S = 0.1
BAR_EVERY_S = 0.5
GONE_WITHIN_S = 30.0  # the kernel removes a killed process, unless a disk or a driver holds it


def pick(cells: Sequence[Cell], own: dict[str, str]) -> list[Cell]:
    """The cells that are asked for."""
    pattern = own.get("cells", "*")
    found = [cell for cell in cells if fnmatchcase(cell.name, pattern)]
    if not found:
        raise refusal("cells", pattern, f"a pattern of names such as {cells[0].name}", [cell.name for cell in cells])
    number, _, of = own.get("only", "1/1").partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise refusal("only", own["only"], "K/N, K from 1 to N, such as 2/4")
    return share_of(found, int(number), int(of))


@dataclass(frozen=True)
class AtWork:
    """A cell whose ranks were started."""

    cell: Cell
    title: str
    lock: Held
    job: Job
    began: float  # on the monotonic clock
    rounds_before: int  # recorded when it was started
    offset: int  # in its log, where this start begins

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


class Work:
    """The cells of a sweep, worked off up to `jobs` at a time.

    Their ranks are forked from this process, which must keep to one thread for that.
    """

    def __init__(
        self, cells: Sequence[Cell], place: Place, interrupt: Interrupt, jobs: int = 1, page: GridPage | None = None
    ) -> None:
        self.cells, self.place, self.interrupt, self.jobs, self.page = cells, place, interrupt, jobs, page
        self.waiting = deque((f"[{number}/{len(cells)}] {cell.name}:", cell) for number, cell in enumerate(cells, 1))
        self.at_work: list[AtWork] = []
        self.failed: list[Cell] = []
        self.taken: list[Cell] = []  # by other sweeps
        self.stopping = False
        self.pace = Pace()  # of the cells finished in this sweep
        self.left = {cell.name: self.rounds_left(cell) for cell in cells}  # when the sweep began
        self.bar = make_bar(sum(cell.resolved.rounds for cell in cells)) if sys.stderr.isatty() else None
        self.bar_moved = 0.0

    def run(self) -> None:
        try:
            while self.waiting or self.at_work:
                self.heed_signals()
                self.begin_cells()
                self.move_bar()
                if self.page is not None:
                    self.page.tend()
                if self.at_work:
                    time.sleep(POLL_S)
                self.end_cells()
        finally:
            self.abandon()
            if self.page is not None:
                self.page.abandon()
            if self.bar is not None:
                self.bar.close()

    def is_finished(self, cell: Cell) -> bool:
        return is_finished(self.place.folder(cell), cell.resolved.rounds)

    def rounds_done(self, cell: Cell) -> int:
        return min(cell.resolved.rounds, rounds_recorded(self.place.folder(cell)))

    def rounds_left(self, cell: Cell) -> int:
        return cell.resolved.rounds - self.rounds_done(cell)

    def report(self, text: str) -> None:
        if self.bar is not None:
            self.bar.write(text)
        else:
            print(text)
        sys.stdout.flush()  # a process that is forked has a copy of what waits to be written

    def fail(self, cell: Cell, text: str) -> None:
        self.failed.append(cell)
        self.report(text)

    # Ends that were asked for.

    def heed_signals(self) -> None:
        """After a signal nothing more is begun and what runs ends after its round; after a second Ctrl-C, at once."""
        if (number := self.interrupt.number) is None:
            return
        self.waiting.clear()
        if self.interrupt.at_once:
            for one in self.at_work:
                one.job.kill()
        elif self.at_work and not self.stopping:
            self.stopping = True
            goes_on = [one.job.stop(number) for one in self.at_work]  # to the end of its round, if it has begun
            if any(goes_on):
                self.report("stopping after the current round; Ctrl-C again ends it at once")

    def abandon(self) -> None:
        """After an error of our own: leave nothing running, and no lock of what has ended."""
        for one in self.at_work:
            one.job.kill()
        end = time.monotonic() + GONE_WITHIN_S
        for one in self.at_work:
            while one.job.poll() is None and time.monotonic() < end:
                time.sleep(0.01)
            one.lock.release()

    # How a cell begins.

    def begin_cells(self) -> None:
        while self.waiting and len(self.at_work) < self.jobs and self.interrupt.number is None:
            title, cell = self.waiting.popleft()
            try:
                self.begin(cell, title)
            except (ConfigError, OSError) as error:
                self.fail(cell, f"{title} failed: {error}")

    def begin(self, cell: Cell, title: str) -> None:
        """Start a cell, unless it is finished or another sweep has it."""
        if self.is_finished(cell):
            self.report(f"{title} is finished already, accuracy {last_accuracy(self.place.folder(cell))}")
        elif isinstance(lock := claim(self.place.lock(cell)), str):
            self.taken.append(cell)
            self.report(f"{title} is left to {lock}")
        else:
            try:
                self.at_work.append(self.start_claimed(cell, title, lock))
            except BaseException:
                lock.release()
                raise

    def start_claimed(self, cell: Cell, title: str, lock: Held) -> AtWork:
        """Start the ranks of a cell that nobody else is at."""
        folder, log, began = self.place.folder(cell), self.place.log(cell), time.monotonic()
        state = find_state(cell, folder)  # as it is now
        prepare(cell, folder, state)
        done, offset = self.rounds_done(cell), log.stat().st_size if log.exists() else 0
        self.report(f"{title} {'goes on' if state is State.TO_RESUME else 'begins'}, see {log}")
        return AtWork(cell, title, lock, start(cell, self.place, state), began, done, offset)

    # How a cell ends.

    def end_cells(self) -> None:
        for one in [one for one in self.at_work if one.job.poll() is not None]:
            self.at_work.remove(one)
            try:
                self.tell_end(one)
            except OSError as error:
                self.fail(one.cell, f"{one.title} failed: {error}")
            finally:
                one.lock.release()
            if self.page is not None:
                self.page.refresh()

    def tell_end(self, one: AtWork) -> None:
        """Report what became of a cell."""
        cell, seconds, done = one.cell, f"{one.seconds:.1f} s", self.rounds_done(one.cell)
        folder, log = self.place.folder(cell), self.place.log(cell)
        if self.is_finished(cell):
            self.pace = self.with_pace_of(one, self.pace)
            self.report(f"{one.title} finished, accuracy {last_accuracy(folder)}, {seconds}{self.eta(self.pace)}")
        elif one.job.told.ending not in (FAILED, REFUSED) and (self.interrupt.number or is_finished(folder, done)):
            self.report(f"{one.title} stopped after round {done} of {cell.resolved.rounds}")
        else:
            write_last_words(log, one.job)
            words = "".join(f"\n    {line}" for line in last_lines(log, one.offset))
            self.fail(cell, f"{one.title} failed, {seconds}{self.eta(self.pace)}, see {log}{words}")

    # How far it is.

    def with_pace_of(self, one: AtWork, pace: Pace) -> Pace:
        return pace.add(self.rounds_done(one.cell) - one.rounds_before, one.seconds)

    def eta(self, pace: Pace) -> str:
        """How long the rest takes at a pace."""
        return pace.eta(longest_row(*self.rounds_to_do(), self.jobs))

    def rounds_to_do(self) -> tuple[list[int], list[int]]:
        """What the cells at work have left, and those that wait."""
        at_work = [self.rounds_left(one.cell) for one in self.at_work]
        return at_work, [self.left[cell.name] for _, cell in self.waiting]

    def move_bar(self) -> None:
        """Move the bar to where the grid is; what will not be done in this sweep counts as done."""
        if self.bar is None or not self.at_work or time.monotonic() < self.bar_moved + BAR_EVERY_S:
            return
        self.bar_moved, pace = time.monotonic(), self.pace
        for one in self.at_work:
            pace = self.with_pace_of(one, pace)
        self.bar.n = sum(cell.resolved.rounds for cell in self.cells) - sum(map(sum, self.rounds_to_do()))
        others = f" and {len(self.at_work) - 1} more" if len(self.at_work) > 1 else ""
        self.bar.set_postfix_str(f"{self.at_work[0].cell.name}{others}{self.eta(pace)}")


def make_bar(rounds: int) -> "tqdm[NoReturn]":
    """A progress bar without the thread and the semaphore that it makes by default: this process forks."""
    tqdm.monitor_interval = 0
    tqdm.set_lock(threading.RLock())
    return tqdm(total=rounds, bar_format=BAR, dynamic_ncols=True, leave=False)
