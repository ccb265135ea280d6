"""`dfl-dist sweep` with real ranks: a grid that is killed ends as one that was not; cells that fail or are stopped."""

import json
import os
import re
import shutil
import signal
import socket
import threading
from pathlib import Path

import pytest
from grids import CELLS, GRID, ROUNDS, finish_cells
from launching import HELPERS, assert_same_run, dfl_dist, lines, running, wait_for_rounds

from dfl_dist.commands.main import main
from dfl_dist.sweep.cells import BEGUN


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a sweep file; the ranks of sweeps in this process find the tests' models."""
    monkeypatch.setenv("PYTHONPATH", str(HELPERS))
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


def test_a_grid_that_was_killed_ends_with_the_same_table(
    folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Killed in the second cell; the first and the last are finished before, to save time."""
    undisturbed, second = tmp_path_factory.mktemp("undisturbed"), folder / "out" / CELLS[1]
    finish_cells(undisturbed)
    for name in (CELLS[0], CELLS[3]):
        shutil.copytree(undisturbed / "out" / name, folder / "out" / name)
    monkeypatch.setenv("DFL_TEST_PASS_S", "0.03")
    with running(sweep(), folder) as job:
        wait_for_rounds(second, 7)
        os.kill(job.process.pid, signal.SIGKILL)
        job.process.wait(10)
        for pid in job.members():  # the cell's own processes outlive it, and must not be done before it goes on
            os.kill(pid, signal.SIGSTOP)
        assert (folder / "out" / f"{CELLS[1]}.lock").exists(), "killed at work"
        assert "finished_after" not in json.loads((second / "environment.json").read_text())
        monkeypatch.delenv("DFL_TEST_PASS_S")
        capsys.readouterr()
        assert main(["sweep", "g.yaml"]) == 0
        assert not job.members(), "what the killed sweep left is gone"
    out = capsys.readouterr().out
    assert out.startswith("4 of 4 cells in out, 2 ranks each: 2 finished, 1 to resume, 1 to do\n")
    told = [line.split("]")[1] for line in out.splitlines() if line.startswith("[")]
    assert told[0].startswith(f" {CELLS[0]}: is finished already, accuracy ")
    assert told[1] == f" {CELLS[1]}: goes on, see out/{CELLS[1]}.log"
    assert re.fullmatch(rf" {CELLS[1]}: finished, accuracy \d+\.\d\d%, \d+\.\d s, ETA \d\d:\d\d:\d\d", told[2])
    assert told[3] == f" {CELLS[2]}: begins, see out/{CELLS[2]}.log"
    assert re.fullmatch(rf" {CELLS[2]}: finished, accuracy \d+\.\d\d%, \d+\.\d s", told[4])
    for name in CELLS:
        assert_same_run(undisturbed / "out" / name, folder / "out" / name, ROUNDS)
    assert not list((folder / "out").glob("*.lock"))
    monkeypatch.chdir(undisturbed)
    assert main(["report", *(f"out/{name}" for name in CELLS)]) == 0
    expected = table(capsys.readouterr().out)
    assert len(expected) > 1
    assert table(out.split("\n\n")[1]) == expected


def test_a_cell_that_fails_does_not_stop_the_rest(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside it a cell that was killed before its first checkpoint: begun again."""
    (folder / "g.yaml").write_text(GRID.split("grid:")[0] + "grid: {model.name: ['small_models:misfit', auto]}")
    torn = folder / "out" / "auto"
    torn.mkdir(parents=True)
    (torn / BEGUN).touch()
    (torn / "metrics.jsonl").write_text('{"round": 0, "lr')
    assert main(["sweep", "g.yaml", "--rounds", "2"]) == 1
    out = capsys.readouterr().out
    assert re.search(
        r"\[1/2\] small_models-misfit: failed, .* s, see out/small_models-misfit\.log\n    dfl_dist: ", out
    )
    assert "model.name: given small_models:misfit, which does not take inputs of shape" in out
    assert "[2/2] auto: finished" in out
    assert out.endswith("\n1 of 2 cells are finished\nfailed: small_models-misfit\n")
    assert len(lines(torn / "metrics.jsonl")) == 2
    log = (folder / "out" / "small_models-misfit.log").read_text()
    assert "torch.distributed" in log, "all that was printed is there"


def test_ctrl_c_stops_cleanly_and_a_running_cell_is_left_to_its_sweep(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--rounds", "100000", "--checkpoint.every", "0"]
    first = folder / "out" / CELLS[0]
    with running(sweep(*arguments), folder) as job:
        wait_for_rounds(first, 3)
        assert main(["sweep", "g.yaml", *arguments, "--cells", CELLS[0]]) == 0
        out = capsys.readouterr().out
        assert f"[1/1] {CELLS[0]}: is left to a sweep on host {socket.gethostname()}, process {job.process.pid};" in out
        assert f"0 of 1 cells are finished\nleft to other sweeps: {CELLS[0]}\n" in out
        job.process.send_signal(signal.SIGINT)
        done = job.finish()
        assert job.members() == []
    assert done.code == 128 + signal.SIGINT, done.out + done.err
    count = len(lines(first / "metrics.jsonl"))
    assert f"[1/4] {CELLS[0]}: stopped after round {count} of 100000\n" in done.out
    assert f"stopped by SIGINT; go on with: dfl-dist sweep g.yaml {' '.join(arguments)}\n" in done.out
    assert [path.name for path in (first / "checkpoints").iterdir()] == [f"round-{count:06d}"], "though it is off"
    assert not list((folder / "out").glob("*.lock"))
    assert main(["sweep", "g.yaml", *arguments, "--dry-run"]) == 0
    states = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# ")]
    assert states == [f"# {name}: {'to do' if number else 'to resume'}" for number, name in enumerate(CELLS)]


def test_a_stop_file_stops_its_cell_which_has_not_failed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = folder / "out" / CELLS[0]

    def stop() -> None:
        wait_for_rounds(first, 3)
        (first / "STOP").touch()

    thread = threading.Thread(target=stop)
    thread.start()
    assert main(["sweep", "g.yaml", "--rounds", "100000", "--cells", CELLS[0]]) == 0
    thread.join()
    count = len(lines(first / "metrics.jsonl"))
    assert f"[1/1] {CELLS[0]}: stopped after round {count} of 100000\n" in capsys.readouterr().out
