"""Run folders: names, numbers, runs/latest, evaluated rounds, cutting back."""

import json
from pathlib import Path

import pytest

from dfl_dist import run_folder
from dfl_dist.config import ConfigError
from dfl_dist.evaluate import EvalSchedule


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_next_free_folder_is_taken(tmp_path: Path) -> None:
    names = [run_folder.claim(None, "osgp", "my.sets:load").name for _ in range(2)]
    assert names == ["osgp-my.sets-load-001", "osgp-my.sets-load-002"]
    (tmp_path / "runs" / "osgp-my.sets-load-017").mkdir()
    (tmp_path / "runs" / "osgp-my.sets-load-best").mkdir()
    assert run_folder.claim(None, "osgp", "my.sets:load").name == "osgp-my.sets-load-018"
    assert run_folder.claim(None, "sgp", "digits").name == "sgp-digits-001"
    assert run_folder.claim("deep/down", "sgp", "digits") == tmp_path / "deep" / "down"


def test_a_job_restarted_before_its_run_began_takes_its_folder_again(tmp_path: Path) -> None:
    first = run_folder.claim(None, "sgp", "digits", "torchrun-a")
    run_folder.write_environment(first, {"run_id": "torchrun-a"})
    assert run_folder.claim(None, "sgp", "digits", "torchrun-a") == first
    assert run_folder.claim(None, "sgp", "digits", "torchrun-b") != first
    assert run_folder.claim(None, "sgp", "digits") != first
    (first / "resolved.yaml").touch()
    assert run_folder.claim(None, "sgp", "digits", "torchrun-a") != first, "by then it is a run"


def test_latest_follows_runs_in_runs_only(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run_folder.point_latest(run_folder.claim(f"runs/{name}", "sgp", "digits"))
        assert (tmp_path / "runs" / "latest").readlink() == Path(name)
    run_folder.point_latest(run_folder.claim("elsewhere", "sgp", "digits"))
    assert (tmp_path / "runs" / "latest").readlink() == Path("b")


def test_evaluated_rounds() -> None:
    schedule = EvalSchedule(every=4, clients_every=6)
    assert [t for t in range(12) if schedule.due(t, last=False)] == [3, 5, 7, 11]
    assert [t for t in range(12) if schedule.each_client(t, last=False)] == [5, 11]
    assert schedule.due(0, last=True)
    assert schedule.each_client(0, last=True)
    assert not EvalSchedule(every=4, clients_every=0).each_client(3, last=True)


def write(folder: Path, rounds: int) -> None:
    metrics = [{"round": t, "train_loss": 1.0, "test_accuracy": 0.5, "consensus_distance": 0.1} for t in range(rounds)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics) + '{"round": 9')
    (folder / "topology.jsonl").write_text("".join(json.dumps({"round": t, "out": []}) + "\n" for t in range(rounds)))


def test_cutting_back(tmp_path: Path) -> None:
    write(tmp_path, 5)
    run_folder.cut_back(tmp_path, 3, [], [0.5, 1.5])
    lines = run_folder.read_lines(tmp_path / "metrics.jsonl")
    assert [line["round"] for line in lines] == [0, 1, 2]
    assert all("test_accuracy" in line for line in lines)
    run_folder.cut_back(tmp_path, 2, ["test_", "consensus_"], [0.4, 1.6])
    assert run_folder.read_lines(tmp_path / "metrics.jsonl")[-1] == {
        **{"round": 1, "train_loss": 1.0, "push_weight_min": 0.4, "push_weight_max": 1.6}
    }
    assert run_folder.read_lines(tmp_path / "topology.jsonl") == [{"round": 0, "out": []}, {"round": 1, "out": []}]


def test_missing_rounds_are_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    write(tmp_path, 5)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="has 5 of the 7 rounds before the checkpoint"):
        run_folder.cut_back(tmp_path, 7, [], [1.0])
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_folder_that_is_not_shared_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "SEEN_WITHIN_S", 0.3)
    run_folder.write_environment(tmp_path, {"start": "abc"})
    run_folder.check_seen(tmp_path, "abc")
    with pytest.raises(ConfigError, match="allowed: a folder that every host sees"):
        run_folder.check_seen(tmp_path, "xyz")
