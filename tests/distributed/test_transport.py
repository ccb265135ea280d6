"""Frames on their way between real ranks, over every transport."""

from pathlib import Path

import pytest
from launching import ranks, run


@pytest.mark.parametrize(
    ("world_size", "program"),
    [
        (4, ["transports_agree"]),
        (4, ["transports_agree", "2"]),
        (2, ["wrong_frame_is_refused"]),
        (2, ["silent_peer_is_named", "frame"]),
    ],
)
def test_between_real_ranks(tmp_path: Path, world_size: int, program: list[str]) -> None:
    done = run(ranks(world_size, f"rank_programs:{program[0]}", *program[1:]), tmp_path)
    assert done.code == 0, done.err
