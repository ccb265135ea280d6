"""Running the trainer from tests: real processes, a timeout, nothing left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

TESTS = Path(__file__).parent
TIMEOUT_S = 120


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    code: int
    out: str
    err: str


def environment() -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "TORCHELASTIC_"))}
    return plain | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS)}


def start(command: list[str], cwd: Path) -> "subprocess.Popen[str]":
    """Start a command as the head of a process group of its own."""
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def finish(process: "subprocess.Popen[str]", timeout_s: float = TIMEOUT_S) -> Finished:
    """Wait for it; whatever happens, its whole process group is gone afterwards."""
    try:
        out, err = process.communicate(timeout=timeout_s)
        return Finished(process.returncode, out, err)
    finally:
        end_group(process)


def end_group(process: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run(command: list[str], cwd: Path, timeout_s: float = TIMEOUT_S) -> Finished:
    return finish(start(command, cwd), timeout_s)


def ranks(world_size: int, target: str, *arguments: str) -> list[str]:
    """The command that calls a function on so many forked ranks."""
    return [sys.executable, str(TESTS / "ranks.py"), str(world_size), target, *arguments]


def torchrun(world_size: int, *arguments: str) -> list[str]:
    """The command a user types."""
    prefix = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={world_size}"]
    return [*prefix, "-m", "dfl_dist.train", *arguments]


def train(world_size: int, out: Path, *arguments: str, target: str = "dfl_dist.train:main") -> Path:
    """Run the trainer on forked ranks into a folder; it must succeed."""
    done = run(ranks(world_size, target, "--out", str(out), *arguments), out.parent)
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
