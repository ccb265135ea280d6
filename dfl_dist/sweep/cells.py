"""One cell of a sweep: what its folder holds, what there is to do in it, its ranks."""

import enum
import json
import os
import secrets
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dfl_dist.config.values import ask, changed_on_resume, load_asked, load_resolved, values_of
from dfl_dist.errors import ConfigError, refusal
from dfl_dist.launcher import jobs
from dfl_dist.launcher.jobs import TRAINER, Job, Meeting, Program
from dfl_dist.launcher.launch import INTERFACES
from dfl_dist.report.read import check_format
from dfl_dist.run_folder import checkpoint
from dfl_dist.run_folder.files import read_lines
from dfl_dist.run_folder.folder import CELL, is_finished, is_of_a_run, is_run, read_environment
from dfl_dist.run_folder.status import COMMAND, LAUNCH
from dfl_dist.sweep.grid import Cell
from dfl_dist.sweep.locks import GUARD
from dfl_dist.sweep.page import NAME as PAGE

LINES_SHOWN = 5  # of the log of a cell that failed


class State(enum.Enum):
    TO_DO = "to do"
    BEGIN_ANEW = "to begin again, for want of a checkpoint"
    TO_RESUME = "to resume"
    FINISHED = "finished"


@dataclass(frozen=True)
class Place:
    """Where the runs of a grid are kept, and on how many ranks they are run."""

    out: Path
    ranks: int

    def folder(self, cell: Cell) -> Path:
        return self.out / cell.name

    def log(self, cell: Cell) -> Path:
        return self.out / f"{cell.name}.log"

    def lock(self, cell: Cell) -> Path:
        return self.out / f"{cell.name}.lock"

    def program(self, cell: Cell, state: State) -> Program:
        where = "--resume" if state is State.TO_RESUME else "--out"
        return Program(TRAINER, [*cell.arguments, where, str(self.folder(cell))], self.ranks)


def check_place(place: Place, cells: Sequence[Cell]) -> None:
    """Refuse files with the names of the page and of the cells' logs in a folder that no sweep has written to."""
    for path in (place.out / PAGE, *map(place.log, cells)):
        if os.path.lexists(path) and not (place.out / GUARD).exists():
            given = f"{place.out}, which holds {path.name}, written by no sweep"
            raise refusal("out", given, "a folder without it, or that of a sweep")


def find_state(cell: Cell, folder: Path) -> State:
    """What there is to do in a cell's folder; refused where it holds something else than this cell's run."""
    begun, rounds = (folder / CELL).is_file(), cell.resolved.rounds
    others = sorted(path.name for path in folder.iterdir() if path.name != CELL) if folder.is_dir() else []
    if not is_run(folder):
        if others and (not begun or checkpoint.complete(folder)):
            raise refusal("out", folder, "a new folder, or one with this cell's run; it holds other files")
        return begin_anew(folder, others) if others else State.TO_DO
    check_format("out", folder)
    found, asked = values_of(load_resolved(folder / "resolved.yaml")), values_of(cell.resolved)
    before, now = load_asked(folder / "config.yaml"), ask(cell.given)
    for key in changed_on_resume(found, asked):
        if before[key] is None and now[key] is None:  # a default that was another then: the run keeps it
            continue
        allowed = f"{found[key]}, as in the run that is in {folder}; another --out begins a new grid"
        raise refusal(key, asked[key], allowed)
    other_stop = any(key.startswith("stop.") and found[key] != asked[key] for key in asked)
    if is_finished(folder, rounds) and (not other_stop or read_environment(folder)["finished_after"] == rounds):
        return State.FINISHED
    whole = checkpoint.complete(folder)
    if whole and checkpoint.round_of(whole[-1]) > rounds:
        raise refusal("rounds", rounds, f"{checkpoint.round_of(whole[-1])} or more, which {folder} has done")
    if whole:
        return State.TO_RESUME
    if begun and "finished_after" not in read_environment(folder):
        return begin_anew(folder, others)
    raise ConfigError(f"out: {folder} holds a run without a checkpoint to go on from; move it away, or remove it")


def begin_anew(folder: Path, held: Sequence[str]) -> State:
    """What the sweep itself began may be emptied; refused where it holds something that is not of a run."""
    for name in held:
        if not is_of_a_run(name):
            raise refusal("out", f"{folder}, which holds {name}", "nothing but this cell's run")
    return State.BEGIN_ANEW


def rounds_recorded(folder: Path) -> int:
    """How many rounds a run has recorded so far."""
    try:
        return (folder / "metrics.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def prepare(cell: Cell, folder: Path, state: State) -> None:
    """Make the folder of a new run, or empty that of one which has no checkpoint yet."""
    if state is State.BEGIN_ANEW:
        for path in filter(lambda path: is_of_a_run(path.name), sorted(folder.iterdir())):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    if state is not State.TO_RESUME:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CELL).write_text(json.dumps({"cell": cell.name}) + "\n")


def load() -> None:
    """Import what the agents of all cells need, before the first of them is forked from this process."""
    import dfl_dist.launcher.engine  # noqa: F401


def start(cell: Cell, place: Place, state: State) -> Job:
    """Start a cell's ranks, whose output goes to its log."""
    load()
    token, program = secrets.token_hex(8), place.program(cell, state)
    environment = {name: os.environ.get(name, "lo") for name in INTERFACES} | {LAUNCH: token}
    environment[COMMAND] = replace(program, arguments=()).command_line()
    with place.log(cell).open("a") as log:
        log.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {program.command_line()}\n")
        log.flush()
        return jobs.start(replace(program, meeting=Meeting(job_id=token)), environment=environment, output=log)


def write_last_words(log: Path, job: Job) -> None:
    """Add to a cell's log what stands at the end of a launch: a user's traceback, or that the launcher was killed."""
    with log.open("a") as file:
        if job.told.words:
            file.write(f"{job.told.words}\n")
        elif job.told.ending is None and job.code is not None and (job.code < 0 or job.code > 128):
            number = -job.code if job.code < 0 else job.code - 128
            file.write(f"launch: the processes of this job were killed by {signal.Signals(number).name}\n")


def last_lines(log: Path, offset: int) -> list[str]:
    """The last lines that the ranks of a start printed."""
    with log.open("rb") as file:
        file.seek(offset)
        text = file.read().decode(errors="replace")
    return [line.rstrip() for line in text.splitlines()[1:] if line.strip()][-LINES_SHOWN:]  # the first is the command


def last_accuracy(folder: Path) -> str:
    """The last accuracy of the mean model that a run recorded, for people."""
    scores = [line["test_accuracy"] for line in read_lines(folder / "metrics.jsonl") if "test_accuracy" in line]
    return "-" if not scores or scores[-1] is None else f"{scores[-1]:.2%}"
