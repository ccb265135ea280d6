"""The wire format: what a frame holds, how large it is, how it is written and checked. Transports only carry bytes."""

import struct
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dfl_dist.errors import PeerError
from dfl_dist.formats import FORMAT

HEADER = struct.Struct("<4sHHqiiqq")  # magic, format, dtype, round, gossip step, sender rank, rows, d
HEADER_FIELDS = ("magic", "format", "dtype", "round", "gossip step", "sender rank", "rows", "d")
MAGIC = b"DFLF"
DTYPES = {torch.float32: 1, torch.float64: 2}
ALIGN = 64
W_BYTES = 8  # push weights are float64


def aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


@dataclass(frozen=True)
class Label:
    """Which frame it is: of which exchange, from which rank, with the rows of which clients."""

    round_idx: int
    step: int
    sender: int
    clients: Sequence[int]


class Frame:
    """Views of a message's bytes: a header, the rows' client numbers, their w's (float64), their x's (aligned)."""

    def __init__(self, buffer: Tensor, rows: int, size: int, dtype: torch.dtype) -> None:
        clients_at, w_at = aligned(HEADER.size), aligned(HEADER.size) + 8 * rows
        x_at = aligned(w_at + W_BYTES * rows)
        self.buffer = buffer
        self.clients = buffer[clients_at:w_at].view(torch.int64)
        self.w = buffer[w_at : w_at + W_BYTES * rows].view(torch.float64)
        self.x = buffer[x_at : x_at + rows * size * dtype.itemsize].view(dtype).view(rows, size)


@dataclass(frozen=True)
class FrameFormat:
    """The format of one run's frames: models of `size` parameters in this precision, as they are."""

    size: int
    dtype: torch.dtype

    def num_bytes(self, rows: int) -> int:
        """The size of a frame with this number of rows."""
        return aligned(aligned(HEADER.size) + (8 + W_BYTES) * rows) + rows * self.size * self.dtype.itemsize

    def bytes_sent(self, pushes: int) -> int:
        """What counts as sent for a number of pushes from one client to another: x and w, whatever the layout."""
        return pushes * (self.size * self.dtype.itemsize + W_BYTES)

    def model_bytes(self) -> int:
        """What counts as sent for one model without a push weight."""
        return self.size * self.dtype.itemsize

    def encode(self, buffer: Tensor, label: Label) -> Frame:
        """A frame in a buffer, with its header and client numbers written; the caller fills the rows, then seals it."""
        rows = len(label.clients)
        frame = Frame(buffer[: self.num_bytes(rows)], rows, self.size, self.dtype)
        head = bytearray(HEADER.pack(*self._header(label)))
        frame.buffer[: HEADER.size] = torch.frombuffer(head, dtype=torch.uint8)
        frame.clients.copy_(torch.tensor(label.clients))
        return frame

    def seal(self, frame: Frame) -> None:
        """Finish a frame whose rows are filled. They already are what is sent: nothing is left to do."""

    def decode(self, buffer: Tensor, label: Label) -> Frame:
        """The frame that arrived in a buffer; refused where it is not the one expected, saying what it was."""
        frame = Frame(buffer, len(label.clients), self.size, self.dtype)
        got = HEADER.unpack(buffer[: HEADER.size].cpu().numpy().tobytes())
        wrong = [
            f"{name} {shown(name, a)}, expected {shown(name, b)}"
            for name, a, b in zip(HEADER_FIELDS, got, self._header(label), strict=True)
            if a != b
        ]
        if not wrong and frame.clients.tolist() != list(label.clients):
            wrong = [f"clients {frame.clients.tolist()}, expected {list(label.clients)}"]
        if wrong:
            raise PeerError(f"the frame from rank {label.sender} in round {label.round_idx + 1} has {'; '.join(wrong)}")
        return frame

    def _header(self, label: Label) -> tuple[bytes | int, ...]:
        place = (label.round_idx, label.step, label.sender)
        return (MAGIC, FORMAT, DTYPES[self.dtype], *place, len(label.clients), self.size)


def shown(field: str, value: bytes | int) -> str:
    """A header field for people, who count rounds from 1."""
    return str(value + 1) if field == "round" and isinstance(value, int) else repr(value)


class BufferPool:
    """Byte buffers that are used again: the smallest free one that is large enough."""

    def __init__(self, device: torch.device, *, pinned: bool = False) -> None:
        self.device, self.pinned = device, pinned
        self.free: list[Tensor] = []  # smallest first

    def take(self, num_bytes: int) -> Tensor:
        """A buffer of at least this size; a new one replaces the largest that is too small."""
        index = bisect_left(self.free, num_bytes, key=len)
        if index < len(self.free):
            return self.free.pop(index)
        if self.free:
            self.free.pop()
        return torch.empty(num_bytes, dtype=torch.uint8, device=self.device, pin_memory=self.pinned)

    def give_back(self, buffer: Tensor) -> None:
        """Let a buffer be used again; nobody may look at it any more."""
        insort(self.free, buffer, key=len)
