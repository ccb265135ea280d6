"""`dfl-dist runs [FOLDER ...]`: what runs there are, how they stand, what they have reached."""

import sys
from itertools import chain
from pathlib import Path

from dfl_dist.errors import ConfigError, refusal
from dfl_dist.report.read import Run, is_run, no_runs, read_run, runs_in
from dfl_dist.report.states import accuracy_of, changed_s, format_age, progress_of, state_of
from dfl_dist.text import format_table, help_page

DEFAULT = "runs"
NONE_YET = "no runs in runs/ yet; dfl-dist launch makes one, or dfl-dist train in one process"
HEAD = ("run", "state", "method", "data", "clients", "rounds", "accuracy", "last change")


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(help_text())
        return 0
    for word in argv:
        if word.startswith("-"):
            raise refusal("option", word, "folders of runs only")
    found = {name: look_into(Path(name)) for name in argv or [DEFAULT]}
    if not argv and not found[DEFAULT]:
        print(NONE_YET)
        return 0
    for name, folders in found.items():
        if not folders:
            raise no_runs(Path(name))
    runs, problems = [], []
    for folder in chain.from_iterable(found.values()):
        try:
            runs.append(read_run(folder))
        except ConfigError as error:
            problems.append(str(error))
    if runs:
        print(format_table(HEAD, [row_of(run) for run in sorted(runs, key=lambda run: -changed_s(run.folder))]))
    for problem in problems:
        print(f"dfl-dist: {problem}", file=sys.stderr)
    return 2 if problems else 0


def help_text() -> str:
    return help_page(
        "usage: dfl-dist runs [FOLDER ...]",
        "The runs in runs/, or in these folders, and in the sweeps there, the newest last; those too that are running.",
        {
            "state": "finished; running; diverged; unfinished: stopped or broken off, --resume goes on",
            "accuracy": "of the mean model, the last one that was evaluated",
            "last change": "how long ago something was recorded",
        },
    )


def look_into(folder: Path) -> list[Path]:
    """The folder itself if it is a run's, else the runs in it, and those of the sweeps in it; without links."""
    if (runs := runs_in(folder)) == [folder]:
        return runs
    sweeps = [path for path in folder.glob("*/") if not is_run(path)]
    runs += [path for sweep in sorted(sweeps) if not sweep.is_symlink() for path in sorted(sweep.glob("*/"))]
    return [path for path in runs if is_run(path) and not path.is_symlink()]


def row_of(run: Run) -> tuple[str, ...]:
    config = run.config
    reached = (progress_of(run), accuracy_of(run), f"{format_age(changed_s(run.folder))} ago")
    return (str(run.folder), state_of(run), config.algorithm, config.data.name, str(config.num_clients), *reached)
