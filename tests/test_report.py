"""The table of runs: read from run folders alone."""

import json
from pathlib import Path

import pytest

from dfl_dist.cli import main
from dfl_dist.config import Config, dump


def write_run(folder: Path, algorithm: str, accuracies: list[float | None]) -> Path:
    """A run folder with a line a round; None where the round was not evaluated."""
    folder.mkdir()
    (folder / "resolved.yaml").write_text(dump(Config(algorithm=algorithm, rounds=4)))
    with (folder / "metrics.jsonl").open("w") as file:
        for round_idx, accuracy in enumerate(accuracies):
            line = {"round": round_idx, "bytes_sent": 500_000}
            scores = {"test_accuracy": accuracy, "test_loss": 0.25, "consensus_distance": 0.125}
            file.write(json.dumps(line | (scores if accuracy is not None else {})) + "\n")
        file.write('{"round": 9, "torn')
    return folder


def test_a_line_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write_run(tmp_path / "a", "sgp", [0.5, None, 0.875, 0.75])
    second = write_run(tmp_path / "b", "dfedsgpsm-s", [None, 0.9, None])
    assert main(["report", str(first), str(second)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert " ".join(head.split()) == "run algorithm rounds accuracy best test loss consensus MB sent"
    assert rows[0].split() == [str(first), "sgp", "4/4", "75.00%", "87.50%", "0.2500", "0.125", "2.0"]
    assert rows[1].split() == [str(second), "dfedsgpsm-s", "3/4", "90.00%", "90.00%", "0.2500", "0.125", "1.5"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "report: given nothing, allowed: the folders of runs"),
        (["nowhere"], "run: given nowhere, allowed: the folder of a run"),
    ],
)
def test_what_is_no_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments]) == 2
    assert line in capsys.readouterr().err


def test_what_is_not_there_yet_is_a_dash_and_a_link_no_second_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    young = write_run(tmp_path / "young", "sgp", [None])
    (tmp_path / "latest").symlink_to(young)
    hot = write_run(tmp_path / "zz", "sgp", [0.5])
    (hot / "metrics.jsonl").write_text((hot / "metrics.jsonl").read_text().replace("0.25", "null"))
    assert main(["report", str(tmp_path / "latest"), str(tmp_path)]) == 0
    named, *_ = capsys.readouterr().out.splitlines()[1:]
    assert named.split()[0] == str(tmp_path / "latest"), "the name given first"
    assert main(["report", str(young), str(tmp_path)]) == 0, "the folder of several runs stands for all of them"
    _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split() for row in rows] == [
        [str(young), "sgp", "1/4", "-", "-", "-", "-", "0.5"],
        [str(hot), "sgp", "1/4", "50.00%", "50.00%", "-", "0.125", "0.5"],
    ]


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--help"]) == 0
    assert "usage: dfl-dist report FOLDER" in capsys.readouterr().out
