"""A tracker of a user that cannot be imported any more once a rank of the run was killed."""

from pathlib import Path

from own_trackers import TakesItsTime as TakesItsTime

if Path("killed").exists():
    raise RuntimeError("gone")
