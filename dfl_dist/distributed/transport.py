"""The interface of what carries frames between the ranks that host clients: bytes, whatever is in them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor


class Incoming(NamedTuple):
    """A message to expect."""

    sender: int
    num_bytes: int


class Outgoing(NamedTuple):
    """A message to send; the same buffer may go to several ranks, and must not change until it has left."""

    receiver: int
    buffer: Tensor


class Transport(Protocol):
    """Exchanges, one after the other: each is expected, then pushed, and later its messages are taken in sender order.

    Several may be in flight; they arrive in the order in which they were expected.
    """

    def expect(self, round_idx: int, messages: Sequence[Incoming]) -> None:
        """Say which messages the next exchange will bring, in sender order."""

    def push(self, messages: Sequence[Outgoing]) -> None:
        """Start sending the messages of the exchange expected last."""

    def flush(self, *, keep: int) -> None:
        """Wait until the messages of all exchanges have left, those of the newest `keep` excepted."""

    def arrivals(self) -> Iterator[Tensor]:
        """Each message of the oldest exchange in sender order; valid until the next one is asked for."""
