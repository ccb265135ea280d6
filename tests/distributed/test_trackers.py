"""Trackers on real ranks: what a stopped and resumed run tells each of them, and that none of them can end a run."""

import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tracked
import yaml
from launching import (
    ROOT,
    TRAINER,
    Running,
    alone,
    dfl_dist,
    elastic,
    lines,
    ranks,
    run,
    running,
    train,
    wait_for_rounds,
)
from own_trackers import told

from dfl_dist.run_folder.files import read_json
from dfl_dist.system import born

SHORT = ("--num_clients", "4", "--local.epochs", "1", "--report", "false", "--out", "run")
ALL = "tensorboard, wandb,mlflow,own_trackers:Keep"
ROUNDS = 4
LEFT = "perhaps of a tracker, go on 1 s after the end; left by force\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after its first rounds and then finished, told to all trackers."""
    cwd = tmp_path_factory.mktemp("tracked")
    first = (*SHORT, "--rounds", str(ROUNDS), "--eval.clients_every", "2", "--max_seconds", "1e-9", "--tracker", ALL)
    for words in (first, ("--resume", "run", "--max_seconds", "null")):
        done = run(ranks(2, TRAINER, *words), cwd, WANDB_MODE="offline", WANDB_PROJECT="mine")
        assert done.code == 0, done.err
        assert "tracker" not in done.err
        assert ("stopped by max_seconds" in done.out) == (words is first)
    return cwd / "run"


def in_force(folder: Path) -> dict[str, Any]:
    """resolved.yaml by dotted key."""
    content = yaml.safe_load((folder / "resolved.yaml").read_text())
    sections = {key: value for key, value in content.items() if isinstance(value, dict)}
    nested = {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}
    return {key: value for key, value in content.items() if key not in sections} | nested


def test_the_users_own_tracker_on_rank_0_only(folder: Path) -> None:
    assert sorted(path.name for path in folder.glob("told-*")) == ["told-0.jsonl"]
    said = told(folder, 0)
    assert [entry["state"] for entry in said if "state" in entry] == ["stopped", "finished"]
    assert {entry["model"] for entry in said if "model" in entry} == {str(folder / "model.pt")}
    begun, resumed = (entry["settings"] for entry in said if "settings" in entry)
    assert resumed == in_force(folder) == begun | {"max_seconds": None, "resume": "run"}
    told_lines = [entry["line"] for entry in said if "line" in entry]
    stopped_after = len(told_lines) - ROUNDS
    assert [line["round"] for line in told_lines] == [*range(stopped_after), *range(stopped_after - 1, ROUNDS)]
    assert told_lines[stopped_after:] == lines(folder / "metrics.jsonl")[stopped_after - 1 :]
    assert "client_accuracy_worst_tenth" in told_lines[-1]


def test_tensorboard_has_it_all(folder: Path) -> None:
    values, texts = tracked.events(folder)
    recorded = tracked.recorded(lines(folder / "metrics.jsonl"))
    assert values == {key: pytest.approx(rounds, rel=1e-6) for key, rounds in recorded.items()}
    assert yaml.safe_load(texts["settings"][-1].strip("`")) == in_force(folder)
    assert texts["state"] == ["stopped", "finished"]
    assert texts["model"][-1] == str(folder / "model.pt")


def test_wandb_has_it_all(folder: Path) -> None:
    """As its files have it, which `wandb sync` puts together by the run's name and the steps."""
    starts = [tracked.OfflineRun(path) for path in sorted((folder / "wandb").glob("offline-run-*"))]
    assert [start.summary["state"] for start in starts] == ["stopped", "finished"]
    assert {(start.id, start.project, start.exit_code) for start in starts} == {
        (read_json(folder / "environment.json")["run"], "mine", 0)
    }
    values = {key: starts[0].values[key] | rounds for key, rounds in starts[1].values.items()}
    for key, rounds in tracked.recorded(lines(folder / "metrics.jsonl")).items():
        assert {number: values[key][number] for number in rounds} == rounds, key
    assert {key: starts[1].settings[key] for key in in_force(folder)} == in_force(folder)
    kept = starts[1].folder / "files" / "model.pt"
    assert kept.read_bytes() == (folder / "model.pt").read_bytes()


