"""What every push weight must be, from the graphs alone."""

from collections import deque
from collections.abc import Sequence

from dfl_dist.topology.graph import RoundGraph


class Ledger:
    """What every client's w must be, from the graphs alone: rank 0 holds the clients' reports against it."""

    def __init__(self, w: Sequence[float], in_flight: Sequence[Sequence[float]], *, overlap: int, gossip_steps: int):
        self.w, self.in_flight = list(w), deque(list(arriving) for arriving in in_flight)
        self.capacity, self.gossip_steps = overlap * gossip_steps, gossip_steps

    def expect(self, graph: RoundGraph, *, drained: bool) -> list[float]:
        """The w's after a round, given those in `w` before it; `drained` when nothing stays in flight after it."""
        w = self.w
        for _ in range(self.gossip_steps):
            kept, pushed = graph.split(w)
            self.in_flight.append(pushed)
            w = plus(kept, self.in_flight.popleft()) if len(self.in_flight) > self.capacity else kept
        return self.drain(w) if drained else w

    def drain(self, w: Sequence[float]) -> list[float]:
        """These w's with all that is in flight mixed in."""
        total = list(w)
        while self.in_flight:
            total = plus(total, self.in_flight.popleft())
        return total


def plus(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [one + other for one, other in zip(a, b, strict=True)]
