"""Plans, reports, texts and sums between real ranks; a rank that stays silent is named."""

from pathlib import Path

import pytest
from launching import ranks, run


@pytest.mark.parametrize(
    ("world_size", "program"),
    [
        (3, ["plans_arrive"]),
        (2, ["silent_peer_is_named", "plan"]),
        (2, ["silent_peer_is_named", "report"]),
        (2, ["silent_peer_is_named", "sum"]),
    ],
)
def test_between_real_ranks(tmp_path: Path, world_size: int, program: list[str]) -> None:
    done = run(ranks(world_size, f"rank_programs:{program[0]}", *program[1:]), tmp_path)
    assert done.code == 0, done.err
