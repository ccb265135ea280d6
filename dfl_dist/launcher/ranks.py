"""A Python module run on several ranks of this host. The only file that knows torchrun."""

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dfl_dist.launcher import processes
from dfl_dist.launcher.processes import Processes

QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # torch warns of every address without a name
TORCHRUN_LINE, TORCHRUN_REPORT = re.compile(r"[EWI]\d{4} "), re.compile(r"E\d{4} ")


@dataclass(frozen=True)
class Meeting:
    """Where the hosts of a job meet, and the place of this host among them."""

    hosts: int
    host: int
    head: str  # the address of host 0, as all hosts reach it
    port: int
    job_id: str
    address: str  # of this host, as the others reach it


@dataclass(frozen=True)
class Program:
    """What to run on each rank of this host."""

    module: str
    arguments: Sequence[str]
    ranks: int | None  # None: one per GPU, or one per core where there is none
    restarts: int = 0  # how often all ranks are started again when one of them fails
    meeting: Meeting | None = None  # None: this host is alone
    logs: Path | None = None  # a folder for what each rank prints

    def torchrun_words(self) -> list[str]:
        """What follows `torchrun` on the command line."""
        words = ["--standalone"]
        if at := self.meeting:
            words = [f"--nnodes={at.hosts}", "--rdzv-backend=c10d", f"--rdzv-endpoint={at.head}:{at.port}"]
            words += [f"--rdzv-id={at.job_id}", f"--rdzv-conf=is_host={int(at.host == 0)}"]
            words += [f"--local-addr={at.address}"]
        words.append(f"--nproc_per_node={self.ranks or 'auto'}")
        if self.restarts:
            words.append(f"--max-restarts={self.restarts}")
        if self.logs:
            words += [f"--log-dir={self.logs}", "--redirects=3", "--tee=0:3"]
        return [*words, "-m", self.module, *self.arguments]

    def command_line(self) -> str:
        """The command that a person could type instead."""
        return shlex.join(["torchrun", *self.torchrun_words()])


def start_ranks(
    program: Program,
    *,
    mark: str,
    environment: Mapping[str, str] | None = None,
    prefix: str | None = None,
    patience_s: float | None = None,
    output: IO[str] | None = None,
) -> Processes:
    """Start a program's ranks. They have this process's environment, with `environment` whatever it says.

    `mark` is by what their processes are found; `prefix` stands before each line that a rank prints, where there are
    logs; `patience_s` is how long they may take to end after a signal.
    """
    defaults = {"OMP_NUM_THREADS": "1", **QUIET}
    if patience_s is not None:
        defaults["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = f"{patience_s:.0f}"
    chosen = dict(environment or {})
    if prefix is not None:
        chosen["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = prefix
    command = [sys.executable, "-m", "torch.distributed.run", *program.torchrun_words()]
    return processes.start(command, mark, {**defaults, **os.environ, **chosen}, output)


def lines_of_ranks(lines: Sequence[str]) -> list[str]:
    """What the ranks printed, without torchrun's own lines and report; of those, only that a rank was killed."""
    end = next((number for number, line in enumerate(lines) if TORCHRUN_REPORT.match(line)), len(lines))
    killed = [line.partition("] ")[2] for line in lines[end : end + 1] if "exitcode: -" in line]
    return [*(line for line in lines[:end] if not TORCHRUN_LINE.match(line)), *killed]
