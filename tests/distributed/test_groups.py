"""Process groups: connecting ends and names who is missing; plans and data of all ranks."""

from pathlib import Path

import pytest
from launching import ranks, run


@pytest.mark.parametrize("step", ["connect to the control group", "connect to the data group", "connect their GPUs"])
def test_a_rank_that_does_not_connect_is_named(tmp_path: Path, step: str) -> None:
    done = run(ranks(3, "connecting:absent_rank_is_named", step), tmp_path)
    assert done.code == 0, done.err
    assert (tmp_path / "over").exists()


@pytest.mark.parametrize("program", ["waits_survive_the_startup_timeout", "large_plans_need_little_room"])
def test_control(tmp_path: Path, program: str) -> None:
    done = run(ranks(2, f"connecting:{program}"), tmp_path)
    assert done.code == 0, done.err


def test_data_that_differs_in_one_pixel_is_refused(tmp_path: Path) -> None:
    arguments = ["--data.name", "connecting:one_pixel_differs", "--model.name", "digits_mlp", "--rounds", "1"]
    done = run(ranks(2, "dfl_dist.training.main:main", *arguments), tmp_path)
    assert done.code == 2
    line = "data.name: given connecting:one_pixel_differs, whose arrays on rank 1 are not those on rank 0"
    assert done.err.count(line) == 1
