"""`dfl-dist runs [FOLDER ...]`: what runs there are, how they stand, what they have reached."""

import sys
from pathlib import Path

from dfl_dist.errors import ConfigError, refusal
from dfl_dist.report.read import Run, find_runs, is_run, read_run
from dfl_dist.report.states import accuracy_of, changed_s, format_age, progress_of, state_of
from dfl_dist.text import format_table, help_page

DEFAULT = "runs"
HEAD = ("run", "state", "method", "data", "clients", "rounds", "accuracy", "last change")


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(help_text())
        return 0
    for word in argv:
        if word.startswith("-"):
            raise refusal("option", word, "folders of runs only")
    found = [folder for name in argv or [DEFAULT] for folder in look_into(Path(name)) if not folder.is_symlink()]
    runs, problems = [], []
    for folder in found:
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
    """The runs in a folder, and those of the sweeps in it; refused where there is neither."""
    sweeps = [] if is_run(folder) else [path for path in folder.glob("*/") if not (path.is_symlink() or is_run(path))]
    within = [path for sweep in sorted(sweeps) for path in sorted(sweep.glob("*/")) if is_run(path)]
    try:
        return find_runs(folder) + within
    except ConfigError:
        if not within:
            raise
    return within


def row_of(run: Run) -> tuple[str, ...]:
    config = run.config
    reached = (progress_of(run), accuracy_of(run), f"{format_age(changed_s(run.folder))} ago")
    return (str(run.folder), state_of(run), config.algorithm, config.data.name, str(config.num_clients), *reached)
