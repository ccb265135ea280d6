"""One cell of a sweep: what its folder holds, what there is to do in it, its ranks."""

import enum
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from dfl_dist.config.values import changed_on_resume, load_resolved, values_of
from dfl_dist.errors import ConfigError, refusal
from dfl_dist.launcher.processes import Processes
from dfl_dist.launcher.ranks import Program, lines_of_ranks, start_ranks
from dfl_dist.run_folder import checkpoint
from dfl_dist.run_folder.folder import is_finished, is_run, read_environment
from dfl_dist.sweep.grid import Cell

BEGUN = "sweep.json"  # in the folders that a sweep began, and so may empty
LONGEST_SHUTDOWN_S = 3600.0  # that ranks may take to end after a signal: more than a round and a checkpoint
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
        return Program("dfl_dist.train", [*cell.arguments, where, str(self.folder(cell))], self.ranks)


def find_state(cell: Cell, folder: Path) -> State:
    """What there is to do in a cell's folder; refused where it holds something else than this cell's run."""
    begun, rounds = (folder / BEGUN).is_file(), cell.resolved.rounds
    if not is_run(folder):
        others = [path for path in folder.iterdir() if path.name != BEGUN] if folder.is_dir() else []
        if others and (not begun or checkpoint.complete(folder)):
            raise refusal("out", folder, "a new folder, or one with this cell's run; it holds other files")
        return State.BEGIN_ANEW if others else State.TO_DO
    found, asked = values_of(load_resolved(folder / "resolved.yaml")), values_of(cell.resolved)
    for key in changed_on_resume(found, asked):
        allowed = f"{found[key]}, as in the run that is in {folder}; another --out begins a new grid"
        raise refusal(key, asked[key], allowed)
    if is_finished(folder, rounds):
        return State.FINISHED
    whole = checkpoint.complete(folder)
    if whole and checkpoint.round_of(whole[-1]) > rounds:
        raise refusal("rounds", rounds, f"{checkpoint.round_of(whole[-1])} or more, which {folder} has done")
    if whole:
        return State.TO_RESUME
    if begun and "finished_after" not in read_environment(folder):
        return State.BEGIN_ANEW
    raise ConfigError(f"out: {folder} holds a run without a checkpoint to go on from; move it away, or remove it")


def rounds_recorded(folder: Path) -> int:
    """How many rounds a run has recorded so far."""
    try:
        return (folder / "metrics.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def prepare(cell: Cell, folder: Path, state: State) -> None:
    """Make the folder of a new run, or empty that of one which has no checkpoint yet."""
    if state is State.BEGIN_ANEW:
        shutil.rmtree(folder)
    if state is not State.TO_RESUME:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / BEGUN).write_text(json.dumps({"cell": cell.name}) + "\n")


def start(cell: Cell, place: Place, state: State) -> Processes:
    """Start a cell's ranks, whose output goes to its log."""
    program = place.program(cell, state)
    with place.log(cell).open("a") as log:
        log.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {program.command_line()}\n")
        log.flush()
        mark = mark_of(place.folder(cell))
        return start_ranks(program, mark=mark, patience_s=LONGEST_SHUTDOWN_S, output=log)


def mark_of(folder: Path) -> str:
    """By which the processes at work on a cell are found, also by a later sweep."""
    return str(folder.resolve())


def last_lines(log: Path, offset: int) -> list[str]:
    """The last lines that the ranks of a start printed; those of its log where they printed nothing."""
    with log.open("rb") as file:
        file.seek(offset)
        text = file.read().decode(errors="replace")
    lines = [line.rstrip() for line in text.splitlines()[1:] if line.strip()]  # the first is the command
    return (lines_of_ranks(lines) or lines)[-LINES_SHOWN:]
