"""`dfl-dist report FOLDER ...`: what runs have reached, a line each."""

from pathlib import Path

from dfl_dist.config import refusal
from dfl_dist.report.runs import Run, find_runs, read_run
from dfl_dist.tables import show

USAGE = """usage: dfl-dist report FOLDER ...

What runs have reached, a line each, from their folders, or the folder they are in: the accuracy and the loss of the
mean model after the last evaluated round, its best accuracy, the mean distance of the clients' models from it, what was
sent in all."""
HEAD = ("run", "algorithm", "rounds", "accuracy", "best", "test loss", "consensus", "MB sent")


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(USAGE)
        return 0
    if not argv:
        raise refusal("report", "nothing", "the folders of runs, such as runs/latest")
    found = [folder for name in argv for folder in find_runs(Path(name))]
    folders = {folder.resolve(): folder for folder in reversed(found)}  # each once, by the name given first
    print(show(HEAD, [describe(read_run(folder)) for folder in reversed(folders.values())]))
    return 0


def describe(run: Run) -> list[str]:
    """A run's line of the table."""
    last = run.evaluated[-1] if run.evaluated else {}
    return [
        str(run.folder),
        run.config.algorithm,
        f"{len(run.lines)}/{run.config.rounds}",
        number(last.get("test_accuracy"), ".2%"),
        number(max((line["test_accuracy"] for line in run.evaluated), default=None), ".2%"),
        number(last.get("test_loss"), ".4f"),
        number(last.get("consensus_distance"), ".3g"),
        f"{sum(line['bytes_sent'] for line in run.lines) / 1e6:.1f}",
    ]


def number(value: float | None, form: str) -> str:
    """A number in a form; "-" where there is none yet, or none that is finite."""
    return "-" if value is None else format(value, form)