def test_mlflow_has_it_all(folder: Path) -> None:
    """In one run; a parameter of it cannot change, so what the second start has changed is a tag."""
    found, values = tracked.mlflow_run(folder / "mlflow")
    assert (found.info.status, found.data.tags["state"], found.info.run_name) == ("FINISHED", "finished", "run")
    recorded = tracked.recorded(lines(folder / "metrics.jsonl"))
    for key, rounds in recorded.items():
        assert {number: values[key][number] for number in rounds} == rounds, key
    texts = {key: yaml.safe_load(text) for key, text in {**found.data.params, **found.data.tags}.items()}
    settings = in_force(folder)
    assert {key: texts[key] for key in settings} == settings
    assert (Path(found.info.artifact_uri.removeprefix("file://")) / "model.pt").read_bytes() == (
        folder / "model.pt"
    ).read_bytes()


def test_trackers_that_fail_are_named_once_and_the_others_go_on(tmp_path: Path) -> None:
    ways = {
        "cannot_be_made": "OSError in own_trackers.py, line N: the table is locked",
        "CannotLog": "KeyError in own_trackers.py, line N: 'loss'",
        "CannotFinish": "SystemExit in own_trackers.py, line N: 3",
    }
    asked = ",".join(f"own_trackers:{name}" for name in [*ways, "Keep"])
    done = run(ranks(2, TRAINER, *SHORT, "--rounds", "3", "--tracker", asked), tmp_path)
    assert (done.code, done.err.count("Traceback")) == (0, 0), done.err
    said = [re.sub(r"line \d+", "line N", line) for line in done.err.splitlines() if "tracker" in line]
    assert sorted(said) == sorted(
        f"[rank 0] tracker own_trackers:{name} failed: {why}; the run goes on without it" for name, why in ways.items()
    )
    kept = [entry for entry in told(tmp_path / "run", 0) if "line" in entry]
    assert [entry["line"]["round"] for entry in kept] == [0, 1, 2]


def test_a_tracker_that_breaks_while_a_run_is_started_again_does_not_end_it(tmp_path: Path) -> None:
    """Nor does the restart wait for one that needs its time at the end. Asked for anew, a broken one is refused."""
    broken = "breaking:TakesItsTime"
    words = (*SHORT, "--rounds", "4", "--checkpoint.every", "1", "--tracker", broken)
    done = run(elastic(2, 1, "broken_trainer:killed", "local steps", "1", "3", *words), tmp_path)
    assert (done.code, done.err.count("Traceback")) == (0, 0), done.err
    assert "all ranks start again (1 of 1)" in done.err
    assert [re.sub(r"line \d+", "line N", line) for line in done.err.splitlines() if "tracker" in line] == [
        f"[rank 0] tracker {broken} failed: RuntimeError in breaking.py, line N: gone; the run goes on without it"
    ]
    assert "state" not in told(tmp_path / "run", 0)[-1]
    done = run(alone("--resume", "run", "--rounds", "5", "--tracker", f"tensorboard,{broken}"), tmp_path)
    assert done.code == 1
    assert f"dfl_dist: tracker: importing {broken} failed: RuntimeError in breaking.py, line " in done.err


def test_a_tracker_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    """Nor the process that it has begun."""
    words = (*SHORT, "--rounds", "3", "--timeout_s", "8", "--tracker", "own_trackers:Hangs,own_trackers:Keep")
    with running(ranks(2, TRAINER, *words), tmp_path) as job:
        done = job.finish(60)
        assert done.code == 0, done.err
        told_of_it = [line for line in done.err.splitlines() if "tracker" in line]
        assert told_of_it == ["[rank 0] tracker own_trackers:Hangs is not done in time; the run ends without it"]
        assert born(int((tmp_path / "run" / "child").read_text())) is None
    assert told(tmp_path / "run", 0)[-1]["state"] == "finished"


def test_wandb_without_a_network_holds_nobody_up(tmp_path: Path) -> None:
    """Its own patience is 90 s; and at the exit of our process it would wait for its own. Nor do another's threads."""
    nowhere = {"WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": "0" * 40}
    asked = ("--timeout_s", "8", "--tracker", "wandb,own_trackers:LeavesThreads")
    command = dfl_dist("launch", "--ranks", "2", *SHORT, "--rounds", "2", *asked)
    with running(command, tmp_path, **nowhere) as job:
        began = time.monotonic()
        done = job.finish()
        assert (done.code, done.err.count("Traceback")) == (0, 0), done.err
        assert time.monotonic() - began < 80
        assert done.err.count("tracker wandb is not done in time; the run ends without it") == 1
        assert "finished after round 2 of 2" in done.out
        assert done.err.count(LEFT) == 1
        assert_nothing_left(job)


