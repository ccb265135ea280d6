"""`dfl-dist algorithms`: the methods and the settings each stands for."""

from dfl_dist.algorithms import ALGORITHMS
from dfl_dist.config import refusal


def main(argv: list[str]) -> int:
    if argv:
        raise refusal("algorithms", " ".join(argv), "no arguments")
    keys = sorted({key for row in ALGORITHMS.values() for key in row}, key=lambda key: key.split("."))
    table = [
        ["algorithm", *keys],
        *([name, *(str(row.get(key, "-")) for key in keys)] for name, row in ALGORITHMS.items()),
    ]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0
