"""Several hosts, each a command of its own on loopback: what the people at each of them see and may set."""

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from forked import HELPERS
from launching import TRAINER, Finished, Running, dfl_dist, ranks, run, running, torchrun_host, train, wait_for_rounds
from ranks import free_port

SHORT = ("--rounds", "4", "--local.steps", "1", "--eval.every", "2", "--report", "false", "--timeout_s", "20")
SLOW = ("--model.name", "small_models:slow")
TINY = ("--model.name", "own_project:tiny")


@contextlib.contextmanager
def launched(
    cwd: Path, common: Sequence[str], own: Sequence[Sequence[str]], **variables: str
) -> Iterator[list[Running]]:
    """The same command on each host, with words of its own; one rank each."""
    place = ("--head", "127.0.0.1", "--port", str(free_port()), "--hosts", str(len(own)), "-n", "1")
    with contextlib.ExitStack() as stack:
        commands = [dfl_dist("launch", *place, "--host", str(host), *common, *words) for host, words in enumerate(own)]
        yield [stack.enter_context(running(command, cwd, **variables)) for command in commands]


def screens(cwd: Path, common: Sequence[str], *own: Sequence[str], **variables: str) -> list[Finished]:
    """How the command ended on each host, and what was seen there."""
    with launched(cwd, common, own, **variables) as jobs:
        return [job.finish() for job in jobs]


def test_rounds_and_end_are_seen_on_every_host_and_each_may_have_its_own_paths(tmp_path: Path) -> None:
    own = ("--out", str(tmp_path / "run"), "--threads", "2", "--data.root", "elsewhere", "--device", "cpu")
    first, second = screens(tmp_path, (*SHORT, "--seed", "3"), ("--out", "run"), own)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "[rank 1] host 1 has rank 1: dfedsgpsm on digits, 2 clients on 2 ranks" in second.err
    for done in (first, second):
        assert "] round 2/4 " in done.err
        assert "] round 4/4 " in done.err
        assert done.err.splitlines()[-1].count("accuracy ") == 1
        assert "finished after round 4 of 4, " in done.out
        assert "results: run (model.pt" in done.out
    assert first.out.splitlines()[1] == second.out.splitlines()[1] != "", "the same scores"
    assert '"threads": [\n  1,\n  2\n ]' in (tmp_path / "run" / "environment.json").read_text()


def test_a_stop_on_one_host_is_told_on_the_other(tmp_path: Path) -> None:
    common = (*SLOW, "--local.steps", "1", "--rounds", "1000", "--report", "false", "--out", "run")
    with launched(tmp_path, common, [(), ()], DFL_TEST_PASS_S="0.01") as jobs:
        wait_for_rounds(tmp_path / "run", 3)
        jobs[1].process.send_signal(signal.SIGINT)
        first, second = (job.finish() for job in jobs)
    assert (first.code, second.code) == (0, 130), first.err + second.err
    for done in (first, second):
        assert "stopped by Ctrl-C (SIGINT) after round" in done.out
    assert "--host 1" in second.out.splitlines()[-1], "how to go on is that host's own command"


def test_settings_that_differ_are_refused_by_name_on_every_host(tmp_path: Path) -> None:
    common = (*SHORT, "--seed", "3", "--out", "run")
    found = screens(tmp_path, common, (), ("--local.lr", "9", "--seed", "3"), ("--local.lr", "8"))
    (line,) = {done.err.splitlines()[-1] for done in found}
    name = line.split("on host 1 (")[1].split(")")[0]
    given = f"given 9.0 on host 1 ({name}) and 8.0 on host 2 ({name})"
    assert line == f"dfl_dist: local.lr: {given}, allowed: 0.03, as on host 0 ({name}), or nothing"
    assert [done.code for done in found] == [2, 2, 2]
    train(2, tmp_path / "run", "--rounds", "1")  # nothing is in the way of it


