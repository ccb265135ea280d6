"""How a rank begins: it will end with its launcher, whatever happens to that; then it calls what it is there for."""

import atexit
import importlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

from dfl_dist.signals import begin_to_leave, take_over
from dfl_dist.system import end_with_parent, leave

WATCHED = "DFL_AGENT"  # a file descriptor that ends when the agent does
LOST_LAUNCHER = 1  # the exit code of a rank whose agent is gone


def end_with_agent(watched: int) -> None:
    """End this process when the agent ends: nobody ever writes to this pipe, and only the agent holds its other end."""

    def watch() -> None:
        os.read(watched, 1)
        os._exit(LOST_LAUNCHER)

    threading.Thread(target=watch, daemon=True, name="watch the agent").start()


def find(target: str) -> Callable[[list[str]], int]:
    """The function that "package.module:function" names."""
    module, _, name = target.partition(":")
    found: Callable[[list[str]], int] = getattr(importlib.import_module(module), name)
    return found


def call(target: str, arguments: Sequence[str], parent: int) -> int:
    """What a rank does from its first line on; its exit code."""
    end_with_parent(parent)
    end_with_agent(int(os.environ[WATCHED]))
    take_over()
    sys.path.insert(0, os.getcwd())  # as `python -m` does: import paths of the user's own project
    sys.argv = [target, *arguments]
    code = find(target)(list(arguments))
    begin_to_leave(code)
    return code


def become(target: str, arguments: Sequence[str], parent: int) -> NoReturn:
    """Let a forked process be a rank, and end as a program does, without what was left to do where it was forked."""
    atexit._clear()
    code = 1
    try:
        code = call(target, arguments, parent)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        leave(code)


if __name__ == "__main__":  # a rank that was started afresh: PARENT TARGET [ARGUMENT ...]
    sys.exit(call(sys.argv[2], sys.argv[3:], int(sys.argv[1])))
