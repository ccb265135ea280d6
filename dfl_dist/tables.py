"""Plain text tables for the screen."""

from collections.abc import Sequence

BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


def show(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell."""
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    )


def byte_unit(most: float, smallest: float = 1.0) -> tuple[float, str]:
    """What to count bytes in where there are at most so many: its size and its name."""
    return next((size, name) for size, name in BYTES if most >= size or size <= smallest)
