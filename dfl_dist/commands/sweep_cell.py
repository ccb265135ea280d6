"""One cell of a sweep: what its folder holds, who works on it, its processes."""

import contextlib
import enum
import fcntl
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dfl_dist import checkpoint, run_folder
from dfl_dist.commands.processes import kill, start_torchrun
from dfl_dist.config import ConfigError, changed_on_resume, get, load, refusal
from dfl_dist.grid import Cell

BEGUN = "sweep.json"  # in the folders that a sweep began, and so may empty
CELL = "DFL_DIST_CELL"  # in the environment of all processes of a cell: its folder
LONGEST_SHUTDOWN_S = 3600  # torchrun ends its ranks so long after a signal: more than a round and a checkpoint
TORCHRUN_LOG, TORCHRUN_FAILED = re.compile(r"[EWI]\d{4} "), re.compile(r"E\d{4} ")  # how torchrun's own lines begin
LINES_TOLD = 5  # of the log of a cell that failed


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

    def command(self, cell: Cell, state: State) -> list[str]:
        """What follows `torchrun` on the command line."""
        launch = ["--standalone", f"--nproc_per_node={self.ranks}", "-m", "dfl_dist.train"]
        where = "--resume" if state is State.TO_RESUME else "--out"
        return [*launch, *cell.arguments, where, str(self.folder(cell))]


def look(cell: Cell, folder: Path) -> State:
    """What there is to do in a cell's folder; refused where it holds something else than this cell's run."""
    begun, rounds = (folder / BEGUN).is_file(), cell.resolved.rounds
    if not run_folder.is_run(folder):
        others = [path for path in folder.iterdir() if path.name != BEGUN] if folder.is_dir() else []
        if others and (not begun or checkpoint.complete(folder)):
            raise refusal("out", folder, "a new folder, or one with this cell's run; it holds other files")
        return State.BEGIN_ANEW if others else State.TO_DO
    found, whole = load(folder / "resolved.yaml"), checkpoint.complete(folder)
    for key in changed_on_resume(found, cell.resolved):
        allowed = f"{get(found, key)}, as in the run that is in {folder}; another --out begins a new grid"
        raise refusal(key, get(cell.resolved, key), allowed)
    if run_folder.is_finished(folder, rounds):
        return State.FINISHED
    if whole and checkpoint.round_of(whole[-1]) > rounds:
        raise refusal("rounds", rounds, f"{checkpoint.round_of(whole[-1])} or more, which {folder} has done")
    if whole:
        return State.TO_RESUME
    if begun and "finished_after" not in run_folder.read_environment(folder):
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


def start(cell: Cell, place: Place, state: State) -> "subprocess.Popen[bytes]":
    """Start a cell's torchrun."""
    command, patience = place.command(cell, state), {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(LONGEST_SHUTDOWN_S)}
    environment = {CELL: str(place.folder(cell).resolve())}
    with place.log(cell).open("a") as log:
        log.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} {shlex.join(['torchrun', *command])}\n")
        log.flush()
        return start_torchrun(command, defaults=patience, environment=environment, output=log)


def mark(folder: Path) -> str:
    """By which the processes at work on a cell are known."""
    return f"{CELL}={folder.resolve()}"


def last_words(log: Path, offset: int) -> list[str]:
    """The last lines of a start that are its own, not of the report that torchrun adds below them."""
    with log.open("rb") as file:
        file.seek(offset)
        text = file.read().decode(errors="replace")
    lines = [line.rstrip() for line in text.splitlines()[1:] if line.strip()]  # the first is the command
    end = next((number for number, line in enumerate(lines) if TORCHRUN_FAILED.match(line)), len(lines))
    own = [line for line in lines[:end] if not TORCHRUN_LOG.match(line)]
    killed = [line.partition("] ")[2] for line in lines[end : end + 1] if "exitcode: -" in line]
    return [*own[-LINES_TOLD:], *killed] or lines[-LINES_TOLD:]


def started_at(pid: int) -> str | None:
    """When a process of this host was started, to tell it from a later one with its number; None: there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


@contextlib.contextmanager
def one_at_a_time(out: Path) -> Iterator[None]:
    """Let the sweeps of this host look at locks one after the other, so that only one takes over a dead one's."""
    with (out / ".sweep-guard").open("w") as file:
        with contextlib.suppress(OSError):  # a file system without them: then locks are as good as O_EXCL makes them
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def claim(lock: Path, folder: Path) -> str | None:
    """Take a cell for this process; returns who has it where it is taken."""
    me = {"host": socket.gethostname(), "pid": os.getpid(), "started": started_at(os.getpid())}
    me["job"] = os.environ.get("SLURM_JOB_ID")
    with one_at_a_time(lock.parent):
        holder = read_holder(lock)
        if holder and is_gone(holder, me):
            kill(mark(folder))  # its torchrun outlives a sweep that was killed; the cell goes on from its checkpoint
            lock.unlink(missing_ok=True)
        try:
            handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            holder = read_holder(lock) or {"host": "unknown", "pid": "unknown"}
            return f"a sweep on host {holder['host']}, process {holder['pid']}; if it is gone, remove {lock}"
        with os.fdopen(handle, "w") as file:
            file.write(json.dumps(me) + "\n")
    return None


def is_gone(holder: Mapping[str, Any], me: Mapping[str, Any]) -> bool:
    """Whether a lock's holder has ended: a process of this host, or an earlier start of this very SLURM job."""
    if holder["host"] != me["host"]:
        return me["job"] is not None and bool(holder.get("job") == me["job"])
    return bool(started_at(holder["pid"]) != holder["started"])


def read_holder(lock: Path) -> dict[str, Any] | None:
    try:
        holder = json.loads(lock.read_text())
    except (OSError, ValueError):
        return None
    return holder if isinstance(holder, dict) and {"host", "pid", "started"} <= set(holder) else None
