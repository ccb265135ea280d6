"""How runs stand: finished, running, diverged, or broken off; without torch, also while they run."""

import socket
import time
from pathlib import Path

from dfl_dist.report.read import Run, rounds_done
from dfl_dist.system import is_alive

FINISHED, RUNNING, DIVERGED, UNFINISHED = "finished", "running", "diverged", "unfinished"
CHANGED_WITHIN_S = 60.0  # on another host, of whose processes nothing is known here
UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def state_of(run: Run) -> str:
    """One word."""
    if run.is_finished:
        return FINISHED
    if run.diverged is not None:
        return DIVERGED
    return RUNNING if is_running(run.environment().get("leader"), changed_s(run.folder)) else UNFINISHED


def is_running(leader: object, changed_s: float) -> bool:
    """Whether rank 0 is alive: known for this host, where it named itself; else by when something last changed."""
    if not isinstance(leader, dict) or leader.get("host") != socket.gethostname():
        return changed_s < CHANGED_WITHIN_S
    return is_alive(int(leader["pid"]), leader["born"])


def changed_s(folder: Path) -> float:
    """How many seconds ago something was recorded."""
    files = [folder / name for name in ("metrics.jsonl", "environment.json") if (folder / name).exists()]
    return time.time() - max((path.stat().st_mtime for path in files), default=0.0)


def progress_of(run: Run) -> str:
    done = rounds_done(run.lines[-1]) if run.lines else 0
    return f"{done}/{run.config.rounds}"


def accuracy_of(run: Run) -> str:
    """The newest one of the mean model."""
    scored = [line["test_accuracy"] for line in run.evaluated if line["test_accuracy"] is not None]
    return f"{scored[-1]:.2%}" if scored else "-"


def format_age(seconds: float) -> str:
    """A span of time in its largest unit."""
    unit, size = next((unit, size) for unit, size in UNITS if seconds >= size or size == 1)
    return f"{max(0, seconds) // size:.0f} {unit}"
