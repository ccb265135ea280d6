"""Rows for other programs: one per evaluated round, the same in CSV and JSON."""

import csv
import io
import json
from pathlib import Path

import pytest
from run_folders import read_groups, write_run

from dfl_dist.commands.report import main
from dfl_dist.report.records import COLUMNS, as_csv, as_json


def test_one_row_per_evaluated_round(tmp_path: Path) -> None:
    clipped = write_run(tmp_path / "a", [0.5, None, 0.75], seed=3, num_clients=4, local__lr=0.1, data__alpha=0.6)
    (clipped / "environment.json").write_text('{"git_commit": "abc+"}')
    write_run(
        tmp_path / "b", [None, 0.25], [{}, {"test_loss": None}], algorithm="sgp", data__partition="iid", threads=2
    )
    found = json.loads(as_json(read_groups(clipped, tmp_path / "b")))
    told = {"algorithm": "dfedsgpsm", "partition": "Dir-0.6", "seed": 3, "commit": "abc+", "test_loss": 0.25}
    told["settings"] = "rounds=4;num_clients=4;local.lr=0.1"
    assert found[:2] == [told | {"round": 0, "test_accuracy": 0.5}, told | {"round": 2, "test_accuracy": 0.75}]
    other = {"algorithm": "sgp", "partition": "IID", "seed": 0, "commit": None, "test_loss": None}
    assert found[2:] == [other | {"settings": "rounds=4;num_clients=8", "round": 1, "test_accuracy": 0.25}]
    table = csv.DictReader(io.StringIO(as_csv(read_groups(clipped, tmp_path / "b"))))
    assert table.fieldnames == list(COLUMNS)
    for row, values in zip(table, found, strict=True):
        assert row == {key: "" if value is None else str(value) for key, value in values.items()}


def test_rows_say_which_file_divides_the_data(tmp_path: Path) -> None:
    for name in ("pa", "pb"):
        write_run(tmp_path / name, [0.5], data__partition="file", data__file=f"{name}/partition.npz")
    found = json.loads(as_json(read_groups(tmp_path / "pa", tmp_path / "pb")))
    assert [row["partition"] for row in found] == ["pa/partition", "pb/partition"]
    assert [row["settings"] for row in found] == [
        f"rounds=4;num_clients=8;data.file={name}/partition.npz" for name in ("pa", "pb")
    ]


def test_they_are_written_where_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "a", [0.5])
    assert main([str(run), "--csv", str(tmp_path / "a.csv"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["test_accuracy"] == 0.5
    assert (tmp_path / "a.csv").read_text().splitlines()[0] == ",".join(COLUMNS)
