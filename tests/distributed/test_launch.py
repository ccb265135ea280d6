"""`dfl-dist launch` with real ranks: clean stops, mistakes without restarts, several hosts, the status folder."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launching import HELPERS, Running, assert_same_run, dfl_dist, lines, run, running, wait_for_rounds
from ranks import free_port

from dfl_dist import train
from dfl_dist.run_folder.folder import read_environment
from dfl_dist.run_folder.status import read_ending

SMALL = ("--model.name", "small_models:slow", "--local.steps", "1", "--report", "false")


def launch(*arguments: str) -> list[str]:
    return dfl_dist("launch", *arguments)


def test_a_run_and_what_a_script_learns_of_it(tmp_path: Path) -> None:
    done = run(launch("-n", "2", "--status", "status", "--logs", "logs", "--rounds", "2", *SMALL), tmp_path)
    assert done.code == 0, done.err
    assert (tmp_path / "status" / "ending").read_text() == "finished\n"
    assert (tmp_path / "status" / "run").resolve() == (tmp_path / "runs" / "dfedsgpsm-digits-001").resolve()
    for rank in (0, 1):
        log = (tmp_path / "logs" / "attempt-0" / f"rank-000{rank}.log").read_text()
        assert ("round 2/2" in log) == (rank == 0)
    assert "finished after round 2 of 2" in done.out


def test_a_mistake_that_only_the_ranks_see_is_told_once_and_not_tried_again(tmp_path: Path) -> None:
    done = run(launch("-n", "2", "--model.name", "resnet"), tmp_path)
    assert done.code == 2, done.err
    (line,) = done.err.splitlines()
    assert line.startswith("dfl_dist: model.name: given resnet, allowed: digits_mlp")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_diverges_is_not_tried_again(tmp_path: Path) -> None:
    diverging = ("--model.name", "small_models:fragile", "--local.rho", "0", "--local.steps", "2", "--report", "false")
    done = run(launch("-n", "2", "--rounds", "60", "--status", "status", *diverging), tmp_path)
    assert done.code == 1
    assert done.err.count("the training diverged") == 1
    assert read_ending(tmp_path / "status") == "failed"


def test_a_signal_stops_after_the_round(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with running(launch("-n", "2", "--rounds", "100000", "--out", "run", *SMALL), tmp_path) as job:
        wait_for_rounds(folder, 3)
        job.process.send_signal(signal.SIGINT)
        done = job.finish()
        assert not job.members(), "processes were left behind"
    assert done.code == 128 + signal.SIGINT
    assert "stopped by Ctrl-C (SIGINT) after round" in done.out
    assert f"go on with: dfl-dist launch -n 2 --resume {folder.name}\n" in done.out
    assert "Traceback" not in done.err
    count = len(lines(folder / "metrics.jsonl"))
    assert (folder / "checkpoints" / f"round-{count:06d}" / "manifest.json").is_file()
    assert not (folder / "STOP").exists()


def test_a_signal_before_the_run_begins_ends_it(tmp_path: Path) -> None:
    late = ("--data.name", "own_project:late", "--model.name", "own_project:tiny")
    with running(launch("-n", "2", *late), tmp_path) as job:
        wait_for_ranks(job, 2)
        job.process.send_signal(signal.SIGTERM)
        done = job.finish()
        assert not job.members()
    assert done.code == 128 + signal.SIGTERM
    assert done.err.splitlines()[-1] == "launch: stopped by SIGTERM, before the run began"


def wait_for_ranks(job: Running, count: int) -> None:
    """Wait until so many ranks were started, beside the fork server and the agent."""
    end = time.monotonic() + 60
    while len(job.launched()) < 2 + count:
        assert time.monotonic() < end, "there are no ranks"
        time.sleep(0.05)


def on_two_hosts(tmp_path: Path, *arguments: str) -> list[int]:
    """Exit codes of two launches that meet on this machine as if they were two hosts."""
    place = ("--head", "127.0.0.1", "--port", str(free_port()), "--hosts", "2", "-n", "1", *arguments)
    env = os.environ | {"PYTHONPATH": str(HELPERS)}
    hosts = [
        subprocess.Popen(launch("--host", host, *place), cwd=tmp_path, env=env, stderr=subprocess.DEVNULL)
        for host in ("1", "0")  # the head comes last, and is waited for
    ]
    try:
        return [host.wait(120) for host in hosts]
    finally:
        for host in hosts:
            host.terminate()
            host.wait(60)


def test_two_hosts_end_with_the_bits_of_one(tmp_path: Path) -> None:
    settings = {"num_clients": "4", "rounds": "4", "checkpoint.every": "4", "graph.out_degree": "1"}
    settings |= {"model.name": "small_models:slow", "local.steps": "1", "report": "false"}
    words = [f"--{key}={value}" for key, value in settings.items()]
    assert on_two_hosts(tmp_path, "--out", "run", *words) == [0, 0]
    alone = train({**settings, "out": str(tmp_path / "alone")}).folder
    assert_same_run(alone, tmp_path / "run", 4)


def test_both_hosts_hear_of_a_mistake(tmp_path: Path) -> None:
    assert on_two_hosts(tmp_path, "--model.name", "resnet") == [2, 2]


@pytest.mark.parametrize(("words", "world_size"), [((), 1), (("-n", "2"), 2)])
def test_train_is_one_process_or_so_many_ranks(tmp_path: Path, words: tuple[str, ...], world_size: int) -> None:
    """`python -m dfl_dist` is the same command."""
    settings = ("--num_clients", "2", "--rounds", "1", "--local.steps", "1", "--report", "false", "--out", "run")
    done = run([sys.executable, "-m", "dfl_dist", "train", *words, *settings], tmp_path)
    assert done.code == 0, done.err
    assert read_environment(tmp_path / "run")["world_size"] == world_size
