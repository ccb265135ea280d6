"""The page of a grid, `report.html` in its folder, written by a process of its own.

So a page that takes long holds up no cell, and one that cannot be written fails no sweep.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from dfl_dist.errors import ConfigError
from dfl_dist.report.groups import group_runs
from dfl_dist.report.page import write_page
from dfl_dist.report.read import Run, read_run
from dfl_dist.run_folder.files import aside
from dfl_dist.signals import Interrupt
from dfl_dist.sweep.locks import GUARD

NAME = "report.html"
LONGEST_S = 600.0
POLL_S = 0.05


class GridPage:
    """Keeps a page up to date: one process at a time writes it, from what the folders of the cells hold then."""

    def __init__(self, out: Path, cells: Sequence[str]) -> None:
        self.out, self.cells = out, cells
        self.writer: subprocess.Popen[str] | None = None
        self.is_due = False
        self.trouble: str | None = None  # why the last one could not be written

    def refresh(self) -> None:
        """Have it written again: at once, or when the process that writes it has ended."""
        self.is_due = True
        self.tend()

    def tend(self) -> None:
        """See to the process that writes it, and begin another one if that is due."""
        if self.writer is not None and self.writer.poll() is not None:
            _, said = self.writer.communicate()
            self.trouble = (said.splitlines() or ["its process was killed"])[-1] if self.writer.returncode else None
            self.forget()
        if self.is_due and self.writer is None:
            self.is_due = False
            self.writer = self.start()

    def finish(self, interrupt: Interrupt) -> str:
        """Write it for the last time; what to say of it. A second Ctrl-C goes without."""
        self.refresh()
        end = time.monotonic() + LONGEST_S
        while self.writer is not None:
            if interrupt.at_once or time.monotonic() > end:
                self.abandon()
                return f"no new {NAME}: it was not written to its end"
            time.sleep(POLL_S)
            self.tend()
        return f"no new {NAME}: {self.trouble}" if self.trouble else f"report: {self.out / NAME}"

    def abandon(self) -> None:
        """End the process that writes it; what was there before stays."""
        if self.writer is not None:
            self.writer.kill()
            self.writer.communicate()
            self.forget()

    def forget(self) -> None:
        """Remove what a process that has ended before its time left half written."""
        if self.writer is not None:
            aside(self.out / NAME, self.writer.pid).unlink(missing_ok=True)
            self.writer = None

    def start(self) -> "subprocess.Popen[str]":
        """A process that writes the page. It has a session of its own, so that Ctrl-C does not reach it."""
        return subprocess.Popen(
            [sys.executable, "-m", "dfl_dist.sweep.page", str(self.out), *self.cells],
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )


def main(argv: Sequence[str]) -> int:
    """Write the page of a folder's cells, in this order, as far as they have begun."""
    out, *cells = argv
    runs = [run for run in map(read_begun, (Path(out) / cell for cell in cells)) if run]
    if not runs:
        print("no cell has recorded a round yet", file=sys.stderr)
        return 1
    (Path(out) / GUARD).open("a").close()  # the page is a sweep's from now on, where it has begun no cell too
    write_page(group_runs(runs), Path(out) / NAME)
    return 0


def read_begun(folder: Path) -> Run | None:
    """A cell's run; None where there is none yet, or none that can be read."""
    try:
        run = read_run(folder)
    except (ConfigError, OSError):
        return None
    return run if run.lines else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
