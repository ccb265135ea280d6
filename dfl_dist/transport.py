"""Frames between the ranks that host clients, over gloo or NCCL, and nothing else."""

import struct
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from dfl_dist.waiting import PeerError, Waitable, blaming, wait

HEADER = struct.Struct("<4sHHqiiqq")  # magic, version, dtype, round, gossip step, sender rank, rows, d
HEADER_FIELDS = ("magic", "version", "dtype", "round", "gossip step", "sender rank", "rows", "d")
MAGIC, VERSION = b"DFLF", 1
DTYPES = {torch.float32: 1, torch.float64: 2}
ALIGN = 64


def aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


class Frame:
    """One message: a header, the rows' client numbers, their w's (float64) and their x's (aligned)."""

    def __init__(self, buffer: Tensor, rows: int, size: int, dtype: torch.dtype) -> None:
        clients_at, w_at = aligned(HEADER.size), aligned(HEADER.size) + 8 * rows
        x_at = aligned(w_at + 8 * rows)
        self.rows, self.size, self.dtype = rows, size, dtype
        self.buffer = buffer[: self.num_bytes(rows, size, dtype)]
        self.clients = self.buffer[clients_at:w_at].view(torch.int64)
        self.w = self.buffer[w_at : w_at + 8 * rows].view(torch.float64)
        self.x = self.buffer[x_at:].view(dtype).view(rows, size)

    @staticmethod
    def num_bytes(rows: int, size: int, dtype: torch.dtype) -> int:
        return aligned(aligned(HEADER.size) + 16 * rows) + rows * size * dtype.itemsize

    @classmethod
    def empty(cls, rows: int, size: int, dtype: torch.dtype, device: torch.device) -> "Frame":
        return cls(torch.empty(cls.num_bytes(rows, size, dtype), dtype=torch.uint8, device=device), rows, size, dtype)

    def header(self, round_idx: int, step: int, sender: int) -> tuple[bytes | int, ...]:
        """What the header of this frame must say."""
        return (MAGIC, VERSION, DTYPES[self.dtype], round_idx, step, sender, self.rows, self.size)

    def seal(self, round_idx: int, step: int, sender: int, clients: Sequence[int]) -> "Frame":
        """Write the header and the client numbers; the rows are filled by the caller."""
        head = bytearray(HEADER.pack(*self.header(round_idx, step, sender)))
        self.buffer[: HEADER.size] = torch.frombuffer(head, dtype=torch.uint8)
        self.clients.copy_(torch.tensor(clients))
        return self

    def check(self, round_idx: int, step: int, sender: int, clients: Sequence[int]) -> None:
        """Refuse a frame that is not the one expected, and say what it was."""
        got = HEADER.unpack(self.buffer[: HEADER.size].cpu().numpy().tobytes())
        expected = self.header(round_idx, step, sender)
        wrong = [
            f"{name} {a!r}, expected {b!r}" for name, a, b in zip(HEADER_FIELDS, got, expected, strict=True) if a != b
        ]
        if not wrong and self.clients.tolist() != list(clients):
            wrong = [f"clients {self.clients.tolist()}, expected {list(clients)}"]
        if wrong:
            raise PeerError(f"the frame from rank {sender} in round {round_idx} has {'; '.join(wrong)}")


Expected = tuple[int, Sequence[int]]  # a sending rank and the clients whose rows its frame holds


class Transport(Protocol):
    """Exchanges, one after the other: each is expected, then pushed, and later its frames are taken in sender order.

    Several may be under way; they arrive in the order in which they were expected.
    """

    def expect(self, round_idx: int, step: int, senders: Sequence[Expected]) -> None:
        """Say whose frames the next exchange will bring, in sender order."""

    def push(self, frames: Sequence[tuple[int, Frame]]) -> None:
        """Start sending a frame to each rank, in the exchange expected last; they must never change afterwards."""

    def flush(self, *, keep: int) -> None:
        """Wait until the frames of all exchanges have left, those of the newest `keep` excepted."""

    def arrivals(self) -> Iterator[Frame]:
        """Each frame of the oldest exchange in sender order; valid until the next one is asked for."""


@dataclass
class Coming:
    """The frames that one exchange will bring."""

    round_idx: int
    step: int
    not_posted: deque[Expected]
    posted: deque[tuple[Expected, Waitable, Tensor]] = field(default_factory=deque)

    def frame_from(self, sender: int) -> str:
        return f"the frame of rank {sender} in round {self.round_idx}"


