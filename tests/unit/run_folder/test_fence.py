"""Only the newest start of a run writes into its folder."""

import time
from pathlib import Path

import pytest

from dfl_dist.errors import StaleStartError
from dfl_dist.run_folder.fence import Fence
from dfl_dist.run_folder.folder import mark_finished, write_environment
from dfl_dist.run_folder.recorder import Recorder


def test_a_start_may_write_until_another_one_takes_over(tmp_path: Path) -> None:
    write_environment(tmp_path, {"start": "first"})
    first, second = Fence(tmp_path, "first"), Fence(tmp_path, "second")
    first.check()
    mark_finished(tmp_path, 3)
    first.check()  # the file has changed, the start has not
    with pytest.raises(StaleStartError):
        second.check()
    write_environment(tmp_path, {"start": "second"})
    second.check()
    with pytest.raises(StaleStartError) as error:
        first.check()
    assert str(error.value) == f"another start of this run has taken over {tmp_path}; this one writes nothing more"


@pytest.mark.parametrize("content", [None, "{", "[]", "{}"])
def test_a_folder_that_names_no_start_is_not_written_to(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "environment.json").write_text(content)
    with pytest.raises(StaleStartError):
        Fence(tmp_path, "first").check()


def test_it_costs_little(tmp_path: Path) -> None:
    write_environment(tmp_path, {"start": "first", "hosts": ["a host"] * 100})
    fence, best = Fence(tmp_path, "first"), 1.0
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(10):
            fence.check()
        best = min(best, (time.perf_counter() - began) / 10)
    assert best < 1e-4


def test_a_recorder_asks_before_it_writes(tmp_path: Path) -> None:
    write_environment(tmp_path, {"start": "first"})
    told: list[object] = []
    recorder = Recorder(tmp_path, [told.append], Fence(tmp_path, "first").check)
    recorder.write({"round": 0}, {})
    write_environment(tmp_path, {"start": "second"})
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(StaleStartError):
        recorder.write({"round": 1}, {})
    with pytest.raises(StaleStartError):
        recorder.amend({"test_loss": 0.5})
    recorder.close()
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert told == [{"round": 0}]
