"""`dfl-dist runs`: how runs stand."""

import os
from pathlib import Path

import pytest
from run_folders import ELSEWHERE, GONE, HERE, lead, write_run

from dfl_dist.commands.runs import NONE_YET, main
from dfl_dist.errors import ConfigError
from dfl_dist.report.states import format_age


def test_how_runs_stand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lead(write_run(tmp_path / "a", [None, 0.5, None, 0.75]), finished_after=4, leader=HERE)
    lead(write_run(tmp_path / "b", [None, 0.5], algorithm="sgp"), leader=HERE)
    lead(write_run(tmp_path / "c", [0.25], [{"train_loss": None}]), leader=HERE)
    lead(write_run(tmp_path / "d", []), leader=GONE)
    lead(write_run(tmp_path / "e", [0.5]), leader=ELSEWHERE)
    lead(write_run(tmp_path / "f", [0.5]))
    lead(write_run(tmp_path / "g", [0.5]), finished_after=1, ended_by="stop.target 0.5")
    for name in ("e", "f"):
        for file in (tmp_path / name).iterdir():
            os.utime(file, (0, 0) if name == "f" else None)
    (tmp_path / "latest").symlink_to("a")
    assert main([str(tmp_path)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    found = {Path(line[0]).name: line[1:7] for line in lines}
    assert Path(lines[0][0]).name == "f", "the newest last"
    assert found == {
        "a": ["finished", "dfedsgpsm", "digits", "8", "4/4", "75.00%"],
        "b": ["running", "sgp", "digits", "8", "2/4", "50.00%"],
        "c": ["diverged", "dfedsgpsm", "digits", "8", "1/4", "25.00%"],
        "d": ["unfinished", "dfedsgpsm", "digits", "8", "0/4", "-"],
        "e": ["running", "dfedsgpsm", "digits", "8", "1/4", "50.00%"],
        "f": ["unfinished", "dfedsgpsm", "digits", "8", "1/4", "50.00%"],
        "g": ["finished", "dfedsgpsm", "digits", "8", "1/4", "50.00%"],
    }


def test_the_runs_of_a_sweep_are_among_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("grid/one", "grid/two", "alone"):
        lead(write_run(tmp_path / folder, [0.5]), finished_after=1)
    (tmp_path / "alone" / "logs" / "resolved.yaml").mkdir(parents=True)
    assert main([str(tmp_path)]) == main([str(tmp_path / "grid")]) == 0
    shown = [line.split()[0].removeprefix(f"{tmp_path}/") for line in capsys.readouterr().out.splitlines()]
    assert sorted(shown) == sorted(["run", "grid/one", "grid/two", "alone", "run", "grid/one", "grid/two"])


def test_before_any_run_there_is_a_way_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a folder is named that has none, that is a mistake."""
    monkeypatch.chdir(tmp_path)
    for begun in (tmp_path, tmp_path / "runs", tmp_path / "runs" / "sgp-digits-001"):
        begun.mkdir(exist_ok=True)
        assert main([]) == 0
        assert capsys.readouterr().out == f"{NONE_YET}\n"
    write_run(tmp_path / "other" / "a", [0.5])
    with pytest.raises(ConfigError, match="run: given runs, allowed: the folder of a run, such as runs/latest"):
        main(["other", "runs"])


def test_a_run_may_be_named_by_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "a", [0.5])
    (tmp_path / "runs" / "latest").symlink_to("a")
    for words, shown in ([], ["runs/a"]), (["runs/latest"], ["runs/latest"]):
        assert main(words) == 0
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == shown


def test_a_run_of_a_later_format_is_named_and_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lead(write_run(tmp_path / "a", [0.5]), format=99, versions={"dfl_dist": "9.0"})
    lead(write_run(tmp_path / "b", [0.5]), format=0)
    assert main([str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert [Path(line.split()[0]).name for line in out.splitlines()[1:]] == ["b"], "an older one can be read"
    words = "of format 99 (written by dfl_dist 9.0), allowed: up to format 1, which this version writes"
    assert err == f"dfl-dist: run: given {tmp_path / 'a'}, {words}\n"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (61, "1 min"), (7300, "2 h"), (200_000, "2 d"), (-3, "0 s")]
)
def test_ages(seconds: float, text: str) -> None:
    assert format_age(seconds) == text
