"""`dfl-dist launch`: clean stops, mistakes without restarts, several hosts, and what a script learns of it."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from launching import TESTS, Running, assert_same_run, dfl_dist, lines, run, running, train, wait_for_rounds
from ranks import free_port

from dfl_dist import launched
from dfl_dist.cli import main
from dfl_dist.commands.launch import find_way, read
from dfl_dist.config import ConfigError

SMALL = ("--model.name", "small_models:slow", "--local.steps", "1", "--report", "false")


def launch(*arguments: str) -> list[str]:
    return dfl_dist("launch", *arguments)


def test_a_run_and_what_a_script_learns_of_it(tmp_path: Path) -> None:
    done = run(launch("-n", "2", "--status", "status", "--logs", "logs", "--rounds", "2", *SMALL), tmp_path)
    assert done.code == 0, done.err
    assert (tmp_path / "status" / "ending").read_text() == "finished\n"
    assert (tmp_path / "status" / "run").resolve() == (tmp_path / "runs" / "dfedsgpsm-digits-001").resolve()
    for rank in ("0", "1"):
        (log,) = (tmp_path / "logs" / "host-0").glob(f"*/attempt_0/{rank}/stderr.log")
        assert ("round 2/2" in log.read_text()) == (rank == "0")
    assert "[host 0] finished after round 2 of 2" in done.out


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
    assert launched.ending(tmp_path / "status") == "failed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_round(tmp_path: Path, number: int) -> None:
    folder = tmp_path / "run"
    with running(launch("-n", "2", "--rounds", "5000", "--out", "run", *SMALL), tmp_path) as job:
        wait_for_rounds(folder, 3)
        job.process.send_signal(number)
        done = job.finish()
        assert not job.members(), "processes were left behind"
    assert done.code == 128 + number
    assert "stopped by a STOP file after round" in done.out
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
    assert done.code == 143


def wait_for_ranks(job: Running, count: int) -> None:
    """Wait until torchrun has started so many ranks."""
    end = time.monotonic() + 60
    while len(job.torchrun_ranks()) < count:
        assert time.monotonic() < end, "there are no ranks"
        time.sleep(0.05)


def on_two_hosts(tmp_path: Path, *arguments: str) -> list[int]:
    """Exit codes of two launches that meet on this machine as if they were two hosts."""
    place = ("--head", "127.0.0.1", "--port", str(free_port()), "--hosts", "2", "-n", "2", *arguments)
    env = os.environ | {"PYTHONPATH": str(TESTS)}
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
    settings = ("--rounds", "4", "--checkpoint.every", "4", "--graph.out_degree", "1", *SMALL)
    assert on_two_hosts(tmp_path, "--out", "run", *settings) == [0, 0]
    alone = train(1, tmp_path / "alone", "--num_clients", "4", *settings)
    assert_same_run(alone, tmp_path / "run", 4)


def test_both_hosts_hear_of_a_mistake(tmp_path: Path) -> None:
    assert on_two_hosts(tmp_path, "--model.name", "resnet") == [2, 2]


def test_what_torchrun_is_given() -> None:
    here = read(["-n", "3", "--rounds", "5"]).command("127.0.0.1")
    assert here == ["--nproc-per-node=3", "--max-restarts=3", "--standalone", "-m", "dfl_dist.train", "--rounds", "5"]
    there = read(["--head", "a", "--hosts", "3", "--host", "1", "--port", "77", "--id", "x"]).command("10.0.0.2")
    assert there[:2] == ["--nproc-per-node=auto", "--max-restarts=3"]
    assert {"--nnodes=3", "--rdzv-endpoint=a:77", "--rdzv-id=x", "--rdzv-conf=is_host=0"} <= set(there)
    assert "--local-addr=10.0.0.2" in there
    head = read(["--head", "a", "--hosts", "3", "--host", "0", "--doctor"])
    assert "--rdzv-conf=is_host=1" in head.command("10.0.0.1")
    assert head.program == ["-m", "dfl_dist.commands.doctor"]
    assert head.restarts == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--rouds", "3"], "rouds: unknown key, allowed: those of --help (did you mean rounds?)"),
        (["-n", "two"], "ranks: given two, allowed: a whole number, 1 or more"),
        (["-n", "0"], "ranks: given 0, allowed: a whole number, 1 or more"),
        (["--hosts", "2", "--host", "0"], "head: given nothing, allowed: the head's address"),
        (["--hosts", "2", "--head", "a"], "host: given nothing, allowed: which of them this is"),
        (["--hosts", "2", "--head", "a", "--host", "2"], "host: given 2, allowed: 0 to 1, with --hosts 2"),
        (["--hosts", "2", "--head", "no such host", "--host", "0"], "head: given no such host, allowed: an IPv4"),
        (["train"], "launch: given train, allowed: options and settings"),
        (["--doctor", "--rounds", "3"], "doctor: given --rounds, allowed: no settings of a run beside it"),
        (["--status", "/proc/nowhere"], "status: given /proc/nowhere, which cannot be made"),
    ],
)
def test_a_mistake_on_the_command_line_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dfl_dist.commands.launch.start_torchrun", None)
    assert main(["launch", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"dfl-dist: {line}")
    assert said.count("\n") == 1


def test_an_interface_that_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert find_way("a name that nobody asks for") == (
        "127.0.0.1",
        {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"},
    )
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib7")
    with pytest.raises(
        ConfigError, match=r"GLOO_SOCKET_IFNAME: given ib7, allowed: one that is up .* lo \(127.0.0.1\)"
    ):
        find_way("127.0.0.1")


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "--help"]) == 0
    assert "--head V" in capsys.readouterr().out
