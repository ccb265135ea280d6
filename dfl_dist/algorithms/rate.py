"""The learning rate of each round."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Rate:
    """lr_t = lr_0 · f(t) · min(1, (t + 1) / warmup_rounds), f a row of SCHEDULES; rounds t are counted from 0."""

    first: float  # lr_0
    schedule: str
    decay: float  # per round, with `exponential`
    warmup_rounds: int  # 0 is none
    rounds: int  # of the whole run

    def of(self, round_idx: int) -> float:
        rate = self.first * SCHEDULES[self.schedule](self, round_idx)
        return rate * min(1.0, (round_idx + 1) / self.warmup_rounds) if self.warmup_rounds else rate


SCHEDULES: Mapping[str, Callable[[Rate, int], float]] = {
    "exponential": lambda rate, t: rate.decay**t,
    "cosine": lambda rate, t: (1 + math.cos(math.pi * t / rate.rounds)) / 2,
    "constant": lambda rate, t: 1.0,
}
