"""Defaults that learn: nothing is given but the number of clients and the seed."""

from pathlib import Path

import pytest
from launching import lines, train

ENOUGH = 0.95
CASES = [(clients, seed) for clients in (4, 8, 16) for seed in range(3)]


@pytest.mark.parametrize(
    ("clients", "seed"),
    [pytest.param(*case, marks=[] if case == (8, 0) else [pytest.mark.slow]) for case in CASES],
)
def test_the_digits_are_learnt(tmp_path: Path, clients: int, seed: int) -> None:
    run = train(None, tmp_path / "run", "--num_clients", str(clients), "--seed", str(seed))
    recorded = lines(run / "metrics.jsonl")
    assert len(recorded) == 30
    assert recorded[-1]["test_accuracy"] >= ENOUGH
