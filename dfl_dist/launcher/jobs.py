"""A job on this host: a function run on several ranks. `start` forks their processes; nothing is imported again.

The command that starts a job imports everything and runs no kernel. From it is forked the job's server, from that
the agent and the ranks; where the command has more than one thread, or `spawn` is asked for, they are started afresh.
"""

import contextlib
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from dfl_dist.config.schema import SETTINGS
from dfl_dist.launcher.fork_server import FORK, SPAWN, serve, threads_here
from dfl_dist.launcher.news import MOST_BYTES, Told
from dfl_dist.launcher.processes import end_session
from dfl_dist.launcher.rank import find
from dfl_dist.run_folder.files import write_atomic
from dfl_dist.signals import Interrupt, name_signal

POLL_S = 0.1
HEAD_LOST = 75  # the exit code of an agent that does not reach host 0 any more
TRAINER = "dfl_dist.training.main:main"


@dataclass(frozen=True)
class Meeting:
    """Where the hosts of a job meet, and the place of this host among them."""

    hosts: int = 1
    host: int = 0
    head: str = "127.0.0.1"  # the address of host 0, as all hosts reach it
    port: int = 0
    job_id: str = ""  # the same on all hosts
    address: str = "127.0.0.1"  # of this host, as the others reach it


@dataclass(frozen=True)
class Program:
    """What to run on each rank of this host."""

    target: str  # package.module:function, which takes a list of arguments and gives an exit code
    arguments: Sequence[str]
    ranks: int | None  # None: one per GPU; where there is none 8, or on several hosts one per core
    restarts: int = 0  # how often all ranks are started again when one of them fails
    meeting: Meeting = field(default_factory=Meeting)
    logs: Path | None = None  # a folder for what each rank prints; None: logs/ in the run folder
    start: str = FORK
    timeout_s: float = SETTINGS["timeout_s"].default  # how long a rank may be stopped, until the run says so itself
    refusal: str = ""  # why this host starts nothing, and meets the others only to tell them
    without_gpu: int = 0  # ranks beside one per GPU: a coordinator needs none

    def command_line(self) -> str:
        """The command that a person could type instead."""
        words = ["dfl-dist", "launch", *(["-n", str(self.ranks)] if self.ranks else []), *self.arguments]
        return shlex.join(words)

    def to_text(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_text(cls, text: str) -> "Program":
        values = json.loads(text)
        values |= {"meeting": Meeting(**values["meeting"]), "logs": Path(values["logs"]) if values["logs"] else None}
        return cls(**values)


class Job:
    """A job that was started: its server, and what its ranks have told."""

    def __init__(self, server: int, way: socket.socket) -> None:
        self.server, self.way = server, way
        self.told = Told()
        self.code: int | None = None

    def poll(self) -> int | None:
        """The exit code, once everything has ended; minus a signal's number where the server was killed by one."""
        self._hear()
        if self.code is None:
            pid, status = os.waitpid(self.server, os.WNOHANG)
            if pid:
                self._end(os.waitstatus_to_exitcode(status))
        return self.code

    def stop(self, number: int) -> bool:
        """Ask for an end after the round; whether there is a run that can be asked, else all is ended at once."""
        self._hear()
        if self.code is None and self.told.folder and self.told.folder.is_dir():
            with contextlib.suppress(OSError):  # an agent that is gone
                self.way.send(b"stop")
            with contextlib.suppress(OSError):  # a disk that is full, or gone
                write_atomic(self.told.folder / "STOP", f"{name_signal(number)}\n".encode())
                return True
        self.kill()
        return False

    def kill(self) -> None:
        """End all processes at once."""
        if self.code is None:
            os.kill(self.server, signal.SIGKILL)  # the rest of its session goes with it
            end_session(self.server)
            _, status = os.waitpid(self.server, 0)
            self._end(os.waitstatus_to_exitcode(status))

    def wait(
        self,
        interrupt: Interrupt,
        *,
        on_signal: Callable[[int], None],
        on_poll: Callable[[], None] = lambda: None,
    ) -> int:
        """Wait for the end, and leave no process. On the first signal `on_signal` is called; a second Ctrl-C kills."""
        asked = False
        try:
            while self.poll() is None and not interrupt.at_once:
                if interrupt.number is not None and not asked:
                    on_signal(interrupt.number)
                    asked = True
                on_poll()
                if self.code is None:
                    select.select([self.way], [], [], POLL_S)
        finally:
            self.kill()
        assert self.code is not None
        return self.code

    def _hear(self) -> None:
        while self.code is None and select.select([self.way], [], [], 0)[0]:
            try:
                message = self.way.recv(MOST_BYTES)
            except ConnectionResetError:  # it ended without a look at what was sent to it; what it sent is still there
                continue
            if not message:
                time.sleep(POLL_S)  # the agent is gone, its server about to be
                return
            self.told.add(message)

    def _end(self, code: int) -> None:
        end_session(self.server)
        self._hear()
        self.code = code
        self.way.close()


def start(program: Program, *, environment: Mapping[str, str] | None = None, output: IO[str] | None = None) -> Job:
    """Start a program's ranks. They have this process's environment, with `environment` whatever it says.

    What they print goes to this process's standard output and error, or to the file `output`.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    chosen = dict(environment or {})
    if program.start == FORK:
        find(program.target)  # imported here, once for all ranks
    with theirs:
        if program.start == FORK and threads_here() == 1:
            server = fork_job(program, theirs, chosen, output)
        else:
            why = f"this process has {threads_here()} threads" if program.start == FORK else "as --start says"
            print(f"launch: {why}: ranks are started afresh", file=sys.stderr, flush=True)
            server = spawn_job(program, theirs, chosen, output)
    return Job(server, ours)


def fork_job(program: Program, way: socket.socket, environment: Mapping[str, str], output: IO[str] | None) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    command = os.getpid()
    if (server := os.fork()) != 0:
        return server
    try:
        os.setsid()
        os.environ.update(environment)
        if output is not None:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        be_server(program, way, command)
    finally:
        os._exit(1)


def spawn_job(program: Program, way: socket.socket, environment: Mapping[str, str], output: IO[str] | None) -> int:
    """The same in new processes that have imported nothing yet."""
    text = (
        Program.to_text(program) if program.start == SPAWN else Program(**{**vars(program), "start": SPAWN}).to_text()
    )
    words = [sys.executable, "-m", "dfl_dist.launcher.jobs", str(os.getpid()), str(way.fileno()), text]
    started = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env={**os.environ, **environment},
        pass_fds=[way.fileno()],
        start_new_session=True,
    )
    started.returncode = 0  # it is waited for by its process id
    return started.pid


def be_server(program: Program, way: socket.socket, command: int) -> None:
    from dfl_dist.launcher.engine import run_agent  # torch's engine

    serve(lambda server: run_agent(program, server, way), command)


if __name__ == "__main__":
    be_server(Program.from_text(sys.argv[3]), socket.socket(fileno=int(sys.argv[2])), int(sys.argv[1]))
