"""`dfl-dist runs [FOLDER ...]`: what runs there are, how they stand, what they have reached."""

from pathlib import Path

from dfl_dist.errors import refusal
from dfl_dist.report.read import Run, find_runs, read_run
from dfl_dist.report.states import accuracy_of, changed_s, format_age, progress_of, state_of
from dfl_dist.text import format_table

DEFAULT = "runs"
HEAD = ("run", "state", "method", "data", "clients", "rounds", "accuracy", "last change")
HELP = """usage: dfl-dist runs [FOLDER ...]

The runs in runs/, or in these folders, the newest last; also those that are running.

  state        finished; running; diverged; unfinished: stopped or broken off, --resume goes on
  accuracy     of the mean model, the last one that was evaluated
  last change  how long ago something was recorded"""


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(HELP)
        return 0
    for word in argv:
        if word.startswith("-"):
            raise refusal("option", word, "folders of runs only")
    found = [folder for name in argv or [DEFAULT] for folder in find_runs(Path(name)) if not folder.is_symlink()]
    runs = sorted(map(read_run, found), key=lambda run: -changed_s(run.folder))
    print(format_table(HEAD, [row_of(run) for run in runs]))
    return 0


def row_of(run: Run) -> tuple[str, ...]:
    config = run.config
    reached = (progress_of(run), accuracy_of(run), f"{format_age(changed_s(run.folder))} ago")
    return (str(run.folder), state_of(run), config.algorithm, config.data.name, str(config.num_clients), *reached)
