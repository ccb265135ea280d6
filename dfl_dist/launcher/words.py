"""What a launcher says of its ranks."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def what_follows(allowed: int, left: int, *, asked_to_stop: bool) -> str:
    """What becomes of a job after a failure, by the restarts that it had and has."""
    if left and not asked_to_stop:
        return f"all ranks start again ({allowed - left + 1} of {allowed})"
    return "no restart is left" if allowed and not asked_to_stop else "the job ends"


def describe(failed: dict[int, int]) -> str:
    """Which rank failed, and how; one that was killed rather than those that missed it."""
    rank = min(failed, key=lambda rank: (failed[rank] >= 0, rank))
    more = f" and {len(failed) - 1} more" if len(failed) > 1 and failed[rank] >= 0 else ""
    return f"rank {rank}{more} {how(failed[rank])}"


def how(code: int) -> str:
    if code >= 0:
        return f"left with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


@contextmanager
def said_after(patience_s: float, text: str) -> Iterator[None]:
    """Say something where what is done here takes longer than this."""
    patience = threading.Timer(patience_s, say, [text])
    patience.daemon = True
    patience.start()
    try:
        yield
    finally:
        patience.cancel()


def say(text: str) -> None:
    """A line of the launcher's own."""
    print(f"launch: {text}", file=sys.stderr, flush=True)
