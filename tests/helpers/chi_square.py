"""Whether random choices are as likely as they should be."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import torch

FALSE_ALARM = 1e-5  # how rarely a chi-square test may refuse a right program: the seeds are fixed, so never by chance
Cell = TypeVar("Cell", bound=Hashable)  # an outcome that is counted


def p_value(counts: Mapping[Cell, float], expected: Mapping[Cell, float], freedom: int) -> float:
    """How likely a chi-square as large as that of these counts is by chance."""
    assert not counts.keys() - expected.keys(), "something was drawn that cannot be"
    assert min(expected.values()) >= 5, "too few draws for a chi-square"
    chi_square = sum((counts.get(cell, 0) - mean) ** 2 / mean for cell, mean in expected.items())
    halves = torch.tensor([freedom / 2, chi_square / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(halves[0], halves[1]))


def uniform_p_value(drawn: Iterable[Cell], cells: Iterable[Cell]) -> float:
    """The same for independent draws that should be as likely in all cells."""
    counts, cells = Counter(drawn), list(cells)
    return p_value(counts, dict.fromkeys(cells, counts.total() / len(cells)), len(cells) - 1)
