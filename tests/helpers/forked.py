"""Asking the fork server for ranks, see fork_server.py."""

import atexit
import fcntl
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

HELPERS = Path(__file__).parent
SERVER_WITHIN_S = 60.0  # for the import of torch on a busy machine
ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Ranks:
    """A function to be called on forked ranks; with no number of them, in one process without torchrun."""

    world_size: int | None
    target: str
    arguments: tuple[str, ...]


def environment() -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "TORCHELASTIC_"))}
    return plain | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(HELPERS)}


@functools.cache
def fork_server() -> socket.socket:
    """The way to the server, which is started when it is first needed and ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, str(HELPERS / "fork_server.py")]
    with theirs:
        server = subprocess.Popen(
            command, stdin=theirs, stdout=subprocess.DEVNULL, env=environment(), start_new_session=True
        )
    ours.settimeout(SERVER_WITHIN_S)

    def end() -> None:
        ours.close()
        server.wait(SERVER_WITHIN_S)

    atexit.register(end)
    return ours


def make_log(name: str) -> int:
    """A file in memory to which several processes write at the same time."""
    file = os.memfd_create(name)
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    return file


class Forked:
    """A job of the server: what a test wants of a `Popen`."""

    def __init__(self, command: Ranks, cwd: Path, env: dict[str, str]) -> None:
        self.returncode: int | None = None
        self.out, self.err = (make_log(name) for name in ("out", "err"))
        self.status, told = os.pipe()
        request = {"cwd": str(cwd), "environment": env, "world_size": command.world_size}
        request |= {"target": command.target, "arguments": command.arguments}
        with ONE_AT_A_TIME:
            socket.send_fds(fork_server(), [json.dumps(request).encode()], [self.out, self.err, told])
            os.close(told)
            self.pid = int(fork_server().recv(64))

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Wait for the job's end; what it wrote."""
        end = time.monotonic() + timeout
        if self.returncode is None:
            ready, _, _ = select.select([self.status], [], [], timeout)
            if not ready:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout, *self.written())
            self.returncode = int(os.read(self.status, 64) or -signal.SIGKILL)
        while Path(f"/proc/{self.pid}").exists() and time.monotonic() < end:
            time.sleep(0.001)
        return self.written()

    def written(self) -> tuple[str, str]:
        """What the job has written until now."""
        out, err = (os.pread(file, os.fstat(file).st_size, 0).decode() for file in (self.out, self.err))
        return out, err

    def close(self) -> None:
        for file in (self.out, self.err, self.status):
            os.close(file)
