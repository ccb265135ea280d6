"""`dfl-dist sweep` with real ranks: a grid that is killed ends as one that was not; cells that fail or are stopped."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from grids import CELLS, GRID, ROUNDS, finish_cells
from launching import TIMEOUT_S, assert_same_run, dfl_dist, lines, run, running, wait_for_rounds

from dfl_dist.commands.main import main
from dfl_dist.run_folder.folder import CELL


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a sweep file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.yaml").write_text(GRID)
    return tmp_path


def sweep(*arguments: str) -> list[str]:
    return dfl_dist("sweep", "g.yaml", *arguments)


def table(out: str) -> list[list[str]]:
    """A table of runs without the times."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in out.strip().splitlines()]
    timed = [column for column, name in enumerate(rows[0]) if "seconds" in name]
    return [[cell for column, cell in enumerate(row) if column not in timed] for row in rows]


def told(out: str) -> list[str]:
    """What was said of cells, without their numbers."""
    return [line.partition("] ")[2] for line in out.splitlines() if line.startswith("[")]


def wait_for_file(path: Path) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not path.exists():
        assert time.monotonic() < end, f"{path} is not made"
        time.sleep(0.02)


def holds(pid: int, file: Path) -> bool:
    """Whether a process has a file open, and so the kernel's lock on it."""
    return any(Path(os.readlink(entry)) == file for entry in Path(f"/proc/{pid}/fd").iterdir())


