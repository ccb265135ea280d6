"""`dfl-dist watch`: what is refused, what is told, and how it ends."""

import json
import os
import re
import signal
import socket
from http.client import HTTPConnection
from pathlib import Path

import pytest
from launching import dfl_dist, running
from run_folders import ELSEWHERE, HERE, grow, lead, write_run

from dfl_dist.commands.main import main
from dfl_dist.commands.watch import is_held
from dfl_dist.sweep.locks import claim, started_at


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fetch(address: str, path: str) -> bytes:
    connection = HTTPConnection(address.split("/")[2], timeout=20)
    connection.request("GET", path)
    content = connection.getresponse().read()
    connection.close()
    return content


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "run: given runs/latest, allowed: the folder of a run, such as runs/latest, or of several"),
        (["nowhere"], "run: given nowhere, allowed: "),
        (["file"], "run: given file, allowed: "),
        (["others"], "run: given others, allowed: "),
        (["empty", "others"], "watch: given empty others, allowed: one run, or one folder of runs"),
        (["empty", "--prot", "1"], "option: given --prot, allowed: --port (did you mean --port?)"),
        (["empty", "--port", "0"], "port: given 0, allowed: a whole number, 1 to 65535"),
        (["empty", "--port", "65536"], "port: given 65536, allowed: "),
        (["empty", "--port", "http"], "port: given http, allowed: "),
    ],
)
def test_refusals(folder: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "file").touch()
    (folder / "empty").mkdir()
    (folder / "others").mkdir()
    (folder / "others" / "notes.txt").touch()
    assert main(["watch", *words]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"dfl-dist: {told}")


def test_a_port_in_use_is_refused_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lead(write_run(folder / "run", [0.5]), leader=HERE)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["watch", "run", "--port", str(port)]) == 2
    told = f"port: given {port}, allowed: one that is free (Address already in use)"
    assert capsys.readouterr() == ("", f"dfl-dist: {told}\n")


def test_there_is_nothing_to_follow_in_a_run_that_has_ended(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lead(write_run(folder / "runs" / "a", [0.5] * 4), finished_after=4)
    (folder / "runs" / "latest").symlink_to("a")
    told = "dfl-dist watch: nothing to follow: runs/a: finished, 4 rounds; its page"
    assert main(["watch"]) == 0
    assert capsys.readouterr().out == f"{told}: dfl-dist report runs/a --html FILE\n"
    (folder / "runs" / "a" / "report.html").touch()
    assert main(["watch"]) == 0
    assert capsys.readouterr().out == f"{told} is runs/a/report.html\n"


def test_it_ends_with_the_run(folder: Path) -> None:
    run = write_run(folder / "runs" / "a", [0.5])
    lead(run, leader=HERE)
    (folder / "runs" / "latest").symlink_to("a")
    with running(dfl_dist("watch"), folder) as watch:
        assert watch.process.stdout
        line = watch.process.stdout.readline()
        told = re.fullmatch(r"dfl-dist watch: (http://127\.0\.0\.1:\d+/) follows runs/a; Ctrl-C ends it\n", line)
        assert told
        assert b"live, round 1 of 4" in fetch(told[1], "/")
        grow(run, 1)
        lead(run, leader=HERE, finished_after=2)
        done = watch.finish()
    assert (done.code, done.out, done.err) == (0, "dfl-dist watch: runs/a: stopped early, 2 of 4 rounds\n", "")


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "Ctrl-C (SIGINT)"), (signal.SIGTERM, "SIGTERM")])
def test_a_signal_ends_it_and_the_run_takes_no_notice(folder: Path, number: signal.Signals, name: str) -> None:
    lead(write_run(folder / "run", [0.5]), leader=ELSEWHERE)
    before = {path: path.read_bytes() for path in (folder / "run").iterdir()}
    with running(dfl_dist("watch", "run"), folder) as watch:
        assert watch.process.stdout
        address = watch.process.stdout.readline().split()[2]
        assert watch.process.stdout.readline().startswith("dfl-dist watch: its rank 0 is on host elsewhere")
        data = json.loads(fetch(address, "/data.json"))
        assert data["live"]["text"] == "live, round 1 of 4, on host elsewhere"
        watch.process.send_signal(number)
        done = watch.finish()
    assert (done.code, done.out, done.err) == (128 + number, "", f"\ndfl-dist: stopped by {name}\n")
    assert {path: path.read_bytes() for path in (folder / "run").iterdir()} == before


def test_a_folder_that_waits_for_its_first_run_is_followed(folder: Path) -> None:
    (folder / "grid" / "cell").mkdir(parents=True)
    (folder / "grid" / ".sweep-guard").touch()
    with running(dfl_dist("watch", "grid"), folder) as watch:
        assert watch.process.stdout
        address = watch.process.stdout.readline().split()[2]
        assert watch.process.stdout.readline() == "dfl-dist watch: no run has begun there yet: waits 300 s for one\n"
        assert b"no run has begun yet" in fetch(address, "/")


def test_whether_a_sweep_is_at_work_in_a_folder(folder: Path) -> None:
    assert not is_held(folder)
    held = claim(folder / "cell.lock")
    assert not isinstance(held, str)
    assert is_held(folder)
    held.release()
    assert not is_held(folder)
    me = {"host": socket.gethostname(), "pid": os.getpid(), "started": started_at(os.getpid())}
    for other in ({"started": "1"}, {"host": "elsewhere"}):
        (folder / "cell.lock").write_text(json.dumps(me | other))
        assert not is_held(folder), "its process is gone, or not of this host"
