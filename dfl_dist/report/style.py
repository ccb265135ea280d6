"""How lines are told apart, in every picture the same."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Literal

Dashes = Literal["-", "--", "-.", ":"] | tuple[float, tuple[float, ...]]
# Okabe and Ito's colours, which colour-blind people can tell apart too, without the yellow that white swallows.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
DASHES: tuple[Dashes, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v")  # another one each time that the colours begin anew


@dataclass(frozen=True)
class Look:
    """A line's colour, dashes and marker."""

    color: str
    dashes: Dashes
    marker: str


def looks() -> Iterator[Look]:
    """A look for each line; the first 35 are all different."""
    for number in count():
        marker = MARKERS[number // len(COLORS) % len(MARKERS)]
        yield Look(COLORS[number % len(COLORS)], DASHES[number % len(DASHES)], marker)
