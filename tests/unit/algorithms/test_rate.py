"""The learning rate of each round, by its formulas."""

import math

import pytest

from dfl_dist.algorithms.rate import Rate


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("exponential", [0.1, 0.05, 0.025, 0.0125]),
        ("cosine", [0.1, 0.1 * (1 + math.sqrt(0.5)) / 2, 0.05, 0.1 * (1 - math.sqrt(0.5)) / 2]),
        ("constant", [0.1] * 4),
    ],
)
def test_the_rate_of_each_round(schedule: str, rates: list[float]) -> None:
    plain, warmed_up = (Rate(0.1, schedule, decay=0.5, warmup_rounds=number, rounds=4) for number in (0, 2))
    assert [plain.of(t) for t in range(4)] == pytest.approx(rates, rel=1e-12)
    assert [warmed_up.of(t) for t in range(4)] == pytest.approx([rates[0] / 2, *rates[1:]], rel=1e-12)
