"""Messages over NCCL: one batch per exchange."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from dfl_dist.distributed.positions import count_sent
from dfl_dist.distributed.transport import Incoming, Outgoing
from dfl_dist.distributed.waiting import Waitable, blaming, wait


@dataclass
class Batch:
    """One exchange in one batch of operations; all that is sent and received in it lives until it has arrived."""

    round_idx: int
    number: int  # of all exchanges, counted from 1
    expected: Sequence[Incoming]
    incoming: list[Tensor] = field(default_factory=list)
    outgoing: Sequence[Outgoing] = ()
    works: list[Waitable] = field(default_factory=list)
    issued: float = 0.0

    def __str__(self) -> str:
        senders = ", ".join(str(message.sender) for message in self.expected)
        return f"the frames of ranks {senders or '(none)'} in round {self.round_idx + 1}"


class BatchedTransport:
    """All sends and receives of an exchange in one batch, issued after the local steps: what NCCL needs."""

    def __init__(self, group: dist.ProcessGroup, *, timeout_s: float, device: torch.device) -> None:
        self.group, self.timeout_s, self.device = group, timeout_s, device
        self.exchanges = 0
        self.batches: deque[Batch] = deque()

    def expect(self, round_idx: int, messages: Sequence[Incoming]) -> None:
        self.exchanges += 1
        self.batches.append(Batch(round_idx, self.exchanges, messages))

    def push(self, messages: Sequence[Outgoing]) -> None:
        batch = self.batches[-1]
        batch.incoming = [
            torch.empty(message.num_bytes, dtype=torch.uint8, device=self.device) for message in batch.expected
        ]
        batch.outgoing = sorted(messages, key=lambda message: message.receiver)
        operations = [
            dist.P2POp(dist.isend, message.buffer, message.receiver, group=self.group) for message in batch.outgoing
        ]
        operations += [
            dist.P2POp(dist.irecv, buffer, message.sender, group=self.group)
            for message, buffer in zip(batch.expected, batch.incoming, strict=True)
        ]
        with blaming(str(batch), self.timeout_s):
            batch.works = list(dist.batch_isend_irecv(operations)) if operations else []
        batch.issued = time.monotonic()
        count_sent("frame")

    def flush(self, *, keep: int) -> None:
        """Nothing to do: `arrivals` waits for the whole batch, and the batch holds its buffers until then."""

    def arrivals(self) -> Iterator[Tensor]:
        batch = self.batches.popleft()
        senders, needs = [message.sender for message in batch.expected], ("frame", batch.number)
        since_s = time.monotonic() - batch.issued
        for work in batch.works:
            wait(work, what=str(batch), timeout_s=self.timeout_s, peers=senders, needs=needs, since_s=since_s)
        yield from batch.incoming
