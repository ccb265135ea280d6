"""Start ranks quickly, for tests: one import of torch, then a fork a rank.

python ranks.py N TARGET [ARGUMENT ...] calls TARGET (`module:function`) with the arguments in N processes that have the
environment torchrun would give them. The first that fails makes it ask the others to end, and gives the exit code.
"""

import importlib
import os
import signal
import socket
import sys
import traceback

import torch  # noqa: F401  (imported once, before the fork)

import dfl_dist.train  # noqa: F401


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_rank(rank: int, world_size: int, port: int, target: str, arguments: list[str]) -> int:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    module, _, function = target.partition(":")
    try:
        return int(getattr(importlib.import_module(module), function)(arguments) or 0)
    except BaseException:
        traceback.print_exc()
        return 1


def main(world_size: int, target: str, arguments: list[str]) -> int:
    port, pids = free_port(), []
    for rank in range(world_size):
        pid = os.fork()
        if pid == 0:
            code = run_rank(rank, world_size, port, target, arguments)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        pids.append(pid)
    first_failure = 0
    while pids:
        pid, status = os.wait()
        pids.remove(pid)
        code = os.waitstatus_to_exitcode(status)
        if code and not first_failure:
            first_failure = code
            for other in pids:  # as torchrun does
                os.kill(other, signal.SIGTERM)
    return first_failure


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
