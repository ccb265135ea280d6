"""Trackers in one process: which are asked for, how they are told, what each built-in one needs."""

import logging
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import own_trackers
import pytest
import tracked

from dfl_dist.errors import ConfigError
from dfl_dist.run_folder import trackers
from dfl_dist.run_folder.recorder import Recorder
from dfl_dist.run_folder.trackers import MLflow, TensorBoard, Trackers

SETTINGS = {"timeout_s": 30.0, "local.lr": 0.1, "stop.target": None}
KEEP = {"keep": own_trackers.Keep}


# Which are asked for.


def test_several_are_asked_for_with_commas_by_name_or_import_path() -> None:
    assert list(trackers.find("tensorboard, own_trackers:Keep,tensorboard")) == ["tensorboard", "own_trackers:Keep"]
    assert trackers.find(None) == {}


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (
            "mlflow,wanbd",
            "tracker: given wanbd, allowed: tensorboard, wandb, mlflow or package.module:name (did you mean wandb?)",
        ),
        ("nowhere:f", "tracker: given nowhere:f, which cannot be imported"),
        ("own_trackers:Kept", "tracker: given own_trackers:Kept, which cannot be imported"),
        ("sys:path", "tracker: given sys:path, allowed: a function of the settings and the run folder"),
    ],
)
def test_others_are_refused(asked: str, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        trackers.check(asked)
    assert str(error.value).startswith(line)


@pytest.mark.parametrize("name", list(trackers.TRACKERS))
def test_a_missing_package_is_refused_with_the_extra_that_has_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    package = trackers.PACKAGES[name]
    for module in [module for module in sys.modules if module.split(".")[0] == name or module.startswith(package)]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"tracker: given {name}, .* pip install 'dfl-dist\[{name}\]'") as error:
        trackers.check(name)
    told = f"tracker: given {name}, which cannot be imported: ModuleNotFoundError; pip install 'dfl-dist[{name}]'"
    assert error.value.public == told, "not the text"


# How they are told.


def test_a_tracker_is_told_of_all_in_order_and_of_the_end_once(tmp_path: Path) -> None:
    opened = Trackers(KEEP, SETTINGS, tmp_path)
    recorder = Recorder(tmp_path, trackers=opened)
    recorder.write({"round": 0, "train_loss": float("nan")}, {})
    recorder.write({"round": 1, "train_loss": 0.5}, {})
    recorder.amend({"train_loss": 0.25})
    recorder.finish("stopped", tmp_path / "model.pt")
    recorder.finish("failed", None)
    recorder.close()
    assert own_trackers.told(tmp_path) == [
        {"settings": SETTINGS},
        {"line": {"round": 0, "train_loss": None}},
        {"line": {"round": 1, "train_loss": 0.5}},
        {"line": {"round": 1, "train_loss": 0.25}},
        {"state": "stopped", "model": str(tmp_path / "model.pt")},
    ]


def test_a_start_that_was_overtaken_does_not_tell_the_end(tmp_path: Path) -> None:
    def overtaken() -> None:
        raise RuntimeError("overtaken")

    recorder = Recorder(tmp_path, check=overtaken, trackers=Trackers(KEEP, SETTINGS, tmp_path))
    with pytest.raises(RuntimeError, match="overtaken"):
        recorder.finish("failed", None)
    recorder.trackers.running[0].tell(None)
    recorder.trackers.running[0].thread.join(10)
    assert own_trackers.told(tmp_path) == [{"settings": SETTINGS}]
    recorder.close()


def test_one_that_changes_what_it_is_told_changes_nothing_for_others(tmp_path: Path) -> None:
    class Takes(own_trackers.Keep):
        def log(self, line: Mapping[str, Any]) -> None:
            assert isinstance(line, dict)
            line.clear()

    opened = Trackers({"takes": lambda *_: Takes(SETTINGS, tmp_path / "other"), **KEEP}, SETTINGS, tmp_path)
    (tmp_path / "other").mkdir()
    opened.log({"round": 0})
    opened.finish("finished", None)
    assert {"line": {"round": 0}} in own_trackers.told(tmp_path)


def test_nobody_waits_for_a_tracker_that_is_being_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And the end waits for half of `timeout_s` only; what a tracker says after that is not heard."""
    go_on = threading.Event()

    def make(settings: Mapping[str, Any], folder: Path) -> own_trackers.Keep:
        go_on.wait()
        raise OSError("no network")

    opened = Trackers({"slow": make}, SETTINGS | {"timeout_s": 0.2}, tmp_path)
    (background,) = opened.running
    opened.log({"round": 0})
    with caplog.at_level(logging.WARNING):
        opened.finish("finished", None)
        assert background.thread.is_alive()
        go_on.set()
        background.thread.join(10)
    assert [record.getMessage() for record in caplog.records] == [
        "tracker slow is not done in time; the run ends without it"
    ]


def test_one_whose_import_fails_or_hangs_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As that of a run which goes on may by then."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "breaks.py").write_text("raise RuntimeError('gone')")
    (tmp_path / "waits.py").write_text("import threading; threading.Event().wait()")
    asked = trackers.find("breaks:make,waits:make,own_trackers:Keep")
    with caplog.at_level(logging.WARNING):
        opened = Trackers(asked, SETTINGS | {"timeout_s": 2.0}, tmp_path)
        opened.finish("finished", None)
    assert [record.getMessage() for record in caplog.records] == [
        "tracker breaks:make failed: RuntimeError in breaks.py, line 1: gone; the run goes on without it",
        "tracker waits:make is not done in time; the run ends without it",
    ]
    assert own_trackers.told(tmp_path)[-1] == {"state": "finished", "model": None}


# What is built in.


def test_tensorboard_shows_a_round_that_comes_again_as_it_was_told_last(tmp_path: Path) -> None:
    tracker = TensorBoard(SETTINGS, tmp_path)
    for number, loss in [(0, 4.0), (1, 3.0), (1, 2.0), (2, 1.0)]:
        tracker.log({"round": number, "train_loss": loss, "test_loss": None})
    tracker.finish("failed", None)
    values, texts = tracked.events(tmp_path)
    assert values == {"train_loss": {0: 4.0, 1: 2.0, 2: 1.0}}
    assert texts["state"] == ["failed"]


def test_a_run_that_ends_before_its_first_round_is_told_to_tensorboard(tmp_path: Path) -> None:
    TensorBoard(SETTINGS, tmp_path).finish("failed", None)
    values, texts = tracked.events(tmp_path)
    assert (values, texts["state"]) == ({}, ["failed"])


@pytest.mark.parametrize(("state", "status"), [("finished", "FINISHED"), ("stopped", "KILLED"), ("diverged", "FAILED")])
def test_mlflow_goes_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, status: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "elsewhere").as_uri())
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    (tmp_path / "environment.json").write_text('{"run": "0123abcd"}')
    tracker = MLflow(SETTINGS, tmp_path)
    tracker.log({"round": 3, "train_loss": 0.5, "test_loss": None})
    tracker.finish(state, None)
    found, values = tracked.mlflow_run(tmp_path / "elsewhere")
    assert (found.info.status, found.data.tags["state"], values) == (status, state, {"train_loss": {3: 0.5}})
    assert tracker.client.get_experiment_by_name("mine").experiment_id == found.info.experiment_id
    assert not (tmp_path / "mlflow").exists()
