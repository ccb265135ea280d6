"""The transport of one process that hosts all clients: nothing is sent."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from dfl_dist.distributed.transport import Incoming, Outgoing


class NobodyElse:
    """The transport of the only rank."""

    def expect(self, round_idx: int, messages: Sequence[Incoming]) -> None: ...

    def push(self, messages: Sequence[Outgoing]) -> None: ...

    def flush(self, *, keep: int) -> None: ...

    def arrivals(self) -> Iterator[Tensor]:
        return iter(())