@pytest.mark.parametrize("refusing", [0, 1])
def test_a_command_line_that_one_host_refuses_is_refused_on_every_host(tmp_path: Path, refusing: int) -> None:
    own = [("--local.rh", "1") if host == refusing else () for host in range(2)]
    found = screens(tmp_path, SHORT, *own)
    assert [done.code for done in found] == [2, 2], found
    line = "local.rh: unknown key, allowed: those of --help (did you mean local.rho?)"
    told = f"launch: host {refusing} ({os.uname().nodename}) refuses: {line}"
    assert f"dfl-dist: {line}" in found[refusing].err.splitlines()
    assert [told in done.err.splitlines() for done in found] == [refusing == 1, refusing == 0]
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("settings", "place", "code"),
    [
        (("--data.name", "own_project:raises_on_rank_1", *TINY), "ValueError in own_project.py, line ", 1),
        (("--data.name", "own_project:no_arrays_on_rank_1", *TINY), "whose train_inputs is not an array: TypeError", 2),
        (("--model.name", "small_models:failing_on_rank_1"), "KeyError in small_models.py, line ", 1),
    ],
    ids=["data that raises", "data that is none", "model in a round"],
)
def test_the_text_of_an_exception_in_user_code_stays_on_its_host(
    tmp_path: Path, settings: tuple[str, ...], place: str, code: int
) -> None:
    """Where pip has installed that code too; on its host it is also kept in the rank's log."""
    installed = tmp_path / "site-packages"
    installed.mkdir()
    for name in ("own_project.py", "small_models.py"):
        shutil.copy(HELPERS / name, installed)
    text = {"own_project:raises_on_rank_1": "no such table", "own_project:no_arrays_on_rank_1": "a sample of Ann"}
    path = f"{installed}{os.pathsep}{HELPERS}"
    first, second = screens(tmp_path, (*SHORT, *settings), (), (), PYTHONPATH=path)
    assert [first.code, second.code] == [code, code], first.err + second.err
    secret = text.get(settings[1], "a layer that is not there")
    assert secret in second.err
    assert secret not in first.err + first.out
    assert first.err.count(place) == second.err.count(place) == 1
    assert "start again" not in first.err + second.err
    logs = tmp_path / "runs" / "latest" / "logs" / "attempt-0"
    assert [secret in (logs / f"rank-000{rank}.log").read_text() for rank in range(2)] == [False, True]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((TRAINER, *SHORT, "--model.name", "small_models:failing_on_rank_1"), "host 1: user code failed: KeyError in "),
        (("broken_trainer:bug_on_rank_1", *SHORT), "host 1: failed: ValueError in setup.py, line "),
        (("own_project:call_and_stumble",), "host 0: user code failed: ZeroDivisionError in own_project.py, line "),
    ],
    ids=["model in a round", "bug of ours", "script"],
)
def test_without_a_launcher_other_hosts_are_told_type_and_place(
    tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    done = run(ranks(2, "ranks:on_hosts", *words), tmp_path)
    (line,) = [line for line in done.err.splitlines() if told in line]
    assert re.search(r"the connection is gone \(.*\); host \d: .* in \w+\.py, line \d+$", line)


def test_the_text_of_a_trackers_import_error_stays_on_its_host(tmp_path: Path) -> None:
    (tmp_path / "torn.py").write_text("raise OSError('the table of Ann')\n")
    done = run(ranks(2, "ranks:on_hosts", TRAINER, *SHORT, "--tracker", "torn:Table"), tmp_path)
    line = "dfl_dist: tracker: importing torn:Table failed: OSError in torn.py, line 1"
    assert sorted(told for told in done.err.splitlines() if "dfl_dist: " in told) == [line, f"{line} (on rank 0)"]
    assert done.err.count("OSError: the table of Ann") == 1, "below the traceback"


def test_a_run_that_diverges_says_why_on_every_host(tmp_path: Path) -> None:
    for done in screens(tmp_path, (*SHORT, "--model.name", "small_models:fragile", "--local.steps", "8"), (), ()):
        assert done.code == 1
        assert done.err.count("dfl_dist: round 1: the training diverged (loss or model not finite at client") == 1


def test_a_rank_that_is_lost_on_one_host_is_told_on_the_other(tmp_path: Path) -> None:
    common = (*SLOW, *SHORT, "--rounds", "60", "--out", "run")
    with launched(tmp_path, common, [(), ()], DFL_TEST_PASS_S="0.01") as jobs:
        wait_for_rounds(tmp_path / "run", 3)
        os.kill(jobs[1].launched()[-1], signal.SIGKILL)
        first, second = (job.finish() for job in jobs)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    for done in (first, second):
        assert done.err.count("all ranks start again") == 1
        assert "goes on after " in done.err
        assert "finished after round 60 of 60" in done.out
    assert "launch: rank 1 was killed by SIGKILL; all ranks start again (1 of 3)" in second.err


def test_under_torchrun_every_host_hears_of_a_refusal_too(tmp_path: Path) -> None:
    port = free_port()
    with contextlib.ExitStack() as stack:
        commands = [torchrun_host(host, 2, port, *SHORT, "--local.lr", str(host)) for host in range(2)]
        jobs = [stack.enter_context(running(command, tmp_path)) for command in commands]
        found = [job.finish() for job in jobs]
    for done in found:
        assert done.code == 1
        assert done.err.count("dfl_dist: local.lr: given 1.0 on host 1 (") == 1
