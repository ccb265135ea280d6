"""The files of a run folder: lines of JSON, whole or not at all."""

import json
import math
import os
from pathlib import Path

import pytest

from dfl_dist.run_folder.files import (
    LineFile,
    aside,
    check_can_be_made,
    json_safe,
    read_json,
    read_lines,
    write_atomic,
    write_lines,
)


def test_what_is_not_finite_is_null() -> None:
    line = {"a": math.nan, "b": -math.inf, "c": 1.5, "d": None, "e": [1], "f": 3}
    assert json_safe(line) == {"a": None, "b": None, "c": 1.5, "d": None, "e": [1], "f": 3}


def test_lines_are_json_and_a_torn_one_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = LineFile(path)
    file.write({"round": 0, "train_loss": 0.1})
    file.write({"round": 1, "train_loss": math.nan})
    assert read_lines(path) == [{"round": 0, "train_loss": 0.1}, {"round": 1, "train_loss": None}]
    file.close()
    with path.open("a") as torn:
        torn.write('{"round": 2, "tra')
    assert [line["round"] for line in read_lines(path)] == [0, 1]
    path.write_bytes(b'{"round": 0}\n[3]\n{"round": 2}\n')
    assert [line["round"] for line in read_lines(path)] == [0], "what does not belong there ends it"
    path.write_bytes(b'{"round": 0}\n\xff\xfe\n')
    assert [line["round"] for line in read_lines(path)] == [0]
    assert read_lines(tmp_path / "none.jsonl") == []


def test_lines_are_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("something else")
    write_lines(path, [{"round": 0}, {"round": 1, "a": 0.1}])
    assert path.read_text() == '{"round": 0}\n{"round": 1, "a": 0.1}\n'
    assert [each.name for each in tmp_path.iterdir()] == ["metrics.jsonl"], "nothing is left beside it"


def test_what_cannot_be_written_leaves_the_file_as_it_was_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    write_atomic(path, b"before")
    aside(path, os.getpid()).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        write_atomic(path, b"after")
    assert [each.name for each in tmp_path.iterdir()] == ["model.pt"]
    assert path.read_bytes() == b"before"


def test_a_mapping_that_is_missing_or_damaged_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "environment.json"
    assert read_json(path) == {}
    for content in (b"", b"[1]", b"{", b"\xff"):
        write_atomic(path, content)
        assert read_json(path) == {}
    write_atomic(path, json.dumps({"run": "a"}).encode())
    assert read_json(path) == {"run": "a"}


@pytest.mark.parametrize("name", ["there", "new", "new/deep/down", "there/new", "file", "file/x", "file/x/y", "link"])
def test_a_folder_that_cannot_be_made_is_told_as_making_it_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").mkdir()
    Path("file").touch()
    Path("link").symlink_to("nowhere")
    told, made = "", ""
    try:
        check_can_be_made(Path(name))
    except OSError as error:
        told = str(error)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "link", "there"]
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        made = str(error)
    assert told == made
    assert bool(told) == name.startswith(("file", "link"))


def test_a_folder_without_the_right_to_write_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root nothing is forbidden, so the system's answer is made up."""
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(PermissionError, match=f"Permission denied: '{tmp_path}/a'"):
        check_can_be_made(tmp_path / "a" / "b")
