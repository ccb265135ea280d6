"""The cells of a sweep, run one after the other, each in its own folder."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tqdm import tqdm

from dfl_dist.errors import ConfigError, refusal
from dfl_dist.launcher.processes import kill_marked
from dfl_dist.report.read import read_run
from dfl_dist.run_folder.folder import is_finished
from dfl_dist.signals import Interrupt
from dfl_dist.sweep.cells import Place, State, find_state, last_lines, mark_of, prepare, rounds_recorded, start
from dfl_dist.sweep.grid import Cell, share_of
from dfl_dist.sweep.locks import claim

BAR = "{n_fmt}/{total_fmt} rounds |{bar}|{postfix}"


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
class Pace:
    """How fast cells were, for an estimate of the rest."""

    rounds: int = 0
    seconds: float = 0.0

    def add(self, rounds: int, seconds: float) -> "Pace":
        return Pace(self.rounds + rounds, self.seconds + seconds)

    def eta(self, rounds_left: int) -> str:
        if self.rounds <= 0 or rounds_left <= 0:
            return ""
        seconds = round(self.seconds / self.rounds * rounds_left)
        return f", ETA {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


class Work:
    """The cells of a sweep, worked off one after the other."""

    def __init__(self, cells: Sequence[Cell], place: Place, interrupt: Interrupt) -> None:
        self.cells, self.place, self.interrupt = cells, place, interrupt
        self.failed: list[Cell] = []
        self.taken: list[Cell] = []  # by other sweeps
        self.pace = Pace()  # of the cells finished in this sweep
        self.left = [cell.resolved.rounds - self.rounds_done(cell) for cell in cells]
        rounds, watched = sum(cell.resolved.rounds for cell in cells), sys.stderr.isatty()
        self.bar = tqdm(total=rounds, bar_format=BAR, dynamic_ncols=True, leave=False) if watched else None

    def run(self) -> None:
        try:
            for number, cell in enumerate(self.cells, start=1):
                if self.interrupt.number is None:
                    self.run_cell(cell, f"[{number}/{len(self.cells)}] {cell.name}:")
        finally:
            if self.bar is not None:
                self.bar.close()

    def is_finished(self, cell: Cell) -> bool:
        return is_finished(self.place.folder(cell), cell.resolved.rounds)

    def rounds_done(self, cell: Cell) -> int:
        return min(cell.resolved.rounds, rounds_recorded(self.place.folder(cell)))

    def left_after(self, cell: Cell) -> int:
        """The rounds that the cells after this one had left when the sweep began."""
        return sum(self.left[self.cells.index(cell) + 1 :])

    def report(self, text: str) -> None:
        if self.bar is not None:
            self.bar.write(text)
        else:
            print(text, flush=True)

    def run_cell(self, cell: Cell, title: str) -> None:
        """Run a cell, unless it is finished or another sweep has it."""
        folder, lock = self.place.folder(cell), self.place.lock(cell)
        try:
            if self.is_finished(cell):
                self.report(f"{title} is finished already, accuracy {accuracy(folder)}")
            elif holder := claim(lock, lambda: kill_marked(mark_of(folder))):  # ranks outlive a sweep that was killed
                self.taken.append(cell)
                self.report(f"{title} is left to {holder}")
            else:
                try:
                    self.run_claimed(cell, title)
                finally:
                    lock.unlink(missing_ok=True)
        except (ConfigError, OSError) as error:
            self.failed.append(cell)
            self.report(f"{title} failed: {error}")

    def run_claimed(self, cell: Cell, title: str) -> None:
        """Run a cell to its end."""
        folder, log, began = self.place.folder(cell), self.place.log(cell), time.monotonic()
        state = find_state(cell, folder)  # as it is now that nobody else is at it
        prepare(cell, folder, state)
        done, offset = self.rounds_done(cell), log.stat().st_size if log.exists() else 0

        def pace() -> Pace:
            return self.pace.add(self.rounds_done(cell) - done, time.monotonic() - began)

        self.report(f"{title} {'goes on' if state is State.TO_RESUME else 'begins'}, see {log}")
        job = start(cell, self.place, state)

        def on_signal(number: int) -> None:
            job.stop(number)
            self.report("stopping after the current round; Ctrl-C again ends it at once")

        job.wait(self.interrupt, on_signal=on_signal, on_poll=lambda: self.update_bar(cell, pace()))
        seconds = f"{time.monotonic() - began:.1f} s"
        if self.is_finished(cell):
            self.pace = pace()
            eta = self.pace.eta(self.left_after(cell))
            self.report(f"{title} finished, accuracy {accuracy(folder)}, {seconds}{eta}")
        elif self.interrupt.number is not None or is_finished(folder, self.rounds_done(cell)):
            self.report(f"{title} stopped after round {self.rounds_done(cell)} of {cell.resolved.rounds}")
        else:
            self.failed.append(cell)
            words = "".join(f"\n    {line}" for line in last_lines(log, offset))
            self.report(f"{title} failed, {seconds}{self.pace.eta(self.left_after(cell))}, see {log}{words}")

    def update_bar(self, cell: Cell, pace: Pace) -> None:
        """Move the bar to where the grid is."""
        if self.bar is not None:
            before = self.cells[: self.cells.index(cell)]
            self.bar.n = sum(other.resolved.rounds for other in before) + self.rounds_done(cell)
            left = cell.resolved.rounds - self.rounds_done(cell) + self.left_after(cell)
            self.bar.set_postfix_str(f"{cell.name}{pace.eta(left)}")


def accuracy(folder: Path) -> str:
    """The last accuracy of the mean model, for people."""
    scores = [line["test_accuracy"] for line in read_run(folder).evaluated]
    return "-" if not scores or scores[-1] is None else f"{scores[-1]:.2%}"
