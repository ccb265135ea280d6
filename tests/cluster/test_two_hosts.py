"""Lifetimes on two hosts: whichever process of one of them is killed or stopped, the bits are those of a run at peace.

As in distributed/test_lifetimes.py a rank hits at an exact moment. DFL_HITS=5 hits everybody in every phase, five
times each; else there are a few hits.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hitting import AGENT, COMMAND, ITSELF, MEETING, SERVER, Done, Hit, command, read_began, read_hit
from hosts import Host
from launching import assert_same_run, train

ROUNDS, TIMEOUT_S, PATIENCE_S = 12, 2.0, 120.0
EVERY = ("--local.epochs", "1", "--checkpoint.every", "3", "--eval.every", "4", "--graph.out_degree", "1")
SETTINGS = (*EVERY, "--rounds", str(ROUNDS), "--timeout_s", str(TIMEOUT_S))
GONE_WITHIN_S, BUSY = 2.0, 2.0
# Of each phase: the moment, the rank that comes to it, and the how-manieth time. Ranks 2 and 3 are on host 1.
MOMENTS = {
    "meeting": (MEETING, 2, 1),
    "start": ("start", 3, 1),
    "local steps": ("local steps", 2, 5),
    "exchange": ("frames pushed", 3, 8),
    "evaluation": ("evaluation", 0, 2),
    "checkpoint": ("a client's file", 2, 3),
    "finishing": ("model file", 0, 1),
    "report": ("report", 0, 1),
}
QUICK = {(ITSELF, "exchange", "SIGSTOP"), ("0", "local steps", "SIGSTOP"), (COMMAND, "checkpoint", "SIGKILL")}
TIMES = int(os.environ.get("DFL_HITS", "0"))
Record = Callable[[str, object], None]


def cases(victims: tuple[str, ...], signals: tuple[str, ...]) -> list[object]:
    found = [(victim, phase, name) for victim in victims for phase in MOMENTS for name in signals]
    return [pytest.param(*case) for case in found for _ in range(TIMES or int(case in QUICK))]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(None, tmp_path_factory.mktemp("undisturbed") / "run", "--num_clients", "4", *SETTINGS)


class Job:
    """The same command on two hosts, two ranks each."""

    def __init__(self, hosts: list[Host], cwd: Path, hit: Hit) -> None:
        self.hosts, self.cwd, self.env = hosts[:2], cwd, os.environ | hit.variable()
        self.commands = [self.start(number) for number in range(2)]

    def start(self, number: int) -> "subprocess.Popen[str]":
        place = ("--head", self.hosts[0].address, "--hosts", "2", "--host", str(number), "--id", "this", "-n", "2")
        words = self.hosts[number].command(*command(*place, "--out", "run", *SETTINGS))
        with (self.cwd / f"host-{number}.log").open("a") as log:
            both = {"stdout": log, "stderr": log}
            return subprocess.Popen(words, cwd=self.cwd, env=self.env, start_new_session=True, text=True, **both)  # type: ignore[call-overload,no-any-return]

    def members(self, number: int) -> list[int]:
        """The processes of a host that are alive."""
        found = subprocess.run(
            ["ip", "netns", "pids", self.hosts[number].name], capture_output=True, text=True, check=True
        )
        return [int(pid) for pid in found.stdout.split() if state(int(pid)) not in "ZX"]

    def told(self) -> str:
        return "".join((self.cwd / f"host-{number}.log").read_text() for number in range(2))

    def finish_well(self) -> str:
        codes = [process.wait(PATIENCE_S) for process in self.commands]
        assert codes == [0, 0], self.told()
        assert self.members(0) + self.members(1) == [], "processes were left behind"
        return self.told()

    def kill(self) -> None:
        for number in range(2):
            for pid in self.members(number):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self.commands:
            process.wait(20)


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


@contextlib.contextmanager
def started(hosts: list[Host], cwd: Path, hit: Hit) -> Iterator[Job]:
    job = Job(hosts, cwd, hit)
    try:
        yield job
    finally:
        job.kill()


def wait_for_hit(job: Job) -> Done:
    end = time.monotonic() + PATIENCE_S
    while (hit := read_hit(job.cwd)) is None:
        assert time.monotonic() < end, job.told()
        time.sleep(0.002)
    assert hit.state in "RSD", "a process that is alive was hit"
    return hit


def assert_same_end(undisturbed: Path, cwd: Path) -> None:
    assert_same_run(undisturbed, cwd / "run", ROUNDS)
    assert (cwd / "run" / "model.pt").is_file()
    assert (cwd / "run" / "report.html").is_file()
    assert [rank for rank in read_began(cwd) if rank.before] == [], "ranks of two attempts were alive at the same time"


@pytest.mark.parametrize(("victim", "phase", "name"), cases((ITSELF, "0"), ("SIGKILL", "SIGSTOP")))
def test_a_rank_that_is_hit(
    undisturbed: Path,
    four_hosts: list[Host],
    tmp_path: Path,
    victim: str,
    phase: str,
    name: str,
    record_property: Record,
) -> None:
    with started(four_hosts, tmp_path, Hit(*MOMENTS[phase], victim, name)) as job:
        hit = wait_for_hit(job)
        told = job.finish_well()
    again = min(rank.at for rank in read_began(tmp_path) if rank.attempt == 1) - hit.at
    record_property("restart_s", round(again, 2))
    assert again < (TIMEOUT_S if name == "SIGSTOP" else 0) + 2.0 + BUSY, told
    assert_same_end(undisturbed, tmp_path)


@pytest.mark.parametrize(("victim", "phase", "name"), cases((COMMAND, AGENT, SERVER), ("SIGKILL",)))
def test_what_starts_the_ranks_of_a_host_is_killed(
    undisturbed: Path,
    four_hosts: list[Host],
    tmp_path: Path,
    victim: str,
    phase: str,
    name: str,
    record_property: Record,
) -> None:
    """All processes of that host end; the same command, started again there, goes on with the other host."""
    with started(four_hosts, tmp_path, Hit(*MOMENTS[phase], victim, name)) as job:
        hit = wait_for_hit(job)
        host = hit.rank // 2
        while job.members(host):
            assert time.time() < hit.at + GONE_WITHIN_S + BUSY, "processes live on"
            time.sleep(0.01)
        record_property("gone_s", round(time.time() - hit.at, 2))
        job.commands[host].wait(10)
        began = time.time()
        job.commands[host] = job.start(host)
        job.finish_well()
    again = min(rank.at for rank in read_began(tmp_path) if rank.at > began) - began
    record_property("rejoined_s", round(again, 2))
    assert_same_end(undisturbed, tmp_path)
