"""What to run and from which state: new runs, continuations, and what is refused before anything is written."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from dfl_dist.config.resolve import resolve
from dfl_dist.config.values import ask, load_asked, load_resolved
from dfl_dist.errors import ConfigError
from dfl_dist.run_folder import checkpoint
from dfl_dist.run_folder.checkpoint import ClientState, Holdings
from dfl_dist.run_folder.folder import is_finished, mark_finished, read_environment, write_facts
from dfl_dist.run_folder.job import Continuation, Job, open_folder, plan_job, release, scores_to_drop, write_settings
from dfl_dist.run_folder.status import LAUNCH
from dfl_dist.system import born


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)


def begin(given: dict[str, Any], *, run_id: str | None = None, ranks: int | None = None) -> Job:
    """Plan a run, open its folder and write its settings, as rank 0 does."""
    job = open_folder(plan_job(given, ranks, run_id), drained=False)
    write_settings(job, backend="gloo", device="cpu", threads=1)
    return job


def save(run: Path, round_count: int, *, manifest: bool = True) -> Path:
    folder = run / "checkpoints" / checkpoint.folder_name(round_count)
    checksum = checkpoint.save_client(folder, ClientState(0, round_count, None, Holdings(torch.zeros(2), 1.0)))
    if manifest:
        checkpoint.write_manifest(folder, [checksum], {})
    return folder


def test_planning_writes_nothing(tmp_path: Path) -> None:
    plan = plan_job({"rounds": 7}, 4, "a job")
    assert (plan.resolved.rounds, plan.resolved.num_clients, plan.start) == (7, 4, None)
    assert plan.asked == ask({"rounds": 7})
    assert list(tmp_path.iterdir()) == []


def test_a_run_has_its_settings_as_asked_and_in_force(tmp_path: Path) -> None:
    job = begin({"local.lr": 0.5, "out": "here"})
    assert job.folder == tmp_path / "here"
    assert load_asked(job.folder / "config.yaml") == ask({"local.lr": 0.5}), "but for where it is kept"
    found = load_resolved(job.folder / "resolved.yaml")
    assert (found.out, found.backend, found.device, found.local.rho) == (str(job.folder), "gloo", "cpu", 0.1)
    with pytest.raises(ConfigError, match="out: given here, which already holds a run"):
        plan_job({"out": "here"}, None, None)


@pytest.mark.parametrize("given", [{}, {"graph.p": 0.25, "graph.kind": "erdos_renyi", "out": "a folder"}])
def test_other_ranks_hear_of_the_very_same_job(given: dict[str, Any]) -> None:
    job = begin(given, run_id="a job", ranks=3)
    assert Job.from_text(job.to_text()) == job
    save(job.folder, 10)
    again = begin({"resume": str(job.folder), "rounds": 99}, ranks=3)
    assert again.rounds_done == 10
    assert Job.from_text(again.to_text()) == again


# Going on.


def renumber(path: Path, number: int | None) -> None:
    """Let a run folder or a checkpoint be of another format, or of none."""
    facts = {key: value for key, value in json.loads(path.read_text()).items() if key != "format"}
    path.write_text(json.dumps(facts | ({} if number is None else {"format": number})))


def test_a_folder_without_a_number_is_of_format_1_and_goes_on() -> None:
    job = begin({"rounds": 30})
    checkpoint_folder = save(job.folder, 10)
    renumber(job.folder / "environment.json", None)
    renumber(checkpoint_folder / "manifest.json", None)
    again = begin({"resume": str(job.folder)})
    assert again.rounds_done == 10
    assert checkpoint.read_manifest(checkpoint_folder, {})["round"] == 10
    assert read_environment(job.folder)["format"] == 1


@pytest.mark.parametrize("number", [0, 2])
def test_a_folder_of_another_format_is_refused_in_one_line(number: int) -> None:
    job = begin({"rounds": 30}, run_id="a job")
    checkpoint_folder = save(job.folder, 10)
    renumber(job.folder / "environment.json", number)
    words = rf"resume: given {job.folder}, of format {number} \(written by dfl_dist .*\), allowed: format 1, "
    for given in ({"resume": str(job.folder)}, {"resume": str(checkpoint_folder)}, {}):
        with pytest.raises(ConfigError, match=words):
            plan_job({"rounds": 30, **given}, None, "a job")
    renumber(checkpoint_folder / "manifest.json", number)
    with pytest.raises(ConfigError, match=rf"manifest.json, of format {number}, allowed: format 1, which this"):
        checkpoint.read_manifest(checkpoint_folder, {})


def test_a_run_goes_on_from_its_newest_complete_checkpoint_or_a_named_one() -> None:
    job = begin({"rounds": 30, "local.lr": 0.5})
    for round_count in (0, 10, 20):
        save(job.folder, round_count)
    save(job.folder, 25, manifest=False)
    found = begin({"resume": str(job.folder), "rounds": 40})
    assert (found.rounds_done, found.folder, found.token) == (20, job.folder, job.token)
    assert found.start_id != job.start_id
    assert (found.resolved.rounds, found.resolved.local.lr) == (40, 0.5)
    named = plan_job({"resume": str(job.folder / "checkpoints" / "round-000010")}, None, None)
    assert named.start is not None
    assert named.start.rounds_done == 10


def test_a_run_keeps_its_clients_on_other_ranks() -> None:
    job = begin({}, ranks=4)
    save(job.folder, 10)
    assert plan_job({"resume": str(job.folder)}, 2, None).resolved.num_clients == 4
    with pytest.raises(ConfigError, match="num_clients: given 4, allowed: 5 or more"):
        plan_job({"resume": str(job.folder)}, 5, None)


def test_a_run_along_a_cosine_keeps_its_rounds() -> None:
    job = begin({"local.schedule": "cosine", "rounds": 20})
    save(job.folder, 10)
    assert plan_job({"resume": str(job.folder)}, None, None).start
    with pytest.raises(ConfigError, match=r"rounds: given 30, allowed: 20, which local\.schedule cosine is laid out"):
        plan_job({"resume": str(job.folder), "rounds": 30}, None, None)


@pytest.mark.parametrize("written", [None, 0.0])
def test_a_run_from_before_clipping_was_the_default_goes_on_without_it(written: float | None) -> None:
    job = begin({})
    save(job.folder, 10)
    values = yaml.safe_load((job.folder / "resolved.yaml").read_text())
    values["local"]["clip_norm"] = written
    (job.folder / "resolved.yaml").write_text(yaml.safe_dump(values))
    plan = plan_job({"resume": str(job.folder)}, None, None)
    assert plan.resolved.local.clip_norm == 0
    assert plan.asked["local.clip_norm"] is None, "the same settings in a new run are clipped"
    with pytest.raises(ConfigError, match=r"local.clip_norm: given 10.0, allowed: 0.0"):
        plan_job({"resume": str(job.folder), "local.clip_norm": 10.0}, None, None)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"local.lr": 0.4}, "local.lr: given 0.4, allowed: 0.03, as in the run that is resumed (FOLDER)"),
        ({"rounds": 10}, "rounds: given 10, allowed: more than 20, which FOLDER has done; set --rounds"),
        ({"out": "elsewhere"}, "out: given elsewhere, allowed: null: the run goes on in FOLDER"),
    ],
)
def test_what_would_make_it_another_run_is_refused(given: dict[str, Any], line: str) -> None:
    job = begin({})
    save(job.folder, 20)
    with pytest.raises(ConfigError) as error:
        plan_job({"resume": str(job.folder), **given}, None, None)
    assert str(error.value) == line.replace("FOLDER", str(job.folder))


def test_a_run_that_is_done_has_nothing_to_go_on_with_unless_it_is_made_longer() -> None:
    job = begin({"rounds": 20})
    save(job.folder, 20)
    assert plan_job({"resume": str(job.folder)}, None, None).start, "its results were not written"
    mark_finished(job.folder, 20)
    with pytest.raises(ConfigError, match="rounds: given 20, allowed: more than 20"):
        plan_job({"resume": str(job.folder)}, None, None)
    assert plan_job({"resume": str(job.folder), "rounds": 21}, None, None).start


def test_a_run_that_stop_has_ended_goes_on_with_another_stop_only() -> None:
    job = begin({"rounds": 20, "stop.patience": 2, "max_seconds": 5.0})
    save(job.folder, 10)
    mark_finished(job.folder, 10, "stop.patience 2 (best: 50.00% after round 5)")
    assert is_finished(job.folder, 20)
    for given in ({}, {"rounds": 30}):
        with pytest.raises(ConfigError, match=r"stop.patience: given 2 .*, allowed: another value, or null"):
            plan_job({"resume": str(job.folder), **given}, None, None)
    plan = plan_job({"resume": str(job.folder), "stop.patience": None, "max_seconds": None}, None, None)
    assert (plan.resolved.stop.patience, plan.resolved.max_seconds) == (None, None)
    again = open_folder(plan, drained=False)
    assert not is_finished(again.folder, 20)


def test_what_is_no_run_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"resume: given .*, allowed: auto, never, or the folder of a run or of one"):
        plan_job({"resume": str(tmp_path)}, None, None)
    job = begin({})
    with pytest.raises(ConfigError, match="which has no complete checkpoint, allowed: a run with one"):
        plan_job({"resume": str(job.folder)}, None, None)
    save(job.folder, 10)
    torn = save(job.folder, 20, manifest=False)
    with pytest.raises(ConfigError, match="is not a complete checkpoint; the one before it can be used: --resume"):
        plan_job({"resume": str(torn)}, None, None)
    (job.folder / "environment.json").write_text("{")
    with pytest.raises(ConfigError, match="is missing or damaged, so the run is not known"):
        plan_job({"resume": str(job.folder)}, None, None)


def test_the_same_job_started_again_goes_on_by_itself() -> None:
    job = begin({"rounds": 20}, run_id="a job")
    again = plan_job({"rounds": 20}, None, "a job")
    assert again.start is not None
    assert (again.start.folder, again.start.checkpoint) == (job.folder, None), "from the start, without a checkpoint"
    folder = save(job.folder, 10)
    again = plan_job({"rounds": 20}, None, "a job")
    assert again.start is not None
    assert again.start.checkpoint == folder
    for given, run_id in [({"rounds": 20}, None), ({"rounds": 20}, "another"), ({"rounds": 21}, "a job")]:
        assert plan_job(given, None, run_id).start is None
    assert plan_job({"rounds": 20, "seed": 1}, None, "a job").start is None, "asked for something else"
    assert plan_job({"rounds": 20, "resume": "never"}, None, "a job").start is None
    mark_finished(job.folder, 20)
    assert plan_job({"rounds": 20}, None, "another").start is None


@pytest.mark.parametrize("out", [None, "here"])
def test_a_second_call_of_the_same_process_is_no_second_start(out: str | None) -> None:
    job = begin({"rounds": 20, "out": out}, run_id="a job")
    if out is None:
        assert plan_job({"rounds": 20}, None, "a job", begun={job.folder}).start is None
    else:
        with pytest.raises(ConfigError, match="out: given here, which already holds a run"):
            plan_job({"rounds": 20, "out": out}, None, "a job", begun={job.folder})
    assert plan_job({"rounds": 20, "out": out}, None, "a job").start is not None


# A job that was started again in its last second.


def finish(launch: str | None, monkeypatch: pytest.MonkeyPatch, **given: Any) -> Job:
    """A run of 20 rounds that a job has finished, under a launcher or without one."""
    name_launch(launch, monkeypatch)
    job = begin({"rounds": 20, **given}, run_id="a job")
    for count in (10, 20):
        save(job.folder, count)
    mark_finished(job.folder, 20)
    return job


def name_launch(launch: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if launch is None:
        monkeypatch.delenv(LAUNCH, raising=False)
    else:
        monkeypatch.setenv(LAUNCH, launch)


@pytest.mark.parametrize("launch", ["this one", None])
@pytest.mark.parametrize("out", [None, "here"])
def test_a_job_finds_its_own_run_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launch: str | None, out: str | None
) -> None:
    job = finish(launch, monkeypatch, out=out)
    for given in ({"rounds": 20, "out": out}, {"resume": str(job.folder)}):
        plan = plan_job(given, None, "a job")
        assert plan.finished
        again = open_folder(plan, drained=False)
        assert (again.finished, again.folder, again.token) == (True, job.folder, job.token)
        assert Job.from_text(again.to_text()) == again
        assert is_finished(job.folder, 20)
        assert read_environment(job.folder)["start"] == again.start_id != job.start_id, "the one before writes no more"
    folders = [path.name for path in (tmp_path / "runs").iterdir() if not path.is_symlink()] if out is None else []
    assert len(folders) <= 1, "no second run"


@pytest.mark.parametrize(("launch", "run_id"), [("another", "a job"), (None, "a job"), ("this one", "another")])
def test_a_run_that_another_job_has_finished_is_not_ones_own(
    monkeypatch: pytest.MonkeyPatch, launch: str | None, run_id: str
) -> None:
    job = finish("this one", monkeypatch, out="here")
    name_launch(launch, monkeypatch)
    assert plan_job({"rounds": 20}, None, run_id).start is None
    with pytest.raises(ConfigError, match="out: given here, which already holds a run"):
        plan_job({"rounds": 20, "out": "here"}, None, run_id)
    with pytest.raises(ConfigError, match="rounds: given 20, allowed: more than 20"):
        plan_job({"resume": str(job.folder)}, None, run_id)


@pytest.mark.parametrize("launch", ["this one", None])
def test_a_finished_run_can_be_gone_back_in_and_made_longer_by_the_same_job(
    monkeypatch: pytest.MonkeyPatch, launch: str | None
) -> None:
    job = finish(launch and "an earlier one", monkeypatch)
    name_launch(launch, monkeypatch)
    assert not plan_job({"resume": str(job.folder), "rounds": 21}, None, "a job").finished
    back = {"resume": str(job.folder / "checkpoints" / "round-000010")}
    plan = plan_job(back, None, "a job")
    assert (plan.finished, plan.start and plan.start.rounds_done) == (False, 10)
    open_folder(plan, drained=False)
    assert not is_finished(job.folder, 20), "killed before its first round, it has still to go back"
    assert not plan_job(back, None, "a job").finished
    mark_finished(job.folder, 20)
    assert not plan_job(back, None, "a job").finished, "asked for once more, it goes back once more"
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert plan_job(back, None, "a job").finished, "but not when its ranks are started again in the last second"


@pytest.mark.parametrize(("restarts", "is_kept"), [(None, False), ("0", False), ("1", True)])
def test_a_stop_that_was_asked_for_while_ranks_are_started_again_is_kept(
    monkeypatch: pytest.MonkeyPatch, restarts: str | None, is_kept: bool
) -> None:
    """One that is left from an earlier start is not meant for this one."""
    job = begin({"rounds": 20}, run_id="a job")
    (job.folder / "STOP").touch()
    if restarts is not None:
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
    open_folder(plan_job({"rounds": 20}, None, "a job"), drained=False)
    assert (job.folder / "STOP").exists() == is_kept


@pytest.mark.parametrize(
    ("every", "clients_every", "rounds_done", "rounds", "dropped"),
    [
        (5, 0, 7, 7, []),  # it ends there again
        (5, 0, 7, 8, ["test_accuracy", "test_loss", "consensus_distance"]),
        (5, 0, 10, 20, []),
        (5, 4, 10, 20, [f"client_accuracy_{word}" for word in ("mean", "min", "max", "worst_tenth")]),
        (5, 4, 8, 20, []),
    ],
)
def test_scores_of_a_round_that_was_the_last_one_are_dropped(
    every: int, clients_every: int, rounds_done: int, rounds: int, dropped: list[str]
) -> None:
    asked = ask({"eval.every": every, "eval.clients_every": clients_every, "rounds": rounds})
    resolved = resolve(asked)
    start = Continuation(Path(), Path(f"checkpoints/round-{rounds_done:06d}"), asked, resolved, "token")
    found = [key for key in scores_to_drop(start, resolved) if clients_every or "client" not in key]
    assert found == dropped


@pytest.fixture
def another() -> Iterator[dict[str, Any]]:
    """The leader of another job on this host, which is alive."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield {"host": socket.gethostname(), "pid": process.pid, "born": born(process.pid)}
        process.communicate()


