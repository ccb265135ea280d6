"""The launcher around programs of its ranks: what they find, how they fail, what is left."""

import contextlib
import json
from pathlib import Path
from typing import Any

from forked import Ranks
from launching import Finished, assert_same_clients, dfl_dist, elastic, run, running, train
from ranks import free_port

from dfl_dist.launcher.processes import session_of

SMALL = ("--num_clients", "2", "--rounds", "2", "--local.steps", "1", "--checkpoint.every", "2", "--report", "false")


def facts(folder: Path, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"rank-{rank}.json").read_text())
    return found


def test_what_ranks_find(tmp_path: Path) -> None:
    """As under torchrun; each began with two threads of its own: one watches the agent, one hears signals."""
    done = run(elastic(3, 0, "launched:show", "--a", "b c"), tmp_path)
    assert done.code == 0, done.err
    for rank in range(3):
        told = facts(tmp_path, rank)
        assert told["arguments"] == ["--a", "b c"]
        assert told["path"] == str(tmp_path)
        assert told["threads"] == 3
        expected = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": 3, "LOCAL_WORLD_SIZE": 3}
        assert told | expected == told


def on_hosts(numbers: list[int], cwd: Path) -> list[Finished]:
    """How the launchers of several hosts end that meet on this one."""
    port = free_port()
    with contextlib.ExitStack() as stack:
        commands = [
            Ranks(None, "elastic:on_host", (*map(str, (host, len(numbers), port)), "launched:show")) for host in numbers
        ]
        jobs = [stack.enter_context(running(command, cwd)) for command in commands]
        return [job.finish(30) for job in jobs]


def test_ranks_are_numbered_by_the_hosts_own_numbers(tmp_path: Path) -> None:
    """Whoever comes first: host 0 has one rank here, host 1 two."""
    assert [done.code for done in on_hosts([1, 0], tmp_path)] == [0, 0]
    assert [facts(tmp_path, rank)["GROUP_RANK"] for rank in range(3)] == [0, 1, 1]
    assert [facts(tmp_path, rank)["LOCAL_RANK"] for rank in range(3)] == [0, 0, 1]


def test_two_hosts_with_the_same_number_are_refused(tmp_path: Path) -> None:
    for done in on_hosts([0, 1, 1], tmp_path):
        assert done.code == 2
        assert "launch: host: given 0, 1, 1 on 3 hosts, allowed: each of 0 to 2 on one host\n" in done.err


def test_a_rank_that_fails_is_named_and_all_start_again(tmp_path: Path) -> None:
    done = run(elastic(3, 2, "launched:fail", "1", "7"), tmp_path)
    assert done.code == 0, done.err
    assert "launch: rank 1 left with exit code 7; all ranks start again (1 of 2)\n" in done.err
    assert done.err.count("[rank 1] this is wrong\n") == 1
    assert done.out == "rank 0 says attempt 0\nrank 0 says attempt 1\n", "of the others only what they warn of"


def test_no_restart_is_left(tmp_path: Path) -> None:
    done = run(elastic(2, 1, "launched:fail", "5", "7"), tmp_path)
    assert done.code == 1
    assert done.err.splitlines()[-1] == "launch: rank 1 left with exit code 7; no restart is left"


def test_what_a_rank_leaves_behind_is_ended(tmp_path: Path) -> None:
    done = run(elastic(1, 0, "launched:leave_a_child"), tmp_path)
    assert done.code == 0, done.err
    assert session_of(Path("/proc") / (tmp_path / "child").read_text()) is None


def test_ranks_that_are_started_afresh_have_the_same_bits(tmp_path: Path) -> None:
    alone = train(None, tmp_path / "alone", *SMALL)
    done = run(dfl_dist("launch", "-n", "2", "--start", "spawn", "--out", "run", *SMALL), tmp_path)
    assert done.code == 0, done.err
    assert "launch: as --start says: ranks are started afresh\n" in done.err
    assert_same_clients(alone, tmp_path / "run", 2)


def test_a_command_with_threads_forks_nothing(tmp_path: Path) -> None:
    """It starts the ranks afresh, and says so."""
    code = "import threading, time, sys; threading.Thread(target=time.sleep, args=(600,), daemon=True).start();"
    words = dfl_dist("launch", "-n", "2", "--out", "run", *SMALL)
    words[2] = code + words[2]
    done = run(words, tmp_path)
    assert done.code == 0, done.err
    assert "launch: this process has 2 threads: ranks are started afresh\n" in done.err
