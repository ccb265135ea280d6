"""Running the trainer from tests: real processes, a timeout, nothing left behind."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
import torch
from forked import HELPERS, Forked, Ranks, environment

ROOT = HELPERS.parents[1]
TRAINER = "dfl_dist.training.main:main"
TIMEOUT_S = 120


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    code: int
    out: str
    err: str


Command = list[str] | Ranks


class Process(Protocol):
    """A `Popen` or a `Forked`."""

    pid: int
    returncode: Any

    def send_signal(self, number: int, /) -> None: ...

    def communicate(self, *, timeout: float) -> tuple[str, str]: ...


@dataclass(frozen=True)
class Running:
    """A command and all the processes that it started, wherever torchrun put them."""

    process: Process
    token: str

    def members(self) -> list[int]:
        """Those still alive: found by a mark in their environment, or, those that were forked, by their session."""
        mark, found = f"DFL_TEST_TOKEN={self.token}\0".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.has_forked(folder) or mark in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found

    def has_forked(self, folder: Path) -> bool:
        state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
        return isinstance(self.process, Forked) and state not in "ZX" and int(session) == self.process.pid

    def kill(self) -> None:
        end = time.monotonic() + TIMEOUT_S
        while members := self.members():  # again, for those that were just being started
            assert time.monotonic() < end, f"processes {members} cannot be killed"
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)

    def torchrun_ranks(self) -> list[int]:
        """Those of the processes alive that torchrun has started as ranks."""
        found = []
        for pid in self.members():
            with contextlib.suppress(OSError):  # it may just have ended
                if b"\0LOCAL_RANK=" in Path(f"/proc/{pid}/environ").read_bytes():
                    found.append(pid)
        return found

    def launched(self) -> list[int]:
        """What `dfl-dist launch` has started: the fork server, the agent, the ranks in their order."""
        servers = children(self.process.pid)
        return [*servers, *(pid for server in servers for pid in children(server))]

    def ranks(self) -> list[int]:
        """The processes that the command itself has started, in that order: the ranks, of `ranks` and of torchrun."""
        return children(self.process.pid)

    def finish(self, timeout_s: float = TIMEOUT_S) -> Finished:
        """Wait for the command to end by itself."""
        out, err = self.process.communicate(timeout=timeout_s)
        return Finished(self.process.returncode, out, err)


def children(pid: int) -> list[int]:
    """The processes that a process has started, in that order, as far as they are alive."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has ended
        return []


@contextlib.contextmanager
def running(command: Command, cwd: Path, **variables: str) -> Iterator[Running]:
    """Start a command, with further variables in its environment; none of its processes is left afterwards."""
    token = secrets.token_hex(8)
    with start(command, cwd, environment() | variables | {"DFL_TEST_TOKEN": token}) as process:
        job = Running(process, token)
        try:
            yield job
        finally:
            job.kill()


def start(command: Command, cwd: Path, env: dict[str, str]) -> contextlib.AbstractContextManager[Process]:
    if isinstance(command, Ranks):
        return contextlib.closing(Forked(command, cwd, env))
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, env=env, text=True, stdout=pipe, stderr=pipe)


def run(command: Command, cwd: Path, timeout_s: float = TIMEOUT_S, **variables: str) -> Finished:
    with running(command, cwd, **variables) as job:
        return job.finish(timeout_s)


def wait_for_rounds(folder: Path, count: int) -> None:
    """Wait until a run has recorded so many rounds."""
    end, path = time.monotonic() + TIMEOUT_S, folder / "metrics.jsonl"
    while not (path.exists() and path.read_text().count("\n") >= count):
        assert time.monotonic() < end, "the run does not get on"
        time.sleep(0.02)


def ranks(world_size: int, target: str, *arguments: str) -> Ranks:
    """A function called on so many forked ranks."""
    return Ranks(world_size, target, arguments)


def alone(*arguments: str) -> Ranks:
    """The trainer in one process without torchrun, which hosts all clients: `python -m dfl_dist.train`."""
    return Ranks(None, TRAINER, arguments)


def elastic(world_size: int, restarts: int, target: str, *arguments: str) -> Ranks:
    """A function called on so many ranks that torchrun's engine forks, and starts again where one fails."""
    return Ranks(None, "elastic:main", (str(world_size), str(restarts), target, *arguments))


def torchrun(world_size: int, *arguments: str, max_restarts: int = 0, program: str = "-m dfl_dist.train") -> list[str]:
    """The command a user types."""
    words = ["--standalone", f"--nproc_per_node={world_size}", f"--max-restarts={max_restarts}"]
    return [sys.executable, "-m", "torch.distributed.run", *words, *program.split(), *arguments]


def torchrun_host(host: int, hosts: int, port: int, *arguments: str) -> list[str]:
    """The command a user types on each of several hosts, here all on this machine."""
    place = [f"--nnodes={hosts}", f"--node_rank={host}", "--master_addr=127.0.0.1", f"--master_port={port}"]
    return [sys.executable, "-m", "torch.distributed.run", *place, "-m", "dfl_dist.train", *arguments]


def dfl_dist(*words: str) -> list[str]:
    """The command `dfl-dist` as a user types it."""
    return [sys.executable, "-c", "import sys; from dfl_dist.commands.main import main; sys.exit(main())", *words]


def train(
    world_size: int | None, out: Path, *arguments: str, target: str = TRAINER, timeout_s: float = TIMEOUT_S
) -> Path:
    """Run the trainer on forked ranks, or in one process without torchrun, into a folder; it must succeed."""
    command = Ranks(world_size, target, ("--out", str(out), "--report", "false", *arguments))
    done = run(command, out.parent, timeout_s)
    assert done.code == 0, done.err
    return out


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def client_states(run_folder: Path, round_count: int) -> list[dict[str, Any]]:
    """The states of all clients in a checkpoint, in client order."""
    files = sorted((run_folder / "checkpoints" / f"round-{round_count:06d}").glob("client-*.pt"))
    return [torch.load(file, weights_only=True) for file in files]


def assert_same_clients(one: Path, other: Path, round_count: int) -> None:
    """Bit for bit: x and w of every client."""
    pairs = list(zip(client_states(one, round_count), client_states(other, round_count), strict=True))
    assert pairs
    for a, b in pairs:
        assert a["x"].numpy().tobytes() == b["x"].numpy().tobytes(), f"client {a['client']}"
        assert np.float64(a["w"]).tobytes() == np.float64(b["w"]).tobytes(), f"client {a['client']}"


def without_times(run_folder: Path) -> list[dict[str, Any]]:
    """What a run recorded of its rounds, without what differs from machine to machine."""
    recorded = lines(run_folder / "metrics.jsonl")
    return [{key: value for key, value in line.items() if not key.startswith("seconds_")} for line in recorded]


def assert_same_run(one: Path, other: Path, rounds: int) -> None:
    """The same clients to the bit, equal records. The mean model's scores come from an all-reduce, so nearly equal."""
    assert_same_clients(one, other, rounds)
    assert lines(one / "topology.jsonl") == lines(other / "topology.jsonl")
    pairs = list(zip(without_times(one), without_times(other), strict=True))
    assert len(pairs) == rounds
    for a, b in pairs:
        assert list(a) == list(b), f"round {a['round']}"
        assert a == pytest.approx(b, rel=1e-6)
