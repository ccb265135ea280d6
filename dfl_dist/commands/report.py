"""`dfl-dist report RUN ...`: what runs have reached, a line each."""

from pathlib import Path

from dfl_dist.config import refusal
from dfl_dist.report.runs import Run, read_run
from dfl_dist.tables import show

USAGE = """usage: dfl-dist report RUN ...

What runs have reached, a line each, from their folders alone: the accuracy and the loss of the mean model after the
last evaluated round, its best accuracy, the mean distance of the clients' models from it, what was sent in all."""
HEAD = ("run", "algorithm", "rounds", "accuracy", "best", "test loss", "consensus", "MB sent")


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(USAGE)
        return 0
    if not argv:
        raise refusal("report", "nothing", "the folders of runs, such as runs/latest")
    print(show(HEAD, [describe(read_run(Path(name))) for name in argv]))
    return 0


def describe(run: Run) -> list[str]:
    """A run's line of the table."""
    last, best = run.evaluated[-1], max(run.evaluated, key=lambda line: float(line["test_accuracy"]))
    pushed = sum(line["bytes_sent"] for line in run.lines)
    return [
        str(run.folder),
        run.config.algorithm,
        f"{len(run.lines)}/{run.config.rounds}",
        f"{last['test_accuracy']:.2%}",
        f"{best['test_accuracy']:.2%}",
        f"{last['test_loss']:.4f}",
        f"{last['consensus_distance']:.3g}",
        f"{pushed / 1e6:.1f}",
    ]
