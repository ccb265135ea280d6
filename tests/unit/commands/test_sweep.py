"""`dfl-dist sweep` on a grid that is finished, or looks interrupted: what is skipped, picked, resumed, refused."""

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from grids import CELLS, GRID, ROUNDS, finish_cells

from dfl_dist.commands import launch
from dfl_dist.commands.main import main
from dfl_dist.config.parse import parse
from dfl_dist.run_folder.folder import CELL, is_of_a_run
from dfl_dist.sweep.locks import GUARD


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    finish_cells(folder)
    return folder


@pytest.fixture
def grid(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A copy of the finished grid, in the current folder."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    return tmp_path / "out"


def test_a_finished_grid_starts_nothing(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in grid.rglob("*") if path.is_file()}
    assert main(["sweep", "g.yaml"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("4 of 4 cells in out, 2 ranks each: 4 finished\n")
    assert out.count("is finished already") == 4
    assert out.endswith("\n4 of 4 cells are finished\n")
    after = {path: path.stat().st_mtime_ns for path in grid.rglob("*") if path.is_file()}
    assert after.pop(grid / "report.html")
    assert after == before, "nothing but the page is written"


@pytest.mark.parametrize(("given", "number"), [("2", 2), ("9", 4)])
def test_it_says_how_many_run_at_a_time(
    grid: Path, capsys: pytest.CaptureFixture[str], given: str, number: int
) -> None:
    assert main(["sweep", "g.yaml", "--jobs", given]) == 0
    expected = f"4 of 4 cells in out, 2 ranks each, {number} at a time: 4 finished\n"
    assert capsys.readouterr().out.startswith(expected)


def test_auto_takes_the_cores_of_this_process(
    grid: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(7)))
    assert main(["sweep", "g.yaml", "--jobs", "auto", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.startswith("4 of 4 cells in out, 2 ranks each, 3 at a time: 4 finished\n")


def test_the_commands_of_a_dry_run_are_those_of_the_cells(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(grid / CELLS[1])
    shutil.rmtree(grid / CELLS[2] / "checkpoints")
    forget_the_end(grid / CELLS[2])
    forget_the_end(grid / CELLS[3])
    assert main(["sweep", "g.yaml", "--data.root", "my data", "--dry-run"]) == 0
    told = capsys.readouterr().out.splitlines()
    states = ["finished", "to do", "to begin again, for want of a checkpoint", "to resume"]
    assert told[::2] == [f"# {name}: {state}" for name, state in zip(CELLS, states, strict=True)]
    assert [line[: line.index("dfl-dist")] for line in told[1::2]] == ["# ", "", f"rm -r out/{CELLS[2]} && ", ""]
    for name, line in zip(CELLS, told[1::2], strict=True):
        words = shlex.split(line[line.index("dfl-dist") :])
        assert words[:2] == ["dfl-dist", "launch"]
        program = launch.read(words[2:]).program
        assert program.ranks == 2
        given = parse(list(program.arguments))
        assert given["data.root"] == "my data"
        assert f"{given['algorithm']}-seed{given['seed']}" == name
        assert given["resume" if name == CELLS[3] else "out"] == f"out/{name}"


def test_a_cell_that_stop_has_ended_is_finished_until_stop_is_another(
    grid: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = json.loads((grid / CELLS[0] / "environment.json").read_text())
    (grid / CELLS[0] / "environment.json").write_text(json.dumps(facts | {"finished_after": 5, "ended_by": "stop"}))
    for words, state in [([], "finished"), (["--stop.target", "0.9"], "to resume")]:
        assert main(["sweep", "g.yaml", "--dry-run", *words]) == 0
        told = capsys.readouterr().out.splitlines()[::2]
        assert told == [f"# {CELLS[0]}: {state}", *(f"# {name}: finished" for name in CELLS[1:])]


def forget_the_end(folder: Path) -> None:
    """As after a kill between the last round and the results."""
    facts = json.loads((folder / "environment.json").read_text())
    facts.pop("finished_after")
    (folder / "environment.json").write_text(json.dumps(facts))


def test_shares_and_patterns(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def picked(*arguments: str) -> list[str]:
        assert main(["sweep", "g.yaml", "--dry-run", *arguments]) == 0
        return re.findall(r"^# (\S+): finished$", capsys.readouterr().out, re.MULTILINE)

    assert picked("--only", "2/3") == [CELLS[1]]
    assert sorted(picked("--only", "1/3") + picked("--only=2/3") + picked("--only", "3/3")) == sorted(CELLS)
    assert picked("--only", "5/5") == []
    assert picked("--cells", "*-seed1") == [CELLS[1], CELLS[3]]
    assert picked("--cells", "*-seed1", "--only", "2/2") == [CELLS[3]]


def test_more_rounds_are_resumed_to(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "g.yaml", "--dry-run", "--rounds", str(ROUNDS + 10)]) == 0
    out = capsys.readouterr().out
    assert out.count(": to resume\n") == 4
    assert out.count(f" --rounds {ROUNDS + 10} ") == 4


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--rounds", "15"], f"rounds: given 15, allowed: {ROUNDS} or more, which out/{CELLS[0]} has done"),
        (
            ["--local.lr", "0.5"],
            f"local.lr: given 0.5, allowed: 0.03, as in the run that is in out/{CELLS[0]}; another",
        ),
        (["--seed", "3"], "g.yaml: seed: given 3, allowed: settings that the grid does not set itself"),
        (["--resume", "auto"], "resume: given auto, allowed: nothing: the sweep resumes by itself"),
        (["--only", "3/2"], "only: given 3/2, allowed: K/N, K from 1 to N"),
        (["--only", "half"], "only: given half, allowed: K/N, K from 1 to N"),
        (["--only"], "only: given nothing, allowed: K/N"),
        (["--jobs", "0"], "jobs: given 0, allowed: a whole number, 1 or more, or auto"),
        (["--jobs", "all"], "jobs: given all, allowed: a whole number, 1 or more, or auto"),
        (["--jobs"], "jobs: given nothing, allowed: runs at a time (default: 1), or auto"),
        (["--ranks", "x"], "ranks: given x, allowed: a whole number, 1 or more"),
        (
            ["--cells", "osgb-seed0"],
            f"cells: given osgb-seed0, allowed: a pattern of names such as {CELLS[0]} (did you",
        ),
        (["h.yaml"], "sweep: given g.yaml h.yaml, allowed: one sweep file"),
        (["--local.rh", "1"], "local.rh: unknown key, allowed: those of --help (did you mean local.rho?)"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_started(
    grid: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    logs = {path: path.read_bytes() for path in grid.glob("*.log")}
    assert main(["sweep", "g.yaml", *arguments]) == 2
    found = capsys.readouterr()
    assert found.err.startswith(f"dfl-dist: {line}")
    assert found.err.count("\n") == 1
    assert found.out == ""
    assert {path: path.read_bytes() for path in grid.glob("*.log")} == logs


def test_a_run_holds_nothing_but_what_a_sweep_may_remove(grid: Path) -> None:
    names = {path.name for path in (grid / CELLS[0]).iterdir()} - {CELL}
    assert {"checkpoints", "metrics.jsonl", "model.pt"} < {name for name in names if is_of_a_run(name)} == names


def test_nothing_is_removed_that_the_sweep_did_not_begin(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = grid / CELLS[2]
    shutil.rmtree(folder / "checkpoints")
    assert main(["sweep", "g.yaml", "--rounds", str(ROUNDS + 10)]) == 2, "it finished, and that is not thrown away"
    assert "holds a run without a checkpoint to go on from" in capsys.readouterr().err
    forget_the_end(folder)
    (folder / CELL).unlink()
    assert main(["sweep", "g.yaml"]) == 2
    assert f"out: out/{CELLS[2]} holds a run without a checkpoint" in capsys.readouterr().err
    for name in CELLS[2:]:
        (grid / name / "resolved.yaml").unlink()
    assert main(["sweep", "g.yaml"]) == 2
    assert f"out: given out/{CELLS[2]}, allowed: a new folder, or one with this cell's run" in capsys.readouterr().err
    assert main(["sweep", "g.yaml", "--cells", CELLS[3]]) == 2, "begun by a sweep, but it has checkpoints"
    assert f"out: given out/{CELLS[3]}, allowed: a new folder" in capsys.readouterr().err
    assert all((grid / name / "metrics.jsonl").exists() for name in CELLS)


def test_a_cell_of_a_later_format_is_named(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = grid / CELLS[1] / "environment.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": 99}))
    (grid / CELLS[1] / "resolved.yaml").write_text("unheard_of: 1\n")
    assert main(["sweep", "g.yaml"]) == 2
    assert capsys.readouterr().err.startswith(f"dfl-dist: out: given out/{CELLS[1]}, of format 99 (written by ")


def refused_and_nothing_changed(out: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also in a dry run."""
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for words in ([], ["--dry-run"]):
        assert main(["sweep", "g.yaml", *words]) == 2
        assert capsys.readouterr().err == f"dfl-dist: {line}\n"
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_file_of_the_users_in_a_cell_that_must_begin_again_is_refused_by_name(
    grid: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether the cell has come as far as being a run or not."""
    folder = grid / CELLS[2]
    (folder / "notes.md").write_text("mine")
    shutil.rmtree(folder / "checkpoints")
    forget_the_end(folder)
    line = f"out: given out/{CELLS[2]}, which holds notes.md, allowed: nothing but this cell's run"
    refused_and_nothing_changed(grid, line, capsys)
    (folder / "resolved.yaml").unlink()
    refused_and_nothing_changed(grid, line, capsys)


@pytest.mark.parametrize("name", ["report.html", f"{CELLS[1]}.log"])
def test_a_file_of_the_users_with_the_name_of_a_page_or_a_log_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.yaml").write_text(GRID)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("mine")
    line = f"out: given out, which holds {name}, written by no sweep, allowed: a folder without it, or that of a sweep"
    refused_and_nothing_changed(tmp_path / "out", line, capsys)


def test_the_page_that_a_sweep_has_written_without_beginning_a_cell_is_its_own(grid: Path) -> None:
    (grid / GUARD).unlink()
    for log in grid.glob("*.log"):
        log.unlink()
    assert [main(["sweep", "g.yaml"]) for _ in range(2)] == [0, 0]
    assert (grid / "report.html").exists()


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--help"]) == 0
    assert "usage: dfl-dist sweep FILE" in capsys.readouterr().out