def test_a_grid_that_was_killed_ends_with_the_same_table(
    folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Killed in the second and third cell; the first and the last are finished before, to save time."""
    undisturbed, killed = tmp_path_factory.mktemp("undisturbed"), [folder / "out" / name for name in CELLS[1:3]]
    finish_cells(undisturbed)
    for name in (CELLS[0], CELLS[3]):
        shutil.copytree(undisturbed / "out" / name, folder / "out" / name)
    with running(sweep("--jobs", "2"), folder, DFL_TEST_PASS_S="0.1") as job:
        for run_folder in killed:
            wait_for_rounds(run_folder, 7)
        os.kill(job.process.pid, signal.SIGKILL)  # nobody asks how it ended, so it stays listed
        for run_folder in killed:
            assert run_folder.with_suffix(".lock").exists(), "killed at work"
            assert "finished_after" not in json.loads((run_folder / "environment.json").read_text())
        end = time.monotonic() + 2.0
        while job.members():
            assert time.monotonic() < end, "what was forked lives on"
            time.sleep(0.01)
        done = run(sweep(), folder)
    assert done.code == 0, done.out + done.err
    assert done.out.startswith("4 of 4 cells in out, 2 ranks each: 2 finished, 2 to resume\n")
    lines_told = told(done.out)
    assert lines_told[0].startswith(f"{CELLS[0]}: is finished already, accuracy ")
    assert lines_told[1] == f"{CELLS[1]}: goes on, see out/{CELLS[1]}.log"
    finished = r": finished, accuracy \d+\.\d\d%, \d+\.\d s"
    assert re.fullmatch(CELLS[1] + finished + r", ETA \d\d:\d\d:\d\d", lines_told[2])
    assert lines_told[3] == f"{CELLS[2]}: goes on, see out/{CELLS[2]}.log"
    assert re.fullmatch(CELLS[2] + finished, lines_told[4])
    for name in CELLS:
        assert_same_run(undisturbed / "out" / name, folder / "out" / name, ROUNDS)
    assert not list((folder / "out").glob("*.lock"))
    monkeypatch.chdir(undisturbed)
    capsys.readouterr()
    assert main(["report", *(f"out/{name}" for name in CELLS)]) == 0
    expected = table(capsys.readouterr().out)
    assert len(expected) > 1
    assert table(done.out.split("\n\n")[1]) == expected


def test_several_at_a_time_give_the_same_bits_as_one_after_the_other_and_as_the_commands_of_a_dry_run(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    done = run(sweep("--jobs", "3"), folder)
    assert done.code == 0, done.out + done.err
    assert [line.partition(": ")[2].partition(",")[0] for line in told(done.out)[:4]] == ["begins"] * 3 + ["finished"]
    assert "4 of 4 cells are finished\n" in done.out
    other = tmp_path_factory.mktemp("one-after-the-other")
    (other / "g.yaml").write_text(GRID)
    commands = run(sweep("--dry-run"), other).out.splitlines()
    first = run(dfl_dist(*shlex.split(commands[1])[1:]), other)
    assert first.code == 0, first.err
    done = run(sweep(), other)
    assert done.code == 0, done.out + done.err
    assert [line.partition(": ")[2].partition(",")[0] for line in told(done.out)] == [
        "is finished already",
        *["begins", "finished"] * 3,
    ]
    for name in CELLS:
        assert_same_run(folder / "out" / name, other / "out" / name, ROUNDS)


def test_a_cell_that_fails_does_not_stop_the_rest(folder: Path) -> None:
    """Beside it a cell that was killed before its first checkpoint: begun again."""
    (folder / "g.yaml").write_text(GRID.split("grid:")[0] + "grid: {model.name: ['small_models:misfit', auto]}")
    torn = folder / "out" / "auto"
    torn.mkdir(parents=True)
    (torn / CELL).touch()
    (torn / "metrics.jsonl").write_text('{"round": 0, "lr')
    done = run(sweep("--rounds", "2", "--jobs", "2"), folder)
    assert done.code == 1, done.out + done.err
    assert re.search(
        r"\[1/2\] small_models-misfit: failed, .* s, see out/small_models-misfit\.log\n    dfl_dist: ", done.out
    )
    assert "model.name: given small_models:misfit, which does not take inputs of shape" in done.out
    assert "[2/2] auto: finished" in done.out
    assert done.out.endswith("\n1 of 2 cells are finished\nfailed: small_models-misfit\n")
    assert len(lines(torn / "metrics.jsonl")) == 2


def test_the_page_of_the_grid_is_there_while_the_sweep_goes_on_and_says_all_at_its_end(folder: Path) -> None:
    (folder / "g.yaml").write_text(GRID.split("grid:")[0].replace("  rounds: 20\n", "") + "grid: {rounds: [2, 100000]}")
    page = folder / "out" / "report.html"
    with running(sweep("--checkpoint.every", "0"), folder) as job:
        wait_for_file(page)
        assert "DFedSGPSM reached" in page.read_text(encoding="utf-8"), "the one run that has ended, or both"
        wait_for_rounds(folder / "out" / "rounds100000", 1)
        assert job.process.poll() is None
        job.process.send_signal(signal.SIGINT)
        done = job.finish()
    assert done.code == 130, done.out + done.err
    assert "\nreport: out/report.html\n1 of 2 cells are finished\n" in done.out
    assert "DFedSGPSM with 2 settings, 2 runs" in page.read_text(encoding="utf-8")
    assert not list((folder / "out").glob(".report.html.*"))


def test_ctrl_c_stops_cleanly_and_a_running_cell_is_left_to_its_sweep(folder: Path) -> None:
    arguments = ["--rounds", "100000", "--checkpoint.every", "0", "--jobs", "2"]
    at_work = [folder / "out" / name for name in CELLS[:2]]
    with running(sweep(*arguments), folder) as job:
        for run_folder in at_work:
            wait_for_rounds(run_folder, 3)
        beside = run(sweep(*arguments, "--cells", CELLS[0]), folder)
        assert beside.code == 0, beside.err
        holder = f"a sweep on host {socket.gethostname()}, process {job.process.pid}"
        assert f"[1/1] {CELLS[0]}: is left to {holder};" in beside.out
        assert f"0 of 1 cells are finished\nleft to other sweeps: {CELLS[0]}\n" in beside.out
        locks = [folder / "out" / f"{name}.lock" for name in CELLS[:2]]
        assert all(any(holds(pid, lock) for lock in locks) for pid in job.members()), "forked, not started afresh"
        job.process.send_signal(signal.SIGINT)
        done = job.finish()
        assert job.members() == []
    assert done.code == 128 + signal.SIGINT, done.out + done.err
    assert "Traceback" not in done.out + done.err
    counts = [len(lines(run_folder / "metrics.jsonl")) for run_folder in at_work]
    for number, (name, count) in enumerate(zip(CELLS[:2], counts, strict=True), start=1):
        assert f"[{number}/4] {name}: stopped after round {count} of 100000\n" in done.out
        made = [path.name for path in (folder / "out" / name / "checkpoints").iterdir()]
        assert made == [f"round-{count:06d}"], "though checkpoints are off"
    assert f"stopped by Ctrl-C (SIGINT); go on with: dfl-dist sweep g.yaml {' '.join(arguments)}\n" in done.out
    assert not list((folder / "out").glob("*.lock"))
    states = [line for line in run(sweep(*arguments, "--dry-run"), folder).out.splitlines() if line.startswith("# ")]
    expected = ["to resume", "to resume", "to do", "to do"]
    assert states == [f"# {name}: {state}" for name, state in zip(CELLS, expected, strict=True)]


def test_a_second_ctrl_c_ends_all_cells_at_once(folder: Path) -> None:
    """Each round takes a minute: there is no waiting for it."""
    with running(sweep("--jobs", "2"), folder, DFL_TEST_PASS_S="60") as job:
        assert isinstance(job.process, subprocess.Popen)
        for name in CELLS[:2]:
            wait_for_file(folder / "out" / name / "resolved.yaml")
        job.process.send_signal(signal.SIGINT)
        for line in job.process.stdout or ():
            if line == "stopping after the current round; Ctrl-C again ends it at once\n":
                break
        job.process.send_signal(signal.SIGINT)
        done = job.finish(timeout_s=10)
        assert job.members() == []
    assert done.code == 128 + signal.SIGINT, done.out + done.err
    assert done.out.count(": stopped after round 0 of 20\n") == 2
    assert not list((folder / "out").glob("*.lock"))


def test_a_stop_file_stops_its_cell_which_has_not_failed(folder: Path) -> None:
    first = folder / "out" / CELLS[0]
    with running(sweep("--rounds", "100000", "--cells", CELLS[0]), folder) as job:
        wait_for_rounds(first, 3)
        (first / "STOP").touch()
        done = job.finish()
    assert done.code == 0, done.out + done.err
    count = len(lines(first / "metrics.jsonl"))
    assert f"[1/1] {CELLS[0]}: stopped after round {count} of 100000\n" in done.out
