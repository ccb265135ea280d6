"""Frames: their layout in memory, their checks, and their way between real ranks."""

from pathlib import Path

import pytest
import torch
from launching import ranks, run

from dfl_dist.transport import ALIGN, HEADER, Frame
from dfl_dist.waiting import PeerError

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_frame_layout(rows: int, dtype: torch.dtype) -> None:
    frame = Frame.empty(rows, 7, dtype, CPU).seal(5, 0, 2, list(range(4, 4 + rows)))
    frame.x.copy_(torch.arange(rows * 7).view(rows, 7))
    frame.w.copy_(torch.arange(rows))
    assert frame.x.data_ptr() % ALIGN == frame.buffer.data_ptr() % ALIGN
    copy = Frame(frame.buffer.clone(), rows, 7, dtype)
    copy.check(5, 0, 2, list(range(4, 4 + rows)))
    assert torch.equal(copy.x, frame.x)
    assert copy.w.dtype == torch.float64
    assert len(frame.buffer) == Frame.num_bytes(rows, 7, dtype)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda frame: frame.seal(6, 0, 2, [1]), "round 6, expected 5"),
        (lambda frame: frame.seal(5, 1, 2, [1]), "gossip step 1, expected 0"),
        (lambda frame: frame.seal(5, 0, 3, [1]), "sender rank 3, expected 2"),
        (lambda frame: frame.seal(5, 0, 2, [9]), "clients [9], expected [1]"),
        (lambda frame: frame.buffer[: HEADER.size].fill_(0), "magic b'\\x00"),
    ],
)
def test_a_frame_that_is_not_the_expected_one_is_refused(change, complaint: str) -> None:  # type: ignore[no-untyped-def]
    frame = Frame.empty(1, 7, torch.float32, CPU).seal(5, 0, 2, [1])
    frame.check(5, 0, 2, [1])
    change(frame)
    with pytest.raises(PeerError) as error:
        frame.check(5, 0, 2, [1])
    assert complaint in str(error.value)


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
