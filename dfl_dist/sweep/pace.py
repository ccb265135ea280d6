"""How fast cells were, and how long the rest takes."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """Rounds that cells have done, and the seconds that those cells took, added up over cells."""

    rounds: int = 0
    seconds: float = 0.0

    def add(self, rounds: int, seconds: float) -> "Pace":
        return Pace(self.rounds + rounds, self.seconds + seconds)

    def eta(self, rounds_left: int) -> str:
        """For people: how long so many rounds, one after the other, take."""
        if self.rounds <= 0 or rounds_left <= 0:
            return ""
        seconds = round(self.seconds / self.rounds * rounds_left)
        return f", ETA {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def longest_row(running: Iterable[int], waiting: Iterable[int], jobs: int) -> int:
    """The rounds that are done one after the other until all cells are, given the rounds each has left.

    Each waiting cell begins when the first of those at work, `jobs` at a time, has ended.
    """
    rows = list(running)
    rows += [0] * (jobs - len(rows))
    heapq.heapify(rows)
    for rounds in waiting:
        heapq.heapreplace(rows, rows[0] + rounds)
    return max(rows)
