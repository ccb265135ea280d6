"""`dfl-dist sweep`: a grid that is killed ends as one that was not; what is skipped, refused, shared, stopped."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from launching import Finished, assert_same_run, dfl_dist, lines, run, running, wait_for_rounds

from dfl_dist.arguments import parse
from dfl_dist.cli import main
from dfl_dist.commands.processes import Interrupt, follow
from dfl_dist.commands.sweep import Pace
from dfl_dist.commands.sweep_cell import BEGUN, CELL, claim, last_words, mark, started_at

ROUNDS = 40
PATIENCE_S = 280  # for four cells, each of which imports torch three times, on a busy machine
GRID = f"""
out: out
ranks: 2
settings:
  num_clients: 4
  rounds: {ROUNDS}
  report: false
  graph: {{out_degree: 2}}
  local: {{epochs: 1}}
  checkpoint: {{every: 10}}
grid:
  algorithm: [dfedsgpsm, osgp]
  seed: [0, 1]
"""
CELLS = ["dfedsgpsm-seed0", "dfedsgpsm-seed1", "osgp-seed0", "osgp-seed1"]


def sweep(*arguments: str) -> list[str]:
    return dfl_dist("sweep", "g.yaml", *arguments)


def table(done: Finished) -> list[list[str]]:
    """The table that a sweep ends with, without the times."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in done.out.split("\n\n")[1].splitlines()]
    timed = [column for column, name in enumerate(rows[0]) if "seconds" in name]
    return [[cell for column, cell in enumerate(row) if column not in timed] for row in rows]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Finished]:
    """The grid run in one go; tests that change it work on copies."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "g.yaml").write_text(GRID)
    done = run(sweep(), folder, PATIENCE_S)
    assert done.code == 0, done.out + done.err
    return folder, done


@pytest.fixture
def grid(undisturbed: tuple[Path, Finished], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished grid, in the present folder."""
    shutil.copytree(undisturbed[0], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "out"


@pytest.mark.timeout(900)
def test_a_grid_that_was_killed_ends_with_the_same_table(undisturbed: tuple[Path, Finished], tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(GRID)
    second = tmp_path / "out" / CELLS[1]
    with running(sweep(), tmp_path) as job:
        wait_for_rounds(second, 12)
        os.kill(job.process.pid, signal.SIGKILL)
        job.process.wait(10)
        for pid in job.members():  # the cell's own processes outlive it, and must not be done before it goes on
            os.kill(pid, signal.SIGSTOP)
        assert (tmp_path / "out" / f"{CELLS[1]}.lock").exists(), "killed at work"
        assert "finished_after" not in json.loads((second / "environment.json").read_text())
        done = run(sweep(), tmp_path, PATIENCE_S)
        assert not job.members(), "what the killed sweep left is gone"
    assert done.code == 0, done.out + done.err
    told = [line.split("]")[1] for line in done.out.splitlines() if line.startswith("[")]
    assert told[0].startswith(f" {CELLS[0]}: is finished already, accuracy ")
    assert told[1] == f" {CELLS[1]}: goes on, see out/{CELLS[1]}.log"
    assert told[3] == f" {CELLS[2]}: begins, see out/{CELLS[2]}.log"
    assert re.fullmatch(rf" {CELLS[2]}: finished, accuracy \d+\.\d\d%, \d+\.\d s, ETA \d\d:\d\d:\d\d", told[4])
    folder, before = undisturbed
    assert table(done) == table(before)
    assert len(table(done)) > 1
    for name in CELLS:
        assert_same_run(folder / "out" / name, tmp_path / "out" / name, ROUNDS)
    assert not list((tmp_path / "out").glob("*.lock"))


def test_a_finished_grid_starts_nothing(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in grid.rglob("*") if path.is_file()}
    assert main(["sweep", "g.yaml"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("4 of 4 cells in out, 2 ranks each: 4 finished\n")
    assert out.count("is finished already") == 4
    assert out.endswith("\n4 of 4 cells are finished\n")
    after = {path: path.stat().st_mtime_ns for path in grid.rglob("*") if path.is_file()}
    assert after == before


def test_a_cell_that_fails_does_not_stop_the_rest(tmp_path: Path) -> None:
    """Beside it a cell that was killed before its first checkpoint: begun again."""
    (tmp_path / "g.yaml").write_text(GRID.split("grid:")[0] + "grid: {model.name: ['small_models:misfit', auto]}")
    torn = tmp_path / "out" / "auto"
    torn.mkdir(parents=True)
    (torn / BEGUN).touch()
    (torn / "metrics.jsonl").write_text('{"round": 0, "lr')
    done = run(sweep("--rounds", "2"), tmp_path)
    assert done.code == 1, done.err
    assert re.search(
        r"\[1/2\] small_models-misfit: failed, .* s, see out/small_models-misfit\.log\n    dfl_dist: ", done.out
    )
    assert "model.name: given small_models:misfit, which does not take inputs of shape" in done.out
    assert "[2/2] auto: finished" in done.out
    assert done.out.endswith("\n1 of 2 cells are finished\nfailed: small_models-misfit\n")
    assert len(lines(torn / "metrics.jsonl")) == 2
    log = (tmp_path / "out" / "small_models-misfit.log").read_text()
    assert "torch.distributed" in log, "all that was said is there"


def test_ctrl_c_stops_cleanly_and_a_running_cell_is_left_to_its_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "g.yaml").write_text(GRID)
    monkeypatch.chdir(tmp_path)
    arguments = ["--rounds", "4000", "--checkpoint.every", "0"]
    first = tmp_path / "out" / CELLS[0]
    with running(sweep(*arguments), tmp_path) as job:
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
    assert f"[1/4] {CELLS[0]}: stopped after round {count} of 4000\n" in done.out
    assert f"stopped by SIGINT; go on with: dfl-dist sweep g.yaml {' '.join(arguments)}\n" in done.out
    assert [path.name for path in (first / "checkpoints").iterdir()] == [f"round-{count:06d}"], "though it is off"
    assert not list((tmp_path / "out").glob("*.lock"))
    assert main(["sweep", "g.yaml", *arguments, "--dry-run"]) == 0
    states = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# ")]
    assert states == [f"# {name}: {'to do' if number else 'to resume'}" for number, name in enumerate(CELLS)]


def test_a_stop_file_stops_its_cell_which_has_not_failed(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(GRID)
    first = tmp_path / "out" / CELLS[0]
    with running(sweep("--rounds", "4000", "--cells", CELLS[0]), tmp_path) as job:
        wait_for_rounds(first, 3)
        (first / "STOP").touch()
        done = job.finish()
    assert done.code == 0, done.out + done.err
    assert f"[1/1] {CELLS[0]}: stopped after round {len(lines(first / 'metrics.jsonl'))} of 4000\n" in done.out


def test_the_commands_of_a_dry_run_are_those_of_the_cells(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(grid / CELLS[1])
    shutil.rmtree(grid / CELLS[2] / "checkpoints")
    forget_the_end(grid / CELLS[2])
    forget_the_end(grid / CELLS[3])
    assert main(["sweep", "g.yaml", "--data.root", "my data", "--dry-run"]) == 0
    told = capsys.readouterr().out.splitlines()
    states = ["finished", "to do", "to begin again, for want of a checkpoint", "to resume"]
    assert told[::2] == [f"# {name}: {state}" for name, state in zip(CELLS, states, strict=True)]
    assert [line[: line.index("torchrun")] for line in told[1::2]] == ["# ", "", f"rm -r out/{CELLS[2]} && ", ""]
    for name, line in zip(CELLS, told[1::2], strict=True):
        launcher, words = shlex.split(line[line.index("torchrun") :])[:5], shlex.split(line)
        assert launcher == ["torchrun", "--standalone", "--nproc_per_node=2", "-m", "dfl_dist.train"]
        given = parse(words[words.index("dfl_dist.train") + 1 :])
        assert given["data.root"] == "my data"
        assert f"{given['algorithm']}-seed{given['seed']}" == name
        assert given["resume" if name == CELLS[3] else "out"] == f"out/{name}"


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
        (["--rounds", "30"], f"rounds: given 30, allowed: {ROUNDS} or more, which out/{CELLS[0]} has done"),
        (
            ["--local.lr", "0.5"],
            f"local.lr: given 0.5, allowed: 0.03, as in the run that is in out/{CELLS[0]}; another",
        ),
        (["--seed", "3"], "g.yaml: seed: given 3, allowed: settings that the grid does not set itself"),
        (["--resume", "auto"], "resume: given auto, allowed: nothing: the sweep resumes by itself"),
        (["--only", "3/2"], "only: given 3/2, allowed: K/N, K from 1 to N"),
        (["--only", "half"], "only: given half, allowed: K/N, K from 1 to N"),
        (["--only"], "only: given nothing, allowed: K/N"),
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


def test_nothing_is_removed_that_the_sweep_did_not_begin(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = grid / CELLS[2]
    shutil.rmtree(folder / "checkpoints")
    assert main(["sweep", "g.yaml", "--rounds", str(ROUNDS + 10)]) == 2, "it finished, and that is not thrown away"
    assert "holds a run without a checkpoint to go on from" in capsys.readouterr().err
    forget_the_end(folder)
    (folder / BEGUN).unlink()
    assert main(["sweep", "g.yaml"]) == 2
    assert f"out: out/{CELLS[2]} holds a run without a checkpoint" in capsys.readouterr().err
    for name in CELLS[2:]:
        (grid / name / "resolved.yaml").unlink()
    assert main(["sweep", "g.yaml"]) == 2
    assert f"out: given out/{CELLS[2]}, allowed: a new folder, or one with this cell's run" in capsys.readouterr().err
    assert main(["sweep", "g.yaml", "--cells", CELLS[3]]) == 2, "begun by a sweep, but it has checkpoints"
    assert f"out: given out/{CELLS[3]}, allowed: a new folder" in capsys.readouterr().err
    assert all((grid / name / "metrics.jsonl").exists() for name in CELLS)


def test_a_lock_is_taken_over_only_from_a_dead_process_of_this_host(tmp_path: Path) -> None:
    lock, folder = tmp_path / "a.lock", tmp_path / "a"
    assert claim(lock, folder) is None
    assert "process" in str(claim(lock, folder)), "held by this very process"
    mine = json.loads(lock.read_text())
    me = {"host": socket.gethostname(), "pid": os.getpid(), "started": started_at(os.getpid())}
    assert mine == me | {"job": os.environ.get("SLURM_JOB_ID")}
    lock.write_text(json.dumps(mine | {"started": "1"}))  # its number went to another process
    assert claim(lock, folder) is None
    assert json.loads(lock.read_text()) == mine
    lock.write_text(json.dumps(mine | {"started": "1", "host": "elsewhere"}))
    held = f"a sweep on host elsewhere, process {os.getpid()}; if it is gone, remove {lock}"
    assert claim(lock, folder) == held
    lock.write_text("")
    assert "host unknown" in str(claim(lock, folder))


def test_a_job_that_was_requeued_on_another_host_takes_its_lock_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, folder = tmp_path / "a.lock", tmp_path / "a"
    lock.write_text(json.dumps({"host": "elsewhere", "pid": 1, "started": "1", "job": "77"}))
    monkeypatch.setenv("SLURM_JOB_ID", "78")
    assert "host elsewhere" in str(claim(lock, folder))
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    assert claim(lock, folder) is None


def idle(folder: Path) -> "subprocess.Popen[str]":
    """A process of a cell that no signal but SIGKILL ends; ready once it has said so."""
    text = "import signal, time; signal.signal(2, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
    env = os.environ | {CELL: str(folder.resolve())}
    process = subprocess.Popen([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def test_processes_that_outlived_their_sweep_are_ended_before_their_cell_goes_on(tmp_path: Path) -> None:
    lock, folder = tmp_path / "a.lock", tmp_path / "a"
    lock.write_text(json.dumps({"host": socket.gethostname(), "pid": 1, "started": "none"}))
    with idle(folder) as process, idle(tmp_path / "another") as other:
        assert claim(lock, folder) is None
        assert process.wait(10) == -signal.SIGKILL
        assert other.poll() is None, "of another cell"
        other.kill()


def test_a_second_ctrl_c_ends_a_cell_at_once(tmp_path: Path) -> None:
    asked: list[int] = []
    interrupt = Interrupt()
    interrupt.remember(signal.SIGINT, None)

    def show() -> None:
        interrupt.remember(signal.SIGINT, None)

    with idle(tmp_path) as process, idle(tmp_path) as rank:
        follow(process, mark(tmp_path), interrupt, stop=asked.append, show=show)  # type: ignore[arg-type]
        assert process.returncode == -signal.SIGKILL
        assert rank.wait(10) == -signal.SIGKILL, "found by its environment"
    assert asked == [signal.SIGINT], "once"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\nb\nW0101 closing\nc\nE0101 x] failed (exitcode: 2) of\nTraceback\n", ["a", "b", "c"]),
        ("a\n\nE0101 x] failed (exitcode: -9) of\nTraceback\n", ["a", "failed (exitcode: -9) of"]),
        ("E0101 x] failed (exitcode: 1)\nb\n", ["E0101 x] failed (exitcode: 1)", "b"]),
        ("".join(f"{n}\n" for n in range(9)), ["4", "5", "6", "7", "8"]),
        ("", []),
    ],
)
def test_the_last_words_are_the_cells_own(tmp_path: Path, text: str, words: list[str]) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"--- before\nold\n--- command\n{text}")
    assert last_words(log, len("--- before\nold\n")) == words


def test_the_rest_is_estimated_from_what_was_finished() -> None:
    pace = Pace().add(10, 20.0).add(30, 60.0)
    assert pace.eta(1850) == ", ETA 01:01:40"
    assert pace.eta(0) == ""
    assert Pace().eta(10) == ""


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--help"]) == 0
    assert "usage: dfl-dist sweep FILE" in capsys.readouterr().out