def test_a_ctrl_c_stops_a_run_with_trackers_as_ever(tmp_path: Path) -> None:
    """W&B and MLflow leave signals alone, and nothing of theirs is left."""
    words = (*SHORT, "--rounds", "5000", "--tracker", "wandb,mlflow")
    with running(dfl_dist("launch", "--ranks", "2", *words), tmp_path, WANDB_MODE="offline") as job:
        wait_for_rounds(tmp_path / "run", 3)
        job.process.send_signal(signal.SIGINT)
        done = job.finish()
        assert (done.code, done.err.count("Traceback"), "tracker" in done.err) == (130, 0, False), done.err
        assert "stopped by Ctrl-C (SIGINT) after round" in done.out
        assert_nothing_left(job)
    (start,) = (tmp_path / "run" / "wandb").glob("offline-run-*")
    assert tracked.OfflineRun(start).summary["state"] == "stopped"
    assert tracked.mlflow_run(tmp_path / "run" / "mlflow")[0].info.status == "KILLED"


def assert_nothing_left(job: Running) -> None:
    """Of a job that has ended; the system's first process takes its time to bury what was killed."""
    end = time.monotonic() + 10
    while job.members():
        assert time.monotonic() < end, "processes are left"
        time.sleep(0.05)


def test_a_run_that_diverges_says_so(tmp_path: Path) -> None:
    """The other ranks wait for it: the first that leaves would have rank 0 ended."""
    words = ("--rounds", "9", "--local.lr", "1e30", "--local.clip_norm", "0", "--tracker", "own_trackers:TakesItsTime")
    done = run(dfl_dist("launch", "--ranks", "2", *SHORT, *words), tmp_path)
    assert (done.code, done.err.count("the training diverged")) == (1, 1), done.err
    assert told(tmp_path / "run", 0)[-1] == {"state": "diverged", "model": None}


def test_a_run_that_loses_mass_has_failed(tmp_path: Path) -> None:
    words = ("--rounds", "9", "--graph.out_degree", "1", "--eval.every", "1", "--tracker", "own_trackers:Keep")
    done = run(ranks(2, "broken_trainer:lose_mass", *SHORT, *words), tmp_path)
    assert done.code == 1
    assert told(tmp_path / "run", 0)[-1] == {"state": "failed", "model": None}


def test_a_run_from_before_there_was_tracker_goes_on(tmp_path: Path) -> None:
    """Its files say `tensorboard: true`."""
    out = train(None, tmp_path / "run", "--num_clients", "2", "--local.epochs", "1", "--rounds", "2")
    for name in ("config.yaml", "resolved.yaml"):
        text = (out / name).read_text()
        assert text.count("tracker: null") == 1
        (out / name).write_text(text.replace("tracker: null", "tensorboard: true"))
    train(None, out, "--resume", str(out), "--rounds", "3")
    values, _ = tracked.events(out)
    assert values["train_loss"] == {
        line["round"]: pytest.approx(line["train_loss"]) for line in lines(out / "metrics.jsonl")[1:]
    }


def test_what_is_refused_is_refused_before_the_run(tmp_path: Path) -> None:
    done = run(ranks(2, TRAINER, *SHORT, "--tracker", "tensorbord"), tmp_path)
    assert (done.code, list(tmp_path.iterdir())) == (2, [])
    allowed = "tensorboard, wandb, mlflow or package.module:name"
    expected = f"dfl_dist: tracker: given tensorbord, allowed: {allowed} (did you mean tensorboard?)"
    assert done.err.splitlines() == [expected]


def test_example_of_the_readme(tmp_path: Path) -> None:
    """A tracker of a user, as it stands there; beside one that has left threads."""
    script = re.search(r"```python\n(# losses.py: .*?)```", (ROOT / "configs" / "README.md").read_text(), re.DOTALL)
    assert script
    (tmp_path / "losses.py").write_text(script[1])
    words = (*SHORT, "--rounds", "2", "--tracker", "losses:table,own_trackers:LeavesThreads")
    done = run([sys.executable, "-m", "dfl_dist.train", *words], tmp_path)
    assert (done.code, done.err.count("tracker"), done.err.count(LEFT)) == (0, 1, 1), done.err
    *rows, end = (tmp_path / "run" / "losses.csv").read_text().splitlines()
    recorded = lines(tmp_path / "run" / "metrics.jsonl")
    assert rows == ["round,train_loss", *(f"{line['round']},{line['train_loss']}" for line in recorded)]
    assert end == "# finished, lr 0.03"
