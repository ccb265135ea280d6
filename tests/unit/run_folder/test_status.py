"""What the trainer tells its launcher: where the run is kept, and how it ended."""

from pathlib import Path

import pytest

from dfl_dist.run_folder.status import STATUS, StatusFolder, clear, read_ending, read_run_folder


def test_the_first_rank_of_a_host_tells_its_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, run = tmp_path / "status", tmp_path / "run"
    status.mkdir()
    run.mkdir()
    monkeypatch.setenv(STATUS, str(status))
    assert (read_run_folder(status), read_ending(status)) == (None, None)
    for local_rank in (1, 0):
        told = StatusFolder.from_environment(local_rank)
        assert told.is_there
        told.tell_folder(run)
        told.tell_ending("finished")
        expected = (run, "finished") if local_rank == 0 else (None, None)
        assert (read_run_folder(status), read_ending(status)) == expected
    assert sorted(path.name for path in status.iterdir()) == ["ending", "run"], "nothing else is left there"
    clear(status)
    clear(status)
    assert list(status.iterdir()) == []
    assert run.is_dir()


def test_without_a_launcher_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STATUS, raising=False)
    told = StatusFolder.from_environment(0)
    assert not told.is_there
    told.tell_folder(Path("nowhere"))
    told.tell_ending("failed")
