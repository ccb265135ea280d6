"""Dealing with another rank: every wait has a timeout, and the error says who waited for whom."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

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
        raise PeerError(f"waited for {what}: {reason(error, timeout_s)}") from error


def wait(work: Waitable, *, what: str, timeout_s: float) -> None:
    """Wait for one operation."""
    with blaming(what, timeout_s):
        work.wait(timedelta(seconds=timeout_s))


def reason(error: RuntimeError, timeout_s: float) -> str:
    """The backend's complaint in one line, without its source positions and its advice."""
    text = str(error).partition("cc:")[2].partition("] ")[2] or str(error)
    if "imed out" in text or "timeout" in text:
        return f"nothing came within {timeout_s:g} s (timeout_s)"
    return f"the connection is gone ({text.partition('. ')[0].strip()})"
