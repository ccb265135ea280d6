"""Programs for ranks that the launcher starts."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ENVIRONMENT = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")


def show(arguments: list[str]) -> int:
    """Write down who this is."""
    facts = {key: int(os.environ[key]) for key in ENVIRONMENT} | {"arguments": arguments, "pid": os.getpid()}
    facts |= {"path": sys.path[0], "threads": len(os.listdir("/proc/self/task"))}
    Path(f"rank-{os.environ['RANK']}.json").write_text(json.dumps(facts))
    return 0


def fail(arguments: list[str]) -> int:
    """Rank 1 leaves with a code of its own, in the first so many attempts; the others wait for it in vain."""
    attempts, code = map(int, arguments)
    attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
    print(f"rank {rank} says attempt {attempt}", flush=True)
    if attempt >= attempts:
        return 0
    if rank == 1:
        print("this is wrong", file=sys.stderr, flush=True)
        return code
    time.sleep(600)
    return 0


def leave_a_child(arguments: list[str]) -> int:
    """End, with a process left that nobody waits for."""
    child = subprocess.Popen(["sleep", "600"])
    Path("child").write_text(str(child.pid))
    return 0
