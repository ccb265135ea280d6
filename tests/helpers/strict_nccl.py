"""A strict model of NCCL's point-to-point calls, in place of torch.distributed under the batched transport.

Ranks are threads. NCCL knows no tags, so a message is the next one of its pair. A rank's batches are done one after the
other, as on NCCL's stream: bytes go from a send to a receive only while both batches are the oldest of their ranks. The
first message of a pair connects it, for which `batch_isend_irecv` itself waits, unless a collective has done so before.
What goes wrong silently on a GPU is an error here: a buffer that is touched in flight, a receive without its send, a
size that does not fit, and everything that would wait for ever.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

POISON = 0xA5
isend, irecv = "send", "receive"


@dataclass
class Communicator:
    """What is common to all ranks: their streams, and which pairs are connected."""

    size: int
    stuck_s: float = 5.0  # after which a wait is for ever
    changed: threading.Condition = field(default_factory=threading.Condition)
    connected: set[frozenset[int]] = field(default_factory=set)
    contacts: int = 0  # pairs that were connected by their first message

    def __post_init__(self) -> None:
        self.streams: list[deque[Batch]] = [deque() for _ in range(self.size)]

    def rank(self, number: int) -> "Rank":
        return Rank(self, number)

    def connect_all(self) -> None:
        """What one collective of all ranks does."""
        self.connected = {frozenset((one, other)) for one in range(self.size) for other in range(one)}

    def wait_until(self, is_so: Any, what: str, timeout_s: float) -> None:
        """Wait, with the lock held, in NCCL's words."""
        if not self.changed.wait_for(is_so, timeout_s):
            raise RuntimeError(f"{what}: timed out")

    def proceed(self) -> None:
        """Carry out whatever can be: the oldest batches of all ranks, until nothing fits any more."""
        while any(self._match(sender) for sender in range(self.size)):
            for stream in self.streams:
                while stream and stream[0].is_done:
                    stream.popleft()
        self.changed.notify_all()

    def _match(self, sender: int) -> bool:
        if not self.streams[sender]:
            return False
        moved = False
        for sent in self.streams[sender][0].left(isend):
            oldest = self.streams[sent.peer][0] if self.streams[sent.peer] else None
            waiting = [received for received in oldest.left(irecv) if received.peer == sender] if oldest else []
            if waiting and frozenset((sender, sent.peer)) in self.connected:
                waiting[0].take(sent)
                moved = True
        return moved


@dataclass(frozen=True)
class Rank:
    """A rank's end of the communicator, in place of a process group."""

    world: Communicator
    number: int


@dataclass
class P2POp:
    """A send or a receive."""

    kind: str
    buffer: Tensor
    peer: int
    group: Rank
    done: bool = False

    def __post_init__(self) -> None:
        if self.kind == irecv:
            self.buffer.fill_(POISON)
        self.at_issue = self.buffer.clone()

    def take(self, sent: "P2POp") -> None:
        """Receive what was sent."""
        assert len(self.buffer) == len(sent.buffer), "NCCL would wait for ever, or write beyond a buffer"
        for one in (self, sent):
            one.check_untouched()
        self.buffer.copy_(sent.buffer)
        self.at_issue = self.buffer.clone()
        self.done = sent.done = True

    def check_untouched(self) -> None:
        assert torch.equal(self.buffer, self.at_issue), f"the buffer of a {self.kind} was touched in flight"


@dataclass
class Batch:
    """The operations of one call; done when all of them are."""

    rank: Rank
    operations: Sequence[P2POp]
    issued: float = field(default_factory=time.monotonic)

    @property
    def is_done(self) -> bool:
        return all(operation.done for operation in self.operations)

    def left(self, kind: str) -> list[P2POp]:
        return [operation for operation in self.operations if operation.kind == kind and not operation.done]

    def wait(self, timeout: timedelta) -> bool:
        """Wait until this is done; the time counts from the moment it was issued."""
        world, left_s = self.rank.world, self.issued + timeout.total_seconds() - time.monotonic()
        with world.changed:
            world.wait_until(lambda: self.is_done, f"rank {self.rank.number}: a batch", left_s)
            for operation in self.operations:
                operation.check_untouched()
        return True


def batch_isend_irecv(operations: Sequence[P2POp]) -> list[Batch]:
    """Issue operations together; for the first message of a pair both of its ranks must be here."""
    assert operations, "an empty batch is an error of torch's"
    rank = operations[0].group
    world, batch = rank.world, Batch(rank, operations)
    with world.changed:
        world.streams[rank.number].append(batch)
        for peer in dict.fromkeys(operation.peer for operation in operations):
            meet(world, rank.number, peer)
        world.proceed()
    return [batch]


def meet(world: Communicator, rank: int, peer: int) -> None:
    """Connect a pair, where that has not been done: both have to say that they want to talk to each other."""
    pair = frozenset((rank, peer))
    if pair in world.connected:
        return

    def is_there() -> bool:
        calls = any(operation.peer == rank for batch in world.streams[peer] for operation in batch.operations)
        return pair in world.connected or calls

    world.changed.notify_all()
    world.wait_until(is_there, f"rank {rank}: the first contact with rank {peer}", world.stuck_s)
    if pair not in world.connected:
        world.connected.add(pair)
        world.contacts += 1
        world.changed.notify_all()
