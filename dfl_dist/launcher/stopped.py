"""Ranks that a signal has stopped: they do not end, and where nobody waits for them yet, nobody misses them."""

import time
from collections.abc import Collection

from dfl_dist.launcher.processes import is_stopped

LOOK_S = 0.25
MISSED_S = 2.0  # between two looks: this process was stopped too, perhaps with its whole job


class Watch:
    """Remembers since when processes are stopped."""

    def __init__(self) -> None:
        self.since: dict[int, float] = {}
        self.looked_at = 0.0

    def stopped_for(self, pids: Collection[int]) -> dict[int, float]:
        """Those of these processes that are stopped, and for how many seconds."""
        now = time.monotonic()
        if now - self.looked_at >= LOOK_S:
            known = self.since if now - self.looked_at < MISSED_S else {}
            self.since = {pid: known.get(pid, now) for pid in pids if is_stopped(pid)}
            self.looked_at = now
        return {pid: now - since for pid, since in self.since.items() if pid in pids}
