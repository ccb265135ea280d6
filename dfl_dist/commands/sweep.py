"""`dfl-dist sweep FILE`: the runs of a grid, one after the other, each in its own folder."""

import re
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tqdm import tqdm

from dfl_dist import run_folder
from dfl_dist.arguments import parse
from dfl_dist.commands import report
from dfl_dist.commands.options import split
from dfl_dist.commands.processes import Interrupt, caught, follow, hand_on
from dfl_dist.commands.sweep_cell import Place, State, claim, last_words, look, mark, prepare, rounds_recorded, start
from dfl_dist.config import ConfigError, refusal
from dfl_dist.grid import OF_THE_SWEEP, Cell, read_sweep, share
from dfl_dist.report.runs import read_run
from dfl_dist.tables import show

OPTIONS = {
    "ranks": "processes that each run is spread over (default: the file's)",
    "out": "the folder of the grid: each cell gets its own run folder in it (default: the file's)",
    "only": "K/N: the K-th of N equal shares, such as 2/4 for cells 2, 6, 10, …; so a cluster can share a grid",
    "cells": "only cells whose names match, such as 'osgp-*-seed0'",
}
BAR = "{n_fmt}/{total_fmt} rounds |{bar}|{postfix}"


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(help_text())
        return 0
    words = split(argv, OPTIONS, flags=("dry-run",))
    if len(words.plain) != 1:
        raise refusal("sweep", " ".join(words.plain) or "nothing", "one sweep file, such as configs/paper/mnist.yaml")
    own, over = words.own, parse(words.settings)
    for key in over.keys() & set(OF_THE_SWEEP):
        raise refusal(key, over[key], "nothing: the sweep resumes by itself what was interrupted")
    if not re.fullmatch(r"[1-9]\d*", own.get("ranks", "1")):
        raise refusal("ranks", own["ranks"], "a whole number, 1 or more")
    ranks = int(own["ranks"]) if "ranks" in own else None
    sweep = read_sweep(Path(words.plain[0]), over, out=own.get("out"), ranks=ranks)
    cells, place = pick(sweep.cells, own), Place(sweep.out, sweep.ranks)
    states = [look(cell, place.folder(cell)) for cell in cells]
    if words.flags:
        print("\n".join(dry_line(cell, place, state) for cell, state in zip(cells, states, strict=True)))
        return 0
    counts = ", ".join(f"{count} {state.value}" for state, count in Counter(states).items())
    print(f"{len(cells)} of {len(sweep.cells)} cells in {place.out}, {place.ranks} ranks each: {counts or 'none'}")
    make_folder(place.out)
    with caught() as interrupt:
        work = Work(cells, place, interrupt)
        work.run()
    print_table(sweep.cells, place)
    return tell_end(work, argv)


def help_text() -> str:
    return "\n".join(
        [
            "usage: dfl-dist sweep FILE [--ranks N] [--out FOLDER] [--only K/N] [--cells PATTERN] [--dry-run] "
            "[--KEY VALUE ...]",
            "",
            "The runs of a grid, one after the other through torchrun, each in its own folder. Finished ones are",
            "skipped, interrupted ones resumed; one that fails does not stop the rest. Started again, it goes on.",
            "",
            show(
                ["  --dry-run", "print the command of each cell, and what there is to do"],
                [[f"  --{key} V", text] for key, text in OPTIONS.items()],
            ),
            "",
            "Any setting of a run that the grid does not set may follow, for all cells: --rounds 5 --data.root /data.",
        ]
    )


def pick(cells: Sequence[Cell], own: dict[str, str]) -> list[Cell]:
    """The cells that are asked for."""
    pattern = own.get("cells", "*")
    found = [cell for cell in cells if fnmatchcase(cell.name, pattern)]
    if not found:
        raise refusal("cells", pattern, f"a pattern of names such as {cells[0].name}", [cell.name for cell in cells])
    number, _, of = own.get("only", "1/1").partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise refusal("only", own["only"], "K/N, K from 1 to N, such as 2/4")
    return share(found, int(number), int(of))


