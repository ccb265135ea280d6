"""Run folders: names, numbers, runs/latest, cutting back, what is written of the run."""

import json
from pathlib import Path

import numpy as np
import pytest

from dfl_dist.errors import ConfigError
from dfl_dist.formats import FORMAT
from dfl_dist.run_folder import folder
from dfl_dist.run_folder.files import read_lines
from dfl_dist.run_folder.folder import (
    check_free,
    check_seen,
    claim,
    cut_back,
    is_finished,
    mark_finished,
    point_latest,
    read_classes,
    read_environment,
    refused_where_unwritable,
    write_classes,
    write_environment,
)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("out", "tried"), [(None, r"nothing, which means a new folder in {}/runs"), ("runs/x", "runs/x")]
)
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, out: str | None, tried: str) -> None:
    (tmp_path / "runs").write_text("")
    told = rf"^out: given {tried.format(tmp_path)}, which cannot be written: .*, allowed: a folder that can be written$"
    with pytest.raises(ConfigError, match=told), refused_where_unwritable(out):
        claim(out, "osgp", "digits")


def test_the_next_free_folder_is_taken(tmp_path: Path) -> None:
    names = [claim(None, "osgp", "my.sets:load").name for _ in range(2)]
    assert names == ["osgp-my.sets-load-001", "osgp-my.sets-load-002"]
    (tmp_path / "runs" / "osgp-my.sets-load-017").mkdir()
    (tmp_path / "runs" / "osgp-my.sets-load-best").mkdir()
    assert claim(None, "osgp", "my.sets:load").name == "osgp-my.sets-load-018"
    assert claim(None, "sgp", "digits").name == "sgp-digits-001"
    assert claim("deep/down", "sgp", "digits") == tmp_path / "deep" / "down"


def test_a_job_restarted_before_its_run_began_takes_its_folder_again(tmp_path: Path) -> None:
    first = claim(None, "sgp", "digits", "torchrun-a")
    write_environment(first, {"run_id": "torchrun-a"})
    assert claim(None, "sgp", "digits", "torchrun-a") == first
    assert claim(None, "sgp", "digits", "torchrun-b") != first
    assert claim(None, "sgp", "digits") != first
    (first / "resolved.yaml").touch()
    assert claim(None, "sgp", "digits", "torchrun-a") != first, "by then it is a run"


def test_latest_follows_runs_in_runs_only(tmp_path: Path) -> None:
    for name in ("a", "b"):
        point_latest(claim(f"runs/{name}", "sgp", "digits"))
        assert (tmp_path / "runs" / "latest").readlink() == Path(name)
    point_latest(claim("elsewhere", "sgp", "digits"))
    assert (tmp_path / "runs" / "latest").readlink() == Path("b")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_no_link_is_not_replaced_by_one(tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    run, latest = claim("runs/a", "sgp", "digits"), tmp_path / "runs" / "latest"
    latest.write_text("mine") if kind == "file" else latest.mkdir()
    point_latest(run)
    assert caplog.messages == ["runs/latest does not point to a: it is no link of ours"]
    assert sorted(path.name for path in latest.parent.iterdir()) == ["a", "latest"]
    assert latest.read_text() == "mine" if kind == "file" else latest.is_dir()


def write(run: Path, rounds: int) -> None:
    metrics = [{"round": t, "train_loss": 1.0, "test_accuracy": 0.5, "consensus_distance": 0.1} for t in range(rounds)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics) + '{"round": 9')
    (run / "topology.jsonl").write_text("".join(json.dumps({"round": t, "out": []}) + "\n" for t in range(rounds)))


def test_cutting_back(tmp_path: Path) -> None:
    write(tmp_path, 5)
    cut_back(tmp_path, 3, [], [0.5, 1.5])
    lines = read_lines(tmp_path / "metrics.jsonl")
    assert [line["round"] for line in lines] == [0, 1, 2]
    assert all("test_accuracy" in line for line in lines)
    cut_back(tmp_path, 2, ["test_accuracy", "consensus_distance"], [0.4, 1.6])
    assert read_lines(tmp_path / "metrics.jsonl")[-1] == {
        **{"round": 1, "train_loss": 1.0, "push_weight_min": 0.4, "push_weight_max": 1.6}
    }
    assert read_lines(tmp_path / "topology.jsonl") == [{"round": 0, "out": []}, {"round": 1, "out": []}]


