"""Frames between the ranks that host clients, over gloo or NCCL, and nothing else."""

import struct
from collections import deque
from collections.abc import Iterator, Sequence
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
    """One exchange: expect, then push, then take what arrives in sender order."""

    def expect(self, round_idx: int, step: int, senders: Sequence[Expected]) -> None:
        """Say whose frames this exchange will bring, in sender order."""

    def flush(self) -> None:
        """Wait until the frames pushed last may be overwritten."""

    def push(self, frames: Sequence[tuple[int, Frame]]) -> None:
        """Start sending a frame to each rank; they must not change until `flush`."""

    def arrivals(self) -> Iterator[Frame]:
        """Each expected frame in sender order; valid until the next one is asked for."""


class GlooTransport:
    """Point-to-point over gloo: at most `window` receives posted ahead, in sender order."""

    def __init__(
        self,
        group: dist.ProcessGroup,
        *,
        timeout_s: float,
        window: int,
        largest_block: int,
        size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.group, self.timeout_s, self.window = group, timeout_s, window
        self.size, self.dtype, self.device = size, dtype, device
        self.room = Frame.num_bytes(largest_block, size, dtype)
        self.free: list[Tensor] = []
        self.sending: list[tuple[str, Waitable, Tensor]] = []
        self.posted: deque[tuple[Expected, Waitable, Tensor]] = deque()
        self.not_posted: deque[Expected] = deque()
        self.round_idx = self.step = 0

    def expect(self, round_idx: int, step: int, senders: Sequence[Expected]) -> None:
        self.round_idx, self.step = round_idx, step
        self.not_posted.extend(senders)
        for _ in senders[: self.window]:
            self._post_next()

    def _post_next(self) -> None:
        sender, clients = self.not_posted.popleft()
        buffer = self.free.pop() if self.free else torch.empty(self.room, dtype=torch.uint8)
        message = buffer[: Frame.num_bytes(len(clients), self.size, self.dtype)]
        with blaming(self._frame_from(sender), self.timeout_s):
            work = dist.irecv(message, src=sender, group=self.group)
        assert work is not None
        self.posted.append(((sender, clients), work, buffer))

    def flush(self) -> None:
        for what, work, _ in self.sending:
            wait(work, what=what, timeout_s=self.timeout_s)
        self.sending.clear()

    def push(self, frames: Sequence[tuple[int, Frame]]) -> None:
        for receiver, frame in frames:
            host = frame.buffer.cpu()  # the same buffer where it is on the host already
            what = f"rank {receiver} to take the frame of round {self.round_idx}"
            with blaming(what, self.timeout_s):
                work = dist.isend(host, dst=receiver, group=self.group)
            assert work is not None
            self.sending.append((what, work, host))  # it must live, unchanged, until the wait

    def arrivals(self) -> Iterator[Frame]:
        while self.posted:
            (sender, clients), work, buffer = self.posted.popleft()
            wait(work, what=self._frame_from(sender), timeout_s=self.timeout_s)
            frame = Frame(buffer.to(self.device), len(clients), self.size, self.dtype)
            frame.check(self.round_idx, self.step, sender, clients)
            yield frame
            self.free.append(buffer)
            if self.not_posted:
                self._post_next()

    def _frame_from(self, sender: int) -> str:
        return f"the frame of rank {sender} in round {self.round_idx}"


class BatchedTransport:
    """All sends and receives of an exchange in one batch, issued after the local steps: what NCCL needs."""

    def __init__(
        self, group: dist.ProcessGroup, *, timeout_s: float, size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.group, self.timeout_s, self.size, self.dtype, self.device = group, timeout_s, size, dtype, device
        self.expected: Sequence[Expected] = ()
        self.incoming: list[Frame] = []
        self.works: list[Waitable] = []
        self.round_idx = self.step = 0

    def expect(self, round_idx: int, step: int, senders: Sequence[Expected]) -> None:
        self.round_idx, self.step, self.expected = round_idx, step, senders

    def flush(self) -> None:
        """Nothing to do: `arrivals` waits for the whole batch."""

    def push(self, frames: Sequence[tuple[int, Frame]]) -> None:
        self.incoming = [Frame.empty(len(clients), self.size, self.dtype, self.device) for _, clients in self.expected]
        operations = [
            dist.P2POp(dist.isend, frame.buffer, receiver, group=self.group)
            for receiver, frame in sorted(frames, key=lambda pair: pair[0])
        ]
        operations += [
            dist.P2POp(dist.irecv, frame.buffer, sender, group=self.group)
            for (sender, _), frame in zip(self.expected, self.incoming, strict=True)
        ]
        with blaming(self._frames(), self.timeout_s):
            self.works = list(dist.batch_isend_irecv(operations)) if operations else []

    def arrivals(self) -> Iterator[Frame]:
        for work in self.works:
            wait(work, what=self._frames(), timeout_s=self.timeout_s)
        for (sender, clients), frame in zip(self.expected, self.incoming, strict=True):
            frame.check(self.round_idx, self.step, sender, clients)
            yield frame

    def _frames(self) -> str:
        return f"the frames of ranks {', '.join(str(sender) for sender, _ in self.expected)} in round {self.round_idx}"