def dry_line(cell: Cell, place: Place, state: State) -> str:
    """A cell's state as a comment, and the command that a person could type instead."""
    command = shlex.join(["torchrun", *place.command(cell, state)])
    before = {State.BEGIN_ANEW: f"rm -r {shlex.quote(str(place.folder(cell)))} && ", State.FINISHED: "# "}
    return f"# {cell.name}: {state.value}\n{before.get(state, '')}{command}"


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
                    self.do(cell, f"[{number}/{len(self.cells)}] {cell.name}:")
        finally:
            if self.bar is not None:
                self.bar.close()

    def is_finished(self, cell: Cell) -> bool:
        return run_folder.is_finished(self.place.folder(cell), cell.resolved.rounds)

    def rounds_done(self, cell: Cell) -> int:
        return min(cell.resolved.rounds, rounds_recorded(self.place.folder(cell)))

    def left_after(self, cell: Cell) -> int:
        """The rounds that the cells after this one had left when the sweep began."""
        return sum(self.left[self.cells.index(cell) + 1 :])

    def say(self, text: str) -> None:
        if self.bar is not None:
            self.bar.write(text)
        else:
            print(text, flush=True)

    def do(self, cell: Cell, title: str) -> None:
        """A cell, unless it is finished or somebody else has it."""
        folder, lock = self.place.folder(cell), self.place.lock(cell)
        try:
            if self.is_finished(cell):
                self.say(f"{title} is finished already, accuracy {accuracy(folder)}")
            elif holder := claim(lock, folder):
                self.taken.append(cell)
                self.say(f"{title} is left to {holder}")
            else:
                try:
                    self.do_mine(cell, title)
                finally:
                    lock.unlink(missing_ok=True)
        except (ConfigError, OSError) as error:
            self.failed.append(cell)
            self.say(f"{title} failed: {error}")

    def do_mine(self, cell: Cell, title: str) -> None:
        """Run a cell to its end."""
        folder, log, began = self.place.folder(cell), self.place.log(cell), time.monotonic()
        state = look(cell, folder)  # as it is now that nobody else is at it
        prepare(cell, folder, state)
        done, offset = self.rounds_done(cell), log.stat().st_size if log.exists() else 0

        def pace() -> Pace:
            return self.pace.add(self.rounds_done(cell) - done, time.monotonic() - began)

        self.say(f"{title} {'goes on' if state is State.TO_RESUME else 'begins'}, see {log}")
        process = start(cell, self.place, state)

        def stop(number: int) -> None:
            hand_on(process, number)
            self.say("stopping after the present round; Ctrl-C again ends it at once")

        follow(process, mark(folder), self.interrupt, stop=stop, show=lambda: self.show(cell, pace()))
        seconds = f"{time.monotonic() - began:.1f} s"
        if self.is_finished(cell):
            self.pace = pace()
            eta = self.pace.eta(self.left_after(cell))
            self.say(f"{title} finished, accuracy {accuracy(folder)}, {seconds}{eta}")
        elif self.interrupt.number is not None or run_folder.is_finished(folder, self.rounds_done(cell)):
            self.say(f"{title} stopped after round {self.rounds_done(cell)} of {cell.resolved.rounds}")
        else:
            self.failed.append(cell)
            words = "".join(f"\n    {line}" for line in last_words(log, offset))
            self.say(f"{title} failed, {seconds}{self.pace.eta(self.left_after(cell))}, see {log}{words}")

    def show(self, cell: Cell, pace: Pace) -> None:
        """Move the bar to where the grid is."""
        if self.bar is not None:
            before = self.cells[: self.cells.index(cell)]
            self.bar.n = sum(other.resolved.rounds for other in before) + self.rounds_done(cell)
            left = cell.resolved.rounds - self.rounds_done(cell) + self.left_after(cell)
            self.bar.set_postfix_str(f"{cell.name}{pace.eta(left)}")


def make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out: given {out}, which cannot be made: {error}") from error


def accuracy(folder: Path) -> str:
    """The mean model's last one."""
    scores = [line["test_accuracy"] for line in read_run(folder).evaluated]
    return "-" if not scores or scores[-1] is None else f"{scores[-1]:.2%}"


def print_table(cells: Sequence[Cell], place: Place) -> None:
    """Print the table of the grid, as far as it is there."""
    if runs := [str(folder) for folder in map(place.folder, cells) if rounds_recorded(folder)]:
        print()
        report.main(runs)
        print()


def tell_end(work: Work, argv: Sequence[str]) -> int:
    """Say how the sweep ended, and how to go on; returns the exit code."""
    print(f"{sum(map(work.is_finished, work.cells))} of {len(work.cells)} cells are finished")
    if taken := [cell.name for cell in work.taken if not work.is_finished(cell)]:
        print(f"left to other sweeps: {', '.join(taken)}")
    if work.failed:
        print(f"failed: {', '.join(cell.name for cell in work.failed)}")
    if work.interrupt.number is not None:
        reason = signal.Signals(work.interrupt.number).name
        print(f"stopped by {reason}; go on with: dfl-dist sweep {shlex.join(argv)}")
        return 128 + work.interrupt.number
    return 1 if work.failed else 0
