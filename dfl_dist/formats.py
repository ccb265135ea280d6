"""The format of what is written and sent: run folders, checkpoints, frames. What has another number is refused.

The number rises when a reader of before would misunderstand a writer of now; CHANGELOG.md says when it may.
"""

from collections.abc import Mapping
from typing import Any

FORMAT = 1
UNNUMBERED = 1  # the format of what was written before it had a number


def format_of(facts: Mapping[str, Any]) -> Any:
    """The format that an environment.json or a manifest names."""
    return facts.get("format", UNNUMBERED)


def described(facts: Mapping[str, Any]) -> str:
    """The format of a run folder in words, and who wrote it."""
    versions = facts.get("versions")
    writer = versions.get("dfl_dist") if isinstance(versions, dict) else None
    return f"format {format_of(facts)}" + (f" (written by dfl_dist {writer})" if writer else "")
