"""Words, numbers and tables for people."""

import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence

WIDEST = 110  # a longer line of prose is hard to read, however wide the terminal is
BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell."""
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    )


def prose_width() -> int:
    """How wide help may be: it is read in this terminal."""
    return min(WIDEST, shutil.get_terminal_size((100, 24)).columns - 1)


def help_page(*parts: str | Mapping[str, str]) -> str:
    """The help of a command: paragraphs, and tables of options (what to write: what it is for), wrapped."""
    return "\n\n".join(wrap(part) if isinstance(part, str) else wrap_options(part) for part in parts)


def wrap(paragraph: str) -> str:
    margin = " " * len("usage: ") if paragraph.startswith("usage: ") else ""
    return textwrap.fill(paragraph, prose_width(), subsequent_indent=margin, break_on_hyphens=False)


def wrap_options(options: Mapping[str, str]) -> str:
    margin = max(map(len, options)) + 4
    lines = []
    for name, text in options.items():
        first, rest = f"  {name}".ljust(margin), " " * margin
        lines.append(textwrap.fill(text, prose_width(), initial_indent=first, subsequent_indent=rest))
    return "\n".join(lines)


def byte_unit(most: float, smallest: float = 1.0) -> tuple[float, str]:
    """One unit for a column or an axis with at most so many bytes: its size and its name."""
    return next((size, name) for size, name in BYTES if most >= size or size <= smallest)


def format_bytes(size_bytes: float) -> str:
    """A number of bytes by itself, in its own unit and with three digits."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size_bytes < 999.5 or unit == "TB":
            break
        size_bytes /= 1000
    return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.3g} {unit}"


def show_life(who: str) -> None:
    """A first line for a person who watches, before anything that takes long; of all ranks, rank 0 writes it."""
    if sys.stderr.isatty() and os.environ.get("RANK", "0") == "0":
        print(f"{who}: starting", file=sys.stderr, flush=True)
