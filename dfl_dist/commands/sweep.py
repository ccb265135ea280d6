"""`dfl-dist sweep FILE`: the runs of a grid, one after the other or several at a time, each in its own folder."""

import re
import shlex
from collections import Counter
from collections.abc import Sequence

from dfl_dist.commands import report
from dfl_dist.commands.options import Words, split
from dfl_dist.config.parse import parse
from dfl_dist.config.shipped import find_config
from dfl_dist.errors import refusal
from dfl_dist.launcher.launch import make_folder
from dfl_dist.signals import name_signal, signals_caught
from dfl_dist.sweep.at_a_time import count_jobs
from dfl_dist.sweep.cells import Place, State, check_place, find_state, rounds_recorded
from dfl_dist.sweep.grid import OF_THE_SWEEP, Cell, Sweep, read_sweep
from dfl_dist.sweep.page import GridPage
from dfl_dist.sweep.work import Work, pick
from dfl_dist.text import help_page

OPTIONS = {
    "ranks": "processes that each run is divided over (default: the file's)",
    "out": "the folder of the grid: each cell gets its own run folder in it (default: the file's)",
    "jobs": "runs at a time (default: 1), or auto: as many as there are cores for, on a host with GPUs one",
    "only": "K/N: the K-th of N equal shares, such as 2/4 for cells 2, 6, 10, …; so a cluster can share a grid",
    "cells": "only cells whose names match, such as 'osgp-*-seed0'",
}


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(help_text())
        return 0
    words = split(argv, OPTIONS, flags=("dry-run",))
    with signals_caught() as interrupt:
        sweep = read(words)
        cells, place = pick(sweep.cells, words.own), Place(sweep.out, sweep.ranks)
        jobs = count_jobs(words.own.get("jobs", "1"), cells, sweep.ranks)
        check_place(place, cells)
        states = [find_state(cell, place.folder(cell)) for cell in cells]
        if words.flags:
            print("\n".join(dry_line(cell, place, state) for cell, state in zip(cells, states, strict=True)))
            return 0
        how = f"{place.ranks} ranks each" + (f", {jobs} at a time" if "jobs" in words.own else "")
        print(f"{len(cells)} of {len(sweep.cells)} cells in {place.out}, {how}: {count(states)}", flush=True)
        make_folder("out", place.out)
        page = GridPage(place.out, [cell.name for cell in sweep.cells])
        work = Work(cells, place, interrupt, jobs, page)
        work.run()
        if print_table(sweep.cells, place):
            print(page.finish(interrupt))
        return print_end(work, argv)


def read(words: Words) -> Sweep:
    """The grid that the command line asks for."""
    if len(words.plain) != 1:
        allowed = "one sweep file, or the name of one that comes with the package, such as paper/mnist"
        raise refusal("sweep", " ".join(words.plain) or "nothing", allowed)
    own, over = words.own, parse(words.settings)
    for key in over.keys() & set(OF_THE_SWEEP):
        raise refusal(key, over[key], "nothing: the sweep resumes by itself what was interrupted")
    if not re.fullmatch(r"[1-9]\d*", own.get("ranks", "1")):
        raise refusal("ranks", own["ranks"], "a whole number, 1 or more")
    ranks = int(own["ranks"]) if "ranks" in own else None
    return read_sweep(find_config("sweep", words.plain[0]), over, out=own.get("out"), ranks=ranks)


def help_text() -> str:
    return help_page(
        "usage: dfl-dist sweep FILE|NAME [--ranks N] [--out FOLDER] [--jobs N|auto] [--only K/N] [--cells PATTERN] "
        "[--dry-run] [--KEY VALUE ...]",
        "The runs of a grid, one after the other or --jobs at a time, each on several ranks and in its own folder. "
        "Finished ones are skipped, interrupted ones resumed; one that fails does not stop the rest. Started again, "
        "it goes on. Results do not depend on --jobs, not by a bit; only the seconds do. After each run, report.html "
        "in the folder of the grid compares all that have been done.",
        {"--dry-run": "print the command of each cell, and what there is to do"}
        | {f"--{key} V": text for key, text in OPTIONS.items()},
        "Any setting of a run that the grid does not set may follow, for all cells: --rounds 5 --data.root /data.",
    )


def count(states: Sequence[State]) -> str:
    return ", ".join(f"{number} {state.value}" for state, number in Counter(states).items()) or "none"


def dry_line(cell: Cell, place: Place, state: State) -> str:
    """A cell's state as a comment, and the command that a person could type instead."""
    command = place.program(cell, state).command_line()
    before = {State.BEGIN_ANEW: f"rm -r {shlex.quote(str(place.folder(cell)))} && ", State.FINISHED: "# "}
    return f"# {cell.name}: {state.value}\n{before.get(state, '')}{command}"


def print_table(cells: Sequence[Cell], place: Place) -> bool:
    """Print the table of the grid, as far as it is there; whether it has a row."""
    runs = [str(folder) for folder in map(place.folder, cells) if rounds_recorded(folder)]
    if runs:
        print()
        report.main(runs)
        print(flush=True)
    return bool(runs)


def print_end(work: Work, argv: Sequence[str]) -> int:
    """Print how the sweep ended, and how to go on; returns the exit code."""
    print(f"{sum(map(work.is_finished, work.cells))} of {len(work.cells)} cells are finished")
    if taken := [cell.name for cell in work.taken if not work.is_finished(cell)]:
        print(f"left to other sweeps: {', '.join(taken)}")
    if failed := [cell.name for cell in work.cells if cell in work.failed]:
        print(f"failed: {', '.join(failed)}")
    if work.interrupt.number is not None:
        print(f"stopped by {name_signal(work.interrupt.number)}; go on with: dfl-dist sweep {shlex.join(argv)}")
        return 128 + work.interrupt.number
    return 1 if work.failed else 0
