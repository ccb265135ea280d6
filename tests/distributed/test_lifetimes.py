"""Lifetimes under `dfl-dist launch`: whichever process is killed or stopped, the bits are those of a run at peace.

A rank that comes to a chosen moment hits, see helpers/hitting.py; so every hit is exact, and known to have happened.
DFL_HITS=5 hits everybody in every phase, five times each, which takes long; else there are a few hits.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hitting import AGENT, COMMAND, ITSELF, MEETING, SERVER, Done, Hit, command, is_alive, read_began, read_hit
from launching import TIMEOUT_S, Running, assert_same_clients, assert_same_run, lines, running, train

ROUNDS, TIMEOUT_OF_WAITS_S = 12, 1.0
EVERY = ("--local.epochs", "1", "--checkpoint.every", "3", "--eval.every", "4", "--graph.out_degree", "1")
SETTINGS = (*EVERY, "--rounds", str(ROUNDS), "--timeout_s", str(TIMEOUT_OF_WAITS_S))
GONE_WITHIN_S = 2.0
BUSY = 2.0  # how much longer than promised things may take on a machine that does other work too
MOMENTS = {  # of each phase: the moment, the rank that comes to it, and the how-manieth time
    "meeting": (MEETING, 1, 1),
    "start": ("start", 1, 1),
    "local steps": ("local steps", 2, 5),
    "exchange": ("frames pushed", 1, 8),
    "evaluation": ("evaluation", 0, 2),
    "checkpoint": ("a client's file", 1, 3),
    "finishing": ("model file", 0, 1),
    "report": ("report", 0, 1),
}
QUICK = {(ITSELF, "exchange"), (COMMAND, "checkpoint"), (AGENT, "local steps"), (SERVER, "evaluation")}
QUICK_STOPS = {(ITSELF, "local steps"), (AGENT, "exchange"), (ITSELF, "meeting"), (ITSELF, "report")}
MISSED_BY_NOBODY = {"meeting", "report"}  # where ranks wait for minutes, or not yet: then the agent sees who is stopped
TIMES = int(os.environ.get("DFL_HITS", "0"))
Record = Callable[[str, object], None]


def cases(victims: tuple[str, ...], quick: set[tuple[str, str]]) -> list[object]:
    """Some of all phases with all victims, or all, several times."""
    found = [(victim, phase) for victim in victims for phase in MOMENTS]
    return [pytest.param(*case) for case in found for _ in range(TIMES or int(case in quick))]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(None, tmp_path_factory.mktemp("undisturbed") / "run", "--num_clients", "3", *SETTINGS)


def start(cwd: Path, hit: Hit):  # type: ignore[no-untyped-def]
    """The command, with an empty folder for what is temporary."""
    (cwd / "temporary").mkdir(exist_ok=True)
    words = command("-n", "3", "--id", "this", "--out", "run", *SETTINGS)
    return running(words, cwd, TMPDIR=str(cwd / "temporary"), **hit.variable())


def wait_for_hit(cwd: Path) -> Done:
    end = time.monotonic() + TIMEOUT_S
    while (hit := read_hit(cwd)) is None:
        assert time.monotonic() < end, "the moment never came"
        time.sleep(0.002)
    assert hit.state in "RSD", "a process that is alive was hit"
    return hit


def finish_well(job: Running) -> str:
    """What the command says, which ends with exit code 0 and leaves no process."""
    done = job.finish()
    assert done.code == 0, done.err
    assert not job.members(), "processes were left behind"
    return done.err


def assert_same_end(undisturbed: Path, cwd: Path) -> None:
    """All clients of all checkpoints, all records; never two generations of ranks; nothing temporary is left."""
    for rounds in range(3, ROUNDS + 1, 3):
        if (undisturbed / "checkpoints" / f"round-{rounds:06d}").exists():
            assert_same_clients(undisturbed, cwd / "run", rounds)
    assert_same_run(undisturbed, cwd / "run", ROUNDS)
    assert "test_accuracy" in lines(cwd / "run" / "metrics.jsonl")[-1]
    assert (cwd / "run" / "model.pt").is_file()
    assert (cwd / "run" / "report.html").is_file()
    assert [rank for rank in read_began(cwd) if rank.before] == [], "ranks of two attempts were alive at the same time"
    assert list((cwd / "temporary").iterdir()) == []


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def seconds_to_restart(cwd: Path, hit: Done) -> float:
    return round(min(rank.at for rank in read_began(cwd) if rank.attempt == 1) - hit.at, 2)


@pytest.mark.parametrize(("victim", "phase"), cases((ITSELF, "0"), QUICK))
def test_a_rank_that_is_killed(
    undisturbed: Path, tmp_path: Path, victim: str, phase: str, record_property: Record
) -> None:
    with start(tmp_path, Hit(*MOMENTS[phase], victim, "SIGKILL")) as job:
        hit = wait_for_hit(tmp_path)
        told = finish_well(job)
    killed = next(name for name, pid in hit.alive.items() if pid == hit.pid)
    assert f"launch: rank {killed} was killed by SIGKILL; all ranks start again (1 of 3)" in told
    record_property("restart_s", seconds_to_restart(tmp_path, hit))
    assert_same_end(undisturbed, tmp_path)


@pytest.mark.parametrize(("victim", "phase"), cases((ITSELF, "0"), QUICK_STOPS))
def test_a_rank_that_is_stopped(
    undisturbed: Path, tmp_path: Path, victim: str, phase: str, record_property: Record
) -> None:
    """It is named, and ended; nobody waits for it much longer than ranks wait for any message."""
    with start(tmp_path, Hit(*MOMENTS[phase], victim, "SIGSTOP")) as job:
        hit = wait_for_hit(tmp_path)
        told = finish_well(job)
    stopped = next(name for name, pid in hit.alive.items() if pid == hit.pid)
    seen = f"launch: rank {stopped} was stopped for more than {TIMEOUT_OF_WAITS_S:g} s (timeout_s); all ranks start"
    assert (seen if phase in MISSED_BY_NOBODY else f"rank {stopped} is at the root: ") in told
    record_property("restart_s", again := seconds_to_restart(tmp_path, hit))
    assert again < TIMEOUT_OF_WAITS_S + 2.0 + BUSY
    assert_same_end(undisturbed, tmp_path)


@pytest.mark.parametrize("rank", [0, 1] * TIMES or [1])
@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGSTOP"] if TIMES else ["SIGSTOP"])
def test_a_rank_that_is_hit_while_it_leaves(undisturbed: Path, tmp_path: Path, signal_name: str, rank: int) -> None:
    """The run is complete: nothing is started again, and nobody waits for long."""
    with start(tmp_path, Hit("leaving", rank, 1, ITSELF, signal_name)) as job:
        hit = wait_for_hit(tmp_path)
        told = finish_well(job)
    assert time.time() - hit.at < TIMEOUT_OF_WAITS_S + 2.0 + BUSY
    assert "start again" not in told
    assert {each.attempt for each in read_began(tmp_path)} == {0}
    assert_same_end(undisturbed, tmp_path)


@pytest.mark.parametrize(("victim", "phase"), cases((COMMAND, AGENT, SERVER), QUICK))
def test_what_starts_the_ranks_is_killed(
    undisturbed: Path, tmp_path: Path, victim: str, phase: str, record_property: Record
) -> None:
    """All processes end with it, and write nothing more; the same command goes on."""
    hit = Hit(*MOMENTS[phase], victim, "SIGKILL")
    with start(tmp_path, hit) as job:
        done = wait_for_hit(tmp_path)
        others = [pid for name, pid in done.alive.items() if name != COMMAND]
        while any(map(is_alive, others)):
            assert time.time() < done.at + GONE_WITHIN_S + BUSY, "processes live on"
            time.sleep(0.005)
        record_property("gone_s", round(time.time() - done.at, 2))
        assert {rank.attempt for rank in read_began(tmp_path)} == {0}, "ranks were started again"
        before = contents(tmp_path / "run")
        ended = job.finish()
        assert not job.members()
    assert ended.code == (-signal.SIGKILL if victim == COMMAND else 1)
    assert ("was killed by SIGKILL" in ended.err) == (victim != COMMAND)
    assert list((tmp_path / "temporary").iterdir()) == []
    with start(tmp_path, hit) as job:
        assert contents(tmp_path / "run") == before
        finish_well(job)
    assert_same_end(undisturbed, tmp_path)


@pytest.mark.parametrize(("victim", "phase"), cases((COMMAND, AGENT, SERVER), QUICK_STOPS))
def test_what_starts_the_ranks_stands_still_for_a_while(
    undisturbed: Path, tmp_path: Path, victim: str, phase: str
) -> None:
    with start(tmp_path, Hit(*MOMENTS[phase], victim, "SIGSTOP")) as job:
        hit = wait_for_hit(tmp_path)
        time.sleep(2 * TIMEOUT_OF_WAITS_S)
        os.kill(hit.pid, signal.SIGCONT)
        told = finish_well(job)
    assert "start again" not in told
    assert {rank.attempt for rank in read_began(tmp_path)} == {0}
    assert_same_end(undisturbed, tmp_path)
