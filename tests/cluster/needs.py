"""What a cluster needs of the machine it is made on."""

import os
import shutil
from collections.abc import Sequence


def missing(what: str, programs: Sequence[str]) -> str | None:
    """Why it cannot be made here; None where it can."""
    if os.geteuid() != 0:
        return f"{what} of one's own needs root"
    absent = [program for program in programs if shutil.which(program) is None]
    return f"not installed: {', '.join(absent)}" if absent else None