def test_missing_rounds_are_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    write(tmp_path, 5)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="has 5 of the 7 rounds before the checkpoint"):
        cut_back(tmp_path, 7, [], [1.0])
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_folder_that_is_not_shared_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "SEEN_WITHIN_S", 0.1)
    write_environment(tmp_path, {"start": "abc"})
    check_seen(tmp_path, "abc")
    with pytest.raises(ConfigError, match="allowed: a folder that every host sees"):
        check_seen(tmp_path, "xyz")


def test_a_named_folder_that_holds_a_run_is_refused(tmp_path: Path) -> None:
    check_free(None)
    check_free("new")
    check_free(".")
    (tmp_path / "resolved.yaml").touch()
    given = r"^out: given \., which already holds a run, allowed: a new folder, or "
    with pytest.raises(ConfigError, match=f"{given}this one removed: no checkpoint of it was written$"):
        check_free(".")
    (tmp_path / "checkpoints" / "round-000002").mkdir(parents=True)
    (tmp_path / "checkpoints" / "round-000002" / "manifest.json").touch()
    with pytest.raises(ConfigError, match=rf"{given}--resume \.$"):
        check_free(".")


def test_a_folder_is_what_its_name_leads_to_though_a_part_of_it_is_not_there_yet(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(
        ConfigError, match=r"^out: given runs/\.\., which holds notes.txt, allowed: a new or empty folder$"
    ):
        check_free("runs/..")


@pytest.mark.parametrize(
    "name", ["model.pt", "config.yaml", "environment.json", "notes.txt", ".hidden", "data/set.npz"]
)
def test_a_named_folder_that_holds_anything_else_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "logs").mkdir()  # empty, as one that was just made
    check_free("exp")
    (tmp_path / "exp" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "exp" / name).write_text("{}")
    held = name.partition("/")[0]
    with pytest.raises(ConfigError, match=rf"^out: given exp, which holds {held}, allowed: a new or empty folder$"):
        check_free("exp")
    with pytest.raises(ConfigError, match=r"^out: given exp/\.\., which holds exp, allowed: a new or empty folder$"):
        check_free("exp/..")


def test_what_a_start_has_left_that_came_to_nothing_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".environment.json.123").touch()
    check_free(".")
    write_environment(tmp_path, {"run": "abc"})
    (tmp_path / "sweep.json").touch()
    (tmp_path / "partition.npz").touch()
    (tmp_path / ".classes.json.123").touch()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "attempt-0").mkdir()
    check_free(".")
    (tmp_path / "model.pt").touch()
    with pytest.raises(ConfigError, match=r"which holds model\.pt"):
        check_free(".")


def test_a_run_is_finished_after_the_rounds_that_it_says(tmp_path: Path) -> None:
    write_environment(tmp_path, {"run": "abc"})
    assert not is_finished(tmp_path, 5)
    mark_finished(tmp_path, 5)
    assert is_finished(tmp_path, 5)
    assert not is_finished(tmp_path, 6), "made longer, it is not"
    found = read_environment(tmp_path)
    assert (found["run"], found["format"]) == ("abc", FORMAT)
    assert set(found["versions"]) == {"dfl_dist", "python", "torch", "numpy", "cuda"}


def test_the_classes_of_each_client_are_read_back(tmp_path: Path) -> None:
    assert read_classes(tmp_path) == []
    write_classes(tmp_path, ["a", "b"], np.array([[1, 2], [3, 0], [0, 1]]))
    assert read_classes(tmp_path) == [[1, 2], [3, 0], [0, 1]]
    assert json.loads((tmp_path / "classes.json").read_text())["classes"] == ["a", "b"]
