"""`dfl-dist runs`: how runs stand."""

import json
import os
import socket
from pathlib import Path

import pytest
from run_folders import write_run

from dfl_dist.commands.runs import main
from dfl_dist.report.states import format_age
from dfl_dist.system import born


def lead(folder: Path, **facts: object) -> None:
    (folder / "environment.json").write_text(json.dumps(facts))


def test_how_runs_stand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = {"host": socket.gethostname(), "pid": os.getpid(), "born": born(os.getpid())}
    lead(write_run(tmp_path / "a", [None, 0.5, None, 0.75]), finished_after=4, leader=own)
    lead(write_run(tmp_path / "b", [None, 0.5], algorithm="sgp"), leader=own)
    lead(write_run(tmp_path / "c", [0.25], [{"train_loss": None}]), leader=own)
    lead(write_run(tmp_path / "d", []), leader=own | {"born": "1"})  # a process that has the number by now
    lead(write_run(tmp_path / "e", [0.5]), leader=own | {"host": "elsewhere"})
    lead(write_run(tmp_path / "f", [0.5]))
    for name in ("e", "f"):
        for file in (tmp_path / name).iterdir():
            os.utime(file, (0, 0) if name == "f" else None)
    (tmp_path / "latest").symlink_to("a")
    assert main([str(tmp_path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    found = {Path(line[0]).name: line[1:7] for line in lines}
    assert Path(lines[0][0]).name == "f", "the newest last"
    assert found == {
        "a": ["finished", "dfedsgpsm", "digits", "8", "4/4", "75.00%"],
        "b": ["running", "sgp", "digits", "8", "2/4", "50.00%"],
        "c": ["diverged", "dfedsgpsm", "digits", "8", "1/4", "25.00%"],
        "d": ["unfinished", "dfedsgpsm", "digits", "8", "0/4", "-"],
        "e": ["running", "dfedsgpsm", "digits", "8", "1/4", "50.00%"],
        "f": ["unfinished", "dfedsgpsm", "digits", "8", "1/4", "50.00%"],
    }


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (61, "1 min"), (7300, "2 h"), (200_000, "2 d"), (-3, "0 s")]
)
def test_ages(seconds: float, text: str) -> None:
    assert format_age(seconds) == text
