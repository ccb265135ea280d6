"""The process from which the agent and the ranks of a job are forked: everything is imported, no kernel has run.

It has one thread, so that a fork of it is as good as a new process. The agent, its first child, asks it for ranks over
a socket and hears on it how they end. It leads a session of its own, and none of its processes outlives it: they have
its death as the signal for their own, and it ends them all when the agent ends.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from dfl_dist.launcher.processes import end_session
from dfl_dist.launcher.rank import WATCHED, become
from dfl_dist.run_folder.status import NEWS
from dfl_dist.signals import ENDING
from dfl_dist.system import end_with_parent, leave

MOST_BYTES = 1 << 20  # of a message
FORK, SPAWN = "fork", "spawn"
DEFAULT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD, signal.SIGPIPE)


def threads_here() -> int:
    return len(os.listdir("/proc/self/task"))


@dataclass(frozen=True)
class Request:
    """A rank that is to be started: what it has in its environment beside the server's, and what it is to call."""

    environment: dict[str, str]
    target: str
    arguments: list[str]
    start: str  # fork | spawn


@dataclass(frozen=True)
class Exit:
    """How a rank ended: its exit code, or the signal that killed it, negative."""

    pid: int
    code: int


class Server:
    """The server as the agent sees it."""

    def __init__(self, way: socket.socket) -> None:
        self.way = way
        self.early: list[Exit] = []  # heard of while waiting for something else

    def start(self, request: Request, files: Sequence[int]) -> int:
        """Start a rank; its process id. `files`: its standard output, standard error, and news."""
        socket.send_fds(self.way, [json.dumps(vars(request)).encode()], list(files))
        while True:
            answer = json.loads(self.way.recv(MOST_BYTES))
            if "started" in answer:
                return int(answer["started"])
            self.early.append(Exit(**answer))

    def exits(self, timeout_s: float = 0.0) -> list[Exit]:
        """The ranks that have ended since it was last asked."""
        found, self.early = self.early, []
        while select.select([self.way], [], [], 0.0 if found else timeout_s)[0]:
            if not (text := self.way.recv(MOST_BYTES)):
                break
            found.append(Exit(**json.loads(text)))
        return found


def serve(run_agent: Callable[[Server], int], parent: int) -> NoReturn:
    """Become the server of a job in a process that `parent` has just started; leave with the agent's exit code.

    It leads a session of its own already.
    """
    end_with_parent(parent)
    for number in ENDING:  # the command decides what a signal means
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, take_no_notice)
    gc.collect()
    gc.freeze()  # what is there now need not be looked at, and so not be copied, in the processes that are forked
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    watched, held = os.pipe()
    server = os.getpid()
    if (agent := os.fork()) == 0:
        ours.close()
        os.close(watched)
        be_agent(run_agent, Server(theirs), server)
    theirs.close()
    os.close(held)
    code = 1
    try:
        code = answer_requests(ours, agent, watched)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    end_session(server)
    leave(code)


def be_agent(run_agent: Callable[[Server], int], server: Server, parent: int) -> NoReturn:
    """The agent's process. Signals do not reach it from a terminal, and it takes none: it ends with its work."""
    code = 1
    try:
        end_with_parent(parent)
        code = run_agent(server)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        leave(code)


def answer_requests(way: socket.socket, agent: int, watched: int) -> int:
    """Start the ranks that the agent asks for and tell it how they end, until it ends itself; its exit code."""
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, take_no_notice)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([way.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, MOST_BYTES)
        while (ended := next_exit()) is not None:
            if ended.pid == agent:
                return ended.code if ended.code >= 0 else 128 - ended.code
            tell(way, vars(ended))
        if way.fileno() in ready:
            text, files = hear(way)
            if text:
                tell(way, {"started": start_rank(Request(**json.loads(text)), files, watched)})
            for file in files:
                os.close(file)


def take_no_notice(number: int, frame: FrameType | None) -> None:
    """A signal that only wakes up, or that is somebody else's to heed."""


def next_exit() -> Exit | None:
    """A child that has ended."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return Exit(pid, os.waitstatus_to_exitcode(status)) if pid else None


def hear(way: socket.socket) -> tuple[bytes, list[int]]:
    """A request of the agent, with its files; that it is gone is heard of by its exit code."""
    try:
        text, files, _, _ = socket.recv_fds(way, MOST_BYTES, 3)
    except OSError:  # it did not read all that it was told
        return b"", []
    return text, files


def tell(way: socket.socket, message: Mapping[str, int]) -> None:
    """Send to the agent, if it is still there."""
    with contextlib.suppress(OSError):
        way.send(json.dumps(message).encode())


def start_rank(request: Request, files: Sequence[int], watched: int) -> int:
    """Fork a rank; its process id."""
    server = os.getpid()
    if (pid := os.fork()) != 0:
        return pid
    try:
        be_rank(request, files, watched, server)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def be_rank(request: Request, files: Sequence[int], watched: int, server: int) -> NoReturn:
    """Let this process, a copy of the server, be a rank."""
    signal.set_wakeup_fd(-1)
    for number in DEFAULT_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    out, err, news = files
    nothing = os.open(os.devnull, os.O_RDONLY)
    for standard, file in enumerate((nothing, out, err)):
        os.dup2(file, standard)
        os.close(file)
    os.environ.update(request.environment | {NEWS: str(news), WATCHED: str(watched)})
    if request.start == SPAWN:
        for file in (news, watched):
            os.set_inheritable(file, True)
        words = [sys.executable, "-m", "dfl_dist.launcher.rank", str(server), request.target, *request.arguments]
        os.execve(sys.executable, words, os.environ)
    become(request.target, request.arguments, server)
