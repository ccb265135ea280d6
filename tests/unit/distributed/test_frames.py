"""The wire format: layout in memory, sizes, what a frame that is not the expected one is refused for; buffers."""

import dataclasses

import pytest
import torch
from torch import Tensor

from dfl_dist.distributed.frames import ALIGN, HEADER, BufferPool, FrameFormat, Label
from dfl_dist.errors import PeerError

LABEL = Label(round_idx=5, step=0, sender=2, clients=[1, 4])
FORMAT = FrameFormat(7, torch.float32)
CPU = torch.device("cpu")


def empty(num_bytes: int) -> Tensor:
    return torch.full((num_bytes,), 0xAB, dtype=torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_what_is_encoded_is_what_is_decoded(rows: int, dtype: torch.dtype) -> None:
    wire, label = FrameFormat(7, dtype), Label(5, 1, 2, range(4, 4 + rows))
    frame = wire.encode(empty(wire.num_bytes(rows) + 100), label)  # buffers may be larger than what is put there
    frame.x.copy_(torch.arange(rows * 7).view(rows, 7))
    frame.w.copy_(torch.arange(rows) + 1 / 3)
    wire.seal(frame)
    assert len(frame.buffer) == wire.num_bytes(rows)
    found = wire.decode(frame.buffer.clone(), label)
    assert torch.equal(found.x, frame.x)
    assert torch.equal(found.w, frame.w)
    assert (found.x.dtype, found.w.dtype) == (dtype, torch.float64)
    assert (found.x.shape, found.clients.tolist()) == ((rows, 7), list(label.clients))
    assert frame.x.data_ptr() % ALIGN == frame.buffer.data_ptr() % ALIGN, "rows are aligned, whatever is before them"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sizes(dtype: torch.dtype) -> None:
    wire, item = FrameFormat(1003, dtype), dtype.itemsize
    for rows in range(12):
        payload = rows * (8 + 8 + 1003 * item)
        assert HEADER.size + payload <= wire.num_bytes(rows) <= HEADER.size + payload + 2 * ALIGN
    assert wire.model_bytes() == 1003 * item
    assert wire.bytes_sent(0) == 0
    assert wire.bytes_sent(5) == 5 * (1003 * item + 8), "x and w of each push, without headers"


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        ({"round_idx": 6}, "round 7, expected 6"),
        ({"step": 1}, "gossip step 1, expected 0"),
        ({"sender": 3}, "sender rank 3, expected 2"),
        ({"clients": [1]}, "rows 1, expected 2"),
        ({"clients": [1, 9]}, "clients [1, 9], expected [1, 4]"),
        ({"clients": [4, 1]}, "clients [4, 1], expected [1, 4]"),
        ({"round_idx": 4, "sender": 0}, "round 5, expected 6; sender rank 0, expected 2"),
    ],
)
def test_another_frame_is_refused_by_what_differs(sent: dict[str, object], complaint: str) -> None:
    frame = FORMAT.encode(empty(FORMAT.num_bytes(2)), dataclasses.replace(LABEL, **sent))  # type: ignore[arg-type]
    buffer = frame.buffer if len(frame.buffer) == FORMAT.num_bytes(2) else empty(FORMAT.num_bytes(2))
    buffer[: len(frame.buffer)] = frame.buffer
    with pytest.raises(PeerError) as error:
        FORMAT.decode(buffer, LABEL)
    assert str(error.value) == f"the frame from rank 2 in round 6 has {complaint}"


@pytest.mark.parametrize(
    ("sent", "complaint"),
    [
        (FrameFormat(8, torch.float32), "d 8, expected 7"),
        (FrameFormat(7, torch.float64), "dtype 2, expected 1"),
    ],
)
def test_a_frame_of_another_model_is_refused(sent: FrameFormat, complaint: str) -> None:
    frame = sent.encode(empty(sent.num_bytes(2)), LABEL)
    with pytest.raises(PeerError, match=f"^the frame from rank 2 in round 6 has {complaint}$"):
        FORMAT.decode(frame.buffer[: FORMAT.num_bytes(2)], LABEL)


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [(0, b"GIF8", "magic b'GIF8', expected b'DFLF'"), (4, b"\x09\x00", "format 9, expected 1")],
)
def test_what_is_no_frame_of_this_format_is_refused(place: int, value: bytes, complaint: str) -> None:
    frame = FORMAT.encode(empty(FORMAT.num_bytes(2)), LABEL)
    frame.buffer[place : place + len(value)] = torch.tensor(list(value), dtype=torch.uint8)
    with pytest.raises(PeerError) as error:
        FORMAT.decode(frame.buffer, LABEL)
    assert str(error.value) == f"the frame from rank 2 in round 6 has {complaint}"


# Buffers that are used again.


def test_the_smallest_buffer_that_is_large_enough_is_used_again() -> None:
    pool = BufferPool(CPU)
    buffers = {size: pool.take(size) for size in (100, 300, 200)}
    assert len({buffer.data_ptr() for buffer in buffers.values()}) == 3, "none is given out twice"
    for buffer in buffers.values():
        pool.give_back(buffer)
    for wanted, given in ((150, 200), (100, 100), (10, 300)):
        assert pool.take(wanted).data_ptr() == buffers[given].data_ptr()
    assert pool.free == []


def test_a_new_buffer_takes_the_place_of_one_that_is_too_small() -> None:
    pool = BufferPool(CPU)
    for size in (100, 200):
        pool.give_back(torch.empty(size, dtype=torch.uint8))
    assert len(pool.take(300)) == 300
    assert [len(buffer) for buffer in pool.free] == [100], "so as not to grow with every size that there ever was"


def test_buffers_are_bytes_where_they_are_asked_for() -> None:
    buffer = BufferPool(CPU).take(64)
    assert (buffer.dtype, buffer.device, buffer.is_pinned()) == (torch.uint8, CPU, False)
