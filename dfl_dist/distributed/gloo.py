"""Messages over gloo, point to point."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from dfl_dist.distributed.frames import BufferPool
from dfl_dist.distributed.positions import count_sent
from dfl_dist.distributed.transport import Incoming, Outgoing
from dfl_dist.distributed.waiting import Waitable, blaming, wait

TAGS = 2**16  # exchanges in flight together must not be mistaken for one another


@dataclass
class Arriving:
    """The messages that one exchange will bring."""

    round_idx: int
    number: int  # of all exchanges, counted from 1
    not_posted: deque[Incoming]
    posted: deque[tuple[Incoming, Waitable, Tensor]] = field(default_factory=deque)

    @property
    def tag(self) -> int:
        return self.number % TAGS

    def describe(self, sender: int) -> str:
        return f"the frame of rank {sender} in round {self.round_idx + 1}"


class GlooTransport:
    """At most `window` receives of an exchange are posted ahead, in sender order.

    gloo takes and gives bytes on the host; those for a GPU go through pinned memory.
    """

    def __init__(self, group: dist.ProcessGroup, *, timeout_s: float, window: int, device: torch.device) -> None:
        self.group, self.timeout_s, self.window, self.device = group, timeout_s, window, device
        self.exchanges = 0
        self.arriving: deque[Arriving] = deque()
        self.sending: deque[list[tuple[int, str, Waitable, Tensor]]] = deque()
        self.pool = BufferPool(torch.device("cpu"), pinned=device.type == "cuda")

    def expect(self, round_idx: int, messages: Sequence[Incoming]) -> None:
        self.exchanges += 1
        self.arriving.append(Arriving(round_idx, self.exchanges, deque(messages)))
        for _ in messages[: self.window]:
            self._post_next(self.arriving[-1])

    def push(self, messages: Sequence[Outgoing]) -> None:
        exchange = self.arriving[-1]
        on_host = {id(buffer): self._to_host(buffer) for _, buffer in messages}  # once each, not once per receiver
        sends: list[tuple[int, str, Waitable, Tensor]] = []
        for receiver, buffer in messages:
            what = f"rank {receiver} to take the frame of round {exchange.round_idx + 1}"
            host = on_host[id(buffer)]
            with blaming(what, self.timeout_s):
                work = dist.isend(host, dst=receiver, group=self.group, tag=exchange.tag)
            assert work is not None
            sends.append((receiver, what, work, host))  # it must live, unchanged, until the wait
        self.sending.append(sends)
        count_sent("frame")

    def flush(self, *, keep: int) -> None:
        while len(self.sending) > keep:
            for receiver, what, work, _ in self.sending[0]:
                wait(work, what=what, timeout_s=self.timeout_s, peers=(receiver,))
            self.sending.popleft()

    def arrivals(self) -> Iterator[Tensor]:
        exchange = self.arriving.popleft()
        while exchange.posted:
            message, work, buffer = exchange.posted.popleft()
            what, needs = exchange.describe(message.sender), ("frame", exchange.number)
            wait(work, what=what, timeout_s=self.timeout_s, peers=(message.sender,), needs=needs)
            yield buffer[: message.num_bytes].to(self.device)
            self.pool.give_back(buffer)
            if exchange.not_posted:
                self._post_next(exchange)

    def _post_next(self, exchange: Arriving) -> None:
        message = exchange.not_posted.popleft()
        buffer = self.pool.take(message.num_bytes)
        with blaming(exchange.describe(message.sender), self.timeout_s):
            work = dist.irecv(buffer[: message.num_bytes], src=message.sender, group=self.group, tag=exchange.tag)
        assert work is not None
        exchange.posted.append((message, work, buffer))

    def _to_host(self, buffer: Tensor) -> Tensor:
        """The buffer itself where it is on the host, else a copy there."""
        if buffer.device.type == "cpu":
            return buffer
        return torch.empty(len(buffer), dtype=torch.uint8, pin_memory=self.pool.pinned).copy_(buffer)
