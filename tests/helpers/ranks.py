"""Run a function on several ranks, forked from a process that has imported torch: one import for all of them."""

import ctypes
import importlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence

from torch.distributed import TCPStore

PR_SET_PDEATHSIG = 1  # Linux: the signal that a process gets when its parent ends


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, however that happens."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before it could be asked for
        os._exit(1)


def call(target: str, arguments: Sequence[str]) -> int:
    """Call `module:function` with the arguments as a program would be: its exit code."""
    module, _, function = target.partition(":")
    try:
        return int(getattr(importlib.import_module(module), function)(list(arguments)) or 0)
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1


def on_hosts(arguments: Sequence[str]) -> int:
    """TARGET [ARGUMENT ...]: call the target where each rank is on a host of its own, as torchrun tells it."""
    target, *rest = arguments
    os.environ |= {"GROUP_RANK": os.environ["RANK"], "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    sys.path.insert(0, os.getcwd())  # as `python -m` does
    return call(target, rest)


def run_rank(variables: dict[str, str], target: str, arguments: Sequence[str]) -> int:
    """Fork a process that calls the target; its id."""
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        end_with_parent(parent)
        os.environ |= variables
        code = call(target, arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return pid


def run_ranks(world_size: int | None, target: str, arguments: Sequence[str]) -> int:
    """Call the target on so many ranks, which have the environment that torchrun would give them; the exit code.

    None is one process without torchrun. As with torchrun, the ranks meet in a store of this process, and the first
    rank that fails decides the exit code and makes that the others are asked to end.
    """
    if world_size is None:
        return wait_for([run_rank({}, target, arguments)])
    with socket.socket() as meeting:
        meeting.bind(("127.0.0.1", 0))
        meeting.listen(world_size)  # they may connect before there is a store
        port = meeting.getsockname()[1]
        pids = []
        for rank in range(world_size):
            variables = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "LOCAL_WORLD_SIZE": str(world_size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "TORCHELASTIC_USE_AGENT_STORE": "True",
            }
            pids.append(run_rank(variables, target, arguments))
        # Only now: it has threads, and what is forked from them would not.
        store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=meeting.detach())
    code = wait_for(pids)
    del store
    return code


def wait_for(pids: list[int]) -> int:
    """Wait for all processes; the exit code of the first that failed, which ends the others."""
    first_failure = 0
    while pids:
        pid, status = os.wait()
        pids.remove(pid)
        code = os.waitstatus_to_exitcode(status)
        if code and not first_failure:
            first_failure = code
            for other in pids:
                os.kill(other, signal.SIGTERM)
    return first_failure