def led_by(leader: dict[str, Any]) -> Path:
    """A run of "a job", whose leader is that process."""
    job = begin({"rounds": 20}, run_id="a job")
    save(job.folder, 10)
    write_facts(job.folder, read_environment(job.folder) | {"leader": {"folder": str(job.folder.resolve()), **leader}})
    return job.folder


@pytest.mark.parametrize("run_id", [None, "another job"])
@pytest.mark.parametrize("within", ["", "checkpoints/round-000010"])
def test_a_run_that_another_job_is_at_work_on_is_not_taken_from_it(
    another: dict[str, Any], run_id: str | None, within: str
) -> None:
    folder = led_by(another)
    with pytest.raises(ConfigError) as error:
        plan_job({"resume": str(folder / within)}, None, run_id)
    given = f"resume: given {folder}, which is running (process {another['pid']} on this host)"
    assert str(error.value) == f"{given}, allowed: a run that has ended; stop it first with Ctrl-C or a file STOP in it"


@pytest.mark.parametrize(
    "changed", [{"host": "elsewhere"}, {"born": "1"}, {"born": None}, {"pid": os.getpid()}, {"folder": "original"}]
)
def test_a_run_whose_leader_is_not_at_work_here_can_be_resumed(
    another: dict[str, Any], changed: dict[str, Any]
) -> None:
    """It is on another host, its number is another process's by now, a script's that has ended it, this one; a copy."""
    own = {"born": born(os.getpid())} if "pid" in changed else {}
    assert plan_job({"resume": str(led_by(another | changed | own))}, None, "another job").start


def test_a_job_takes_its_own_run_over_when_it_is_started_again(
    monkeypatch: pytest.MonkeyPatch, another: dict[str, Any]
) -> None:
    folder = led_by(another)
    assert plan_job({"resume": str(folder)}, None, "a job").start
    assert plan_job({"rounds": 20}, None, "a job").start, "resume: auto"
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert plan_job({"resume": str(folder)}, None, "another job").start


def test_a_script_that_lives_on_releases_its_run_but_not_that_of_a_later_start() -> None:
    job = begin({"rounds": 20})
    save(job.folder, 10)
    later = open_folder(plan_job({"resume": str(job.folder)}, None, None), drained=False)
    release(job)
    assert read_environment(job.folder)["leader"]["born"] == born(os.getpid())
    release(later)
    assert read_environment(job.folder)["leader"]["born"] is None