class GlooTransport:
    """Point-to-point over gloo: at most `window` receives of an exchange posted ahead, in sender order."""

    def __init__(
        self,
        group: dist.ProcessGroup,
        *,
        timeout_s: float,
        window: int,
        size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.group, self.timeout_s, self.window = group, timeout_s, window
        self.size, self.dtype, self.device = size, dtype, device
        self.exchanges = 0
        self.coming: deque[Coming] = deque()
        self.sending: deque[list[tuple[str, Waitable, Tensor]]] = deque()
        self.free: list[Tensor] = []  # receive buffers, smallest first

    def expect(self, round_idx: int, step: int, senders: Sequence[Expected]) -> None:
        self.exchanges += 1
        self.coming.append(Coming(round_idx, step, deque(senders)))
        for _ in senders[: self.window]:
            self._post_next(self.coming[-1], tag=self._tag(self.exchanges))

    def push(self, frames: Sequence[tuple[int, Frame]]) -> None:
        tag, round_idx = self._tag(self.exchanges), self.coming[-1].round_idx
        sends: list[tuple[str, Waitable, Tensor]] = []
        for receiver, frame in frames:
            host = self._on_host(frame.buffer)
            what = f"rank {receiver} to take the frame of round {round_idx}"
            with blaming(what, self.timeout_s):
                work = dist.isend(host, dst=receiver, group=self.group, tag=tag)
            assert work is not None
            sends.append((what, work, host))  # it must live, unchanged, until the wait
        self.sending.append(sends)

    def flush(self, *, keep: int) -> None:
        while len(self.sending) > keep:
            for what, work, _ in self.sending[0]:
                wait(work, what=what, timeout_s=self.timeout_s)
            self.sending.popleft()

    def arrivals(self) -> Iterator[Frame]:
        tag = self._tag(self.exchanges - len(self.coming) + 1)
        coming = self.coming.popleft()
        while coming.posted:
            (sender, clients), work, buffer = coming.posted.popleft()
            wait(work, what=coming.frame_from(sender), timeout_s=self.timeout_s)
            content = buffer[: Frame.num_bytes(len(clients), self.size, self.dtype)]
            frame = Frame(content.to(self.device), len(clients), self.size, self.dtype)
            frame.check(coming.round_idx, coming.step, sender, clients)
            yield frame
            insort(self.free, buffer, key=len)
            if coming.not_posted:
                self._post_next(coming, tag=tag)

    def _post_next(self, coming: Coming, *, tag: int) -> None:
        sender, clients = coming.not_posted.popleft()
        num_bytes = Frame.num_bytes(len(clients), self.size, self.dtype)
        buffer = self._take_buffer(num_bytes)
        with blaming(coming.frame_from(sender), self.timeout_s):
            work = dist.irecv(buffer[:num_bytes], src=sender, group=self.group, tag=tag)
        assert work is not None
        coming.posted.append(((sender, clients), work, buffer))

    def _take_buffer(self, num_bytes: int) -> Tensor:
        """The smallest free buffer that is large enough; a new one in place of the largest that is not."""
        index = bisect_left(self.free, num_bytes, key=len)
        if index < len(self.free):
            return self.free.pop(index)
        if self.free:
            self.free.pop()
        return self._host_buffer(num_bytes)

    def _on_host(self, buffer: Tensor) -> Tensor:
        """The buffer itself where it is on the host, else a copy there."""
        return buffer if buffer.device.type == "cpu" else self._host_buffer(len(buffer)).copy_(buffer)

    def _host_buffer(self, num_bytes: int) -> Tensor:
        """Room on the host; pinned where it is for a GPU's frames, so that they are copied at full speed."""
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=self.device.type == "cuda")

    @staticmethod
    def _tag(exchange: int) -> int:
        """Exchanges that are under way together must not be mistaken for one another."""
        return exchange % 2**16


@dataclass
class Batch:
    """One exchange in one batch of operations; all that is sent and received in it lives until it has arrived."""

    round_idx: int
    step: int
    expected: Sequence[Expected]
    incoming: list[Frame] = field(default_factory=list)
    outgoing: list[Frame] = field(default_factory=list)
    works: list[Waitable] = field(default_factory=list)

    def __str__(self) -> str:
        senders = ", ".join(str(sender) for sender, _ in self.expected)
        return f"the frames of ranks {senders or '(none)'} in round {self.round_idx}"


class BatchedTransport:
    """All sends and receives of an exchange in one batch, issued after the local steps: what NCCL needs."""

    def __init__(
        self, group: dist.ProcessGroup, *, timeout_s: float, size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.group, self.timeout_s, self.size, self.dtype, self.device = group, timeout_s, size, dtype, device
        self.batches: deque[Batch] = deque()

    def expect(self, round_idx: int, step: int, senders: Sequence[Expected]) -> None:
        self.batches.append(Batch(round_idx, step, senders))

    def push(self, frames: Sequence[tuple[int, Frame]]) -> None:
        batch = self.batches[-1]
        batch.incoming = [
            Frame.empty(len(clients), self.size, self.dtype, self.device) for _, clients in batch.expected
        ]
        batch.outgoing = [frame for _, frame in frames]
        operations = [
            dist.P2POp(dist.isend, frame.buffer, receiver, group=self.group)
            for receiver, frame in sorted(frames, key=lambda pair: pair[0])
        ]
        operations += [
            dist.P2POp(dist.irecv, frame.buffer, sender, group=self.group)
            for (sender, _), frame in zip(batch.expected, batch.incoming, strict=True)
        ]
        with blaming(str(batch), self.timeout_s):
            batch.works = list(dist.batch_isend_irecv(operations)) if operations else []

    def flush(self, *, keep: int) -> None:
        """Nothing to do: `arrivals` waits for the whole batch, and the batch holds its frames until then."""

    def arrivals(self) -> Iterator[Frame]:
        batch = self.batches.popleft()
        for work in batch.works:
            wait(work, what=str(batch), timeout_s=self.timeout_s)
        for (sender, clients), frame in zip(batch.expected, batch.incoming, strict=True):
            frame.check(batch.round_idx, batch.step, sender, clients)
            yield frame
