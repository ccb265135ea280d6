"""What rank 0 writes down of every round, and who is told of it."""

import math
from pathlib import Path
from typing import Any

from dfl_dist.run_folder.files import read_lines
from dfl_dist.run_folder.recorder import Recorder


def test_a_round_is_one_line_of_each_file_and_listeners_are_told(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    recorder = Recorder(tmp_path, [told.append])
    recorder.write({"round": 0, "train_loss": math.nan}, {"out": [[0]], "weights": "out-degree"})
    recorder.write({"round": 1, "train_loss": 0.5}, {"out": None, "clients": (1,), "weights": "server"})
    expected = [{"round": 0, "train_loss": None}, {"round": 1, "train_loss": 0.5}]
    assert read_lines(tmp_path / "metrics.jsonl") == told == expected
    assert read_lines(tmp_path / "topology.jsonl") == [
        {"round": 0, "out": [[0]], "weights": "out-degree"},
        {"round": 1, "out": None, "clients": [1], "weights": "server"},
    ]
    recorder.close()


def test_the_last_line_can_be_amended_and_recording_goes_on(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    for number in range(2):
        recorder.write({"round": number, "train_loss": 0.5, "push_weight_min": 0.1}, {})
    recorder.amend({"push_weight_min": 0.2, "test_loss": math.inf})
    recorder.write({"round": 2}, {})
    recorder.sync()
    assert read_lines(tmp_path / "metrics.jsonl") == [
        {"round": 0, "train_loss": 0.5, "push_weight_min": 0.1},
        {"round": 1, "train_loss": 0.5, "push_weight_min": 0.2, "test_loss": None},
        {"round": 2},
    ]
    recorder.close()


def test_a_recorder_appends_to_what_a_resumed_run_has(tmp_path: Path) -> None:
    for number in range(2):
        recorder = Recorder(tmp_path)
        recorder.write({"round": number}, {})
        recorder.close()
    assert [line["round"] for line in read_lines(tmp_path / "metrics.jsonl")] == [0, 1]
