"""Dealing with another rank: every wait has a timeout, and the error says who waited for whom."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

from dfl_dist.distributed.positions import SilenceError, waiting_for
from dfl_dist.errors import PeerError


class Waitable(Protocol):
    """What isend, irecv and asynchronous collectives return."""

    def wait(self, timeout: timedelta = ...) -> bool: ...


@contextmanager
def blaming(what: str, timeout_s: float) -> Iterator[None]:
    """Turn the backend's error into one that completes "waited for …"."""
    try:
        yield
    except PeerError:
        raise
    except RuntimeError as error:
        kind = SilenceError if has_timed_out(error) else PeerError
        raise kind(f"waited for {what}: {reason(error, timeout_s)}") from error


def wait(
    work: Waitable,
    *,
    what: str,
    timeout_s: float,
    peers: Sequence[int] = (),
    needs: tuple[str, int] | None = None,
    since_s: float = 0.0,
) -> None:
    """Wait for one operation: something of these ranks, or a message of a kind that is the n-th of them.

    `since_s` is how long ago it was issued, where the backend counts its timeout from then, as NCCL does.
    """
    with blaming(what, timeout_s), waiting_for(peers, what, needs):
        work.wait(timedelta(seconds=since_s + timeout_s))


def has_timed_out(error: RuntimeError) -> bool:
    text = complaint(error)
    return "imed out" in text or "timeout" in text


def complaint(error: RuntimeError) -> str:
    """What the backend says, without its source positions."""
    return str(error).partition("cc:")[2].partition("] ")[2] or str(error)


def reason(error: RuntimeError, timeout_s: float) -> str:
    """The backend's complaint in one line, without its advice."""
    if has_timed_out(error):
        return f"nothing came within {timeout_s:g} s (timeout_s)"
    return f"the connection is gone ({complaint(error).partition('. ')[0].strip()})"
