"""How many cells run at a time."""

from pathlib import Path
from typing import Any

import pytest

from dfl_dist.config.resolve import resolve
from dfl_dist.config.values import ask
from dfl_dist.errors import ConfigError
from dfl_dist.sweep import at_a_time
from dfl_dist.sweep.at_a_time import count_jobs, has_gpu, jobs_that_fit
from dfl_dist.sweep.grid import Cell


def cell(name: str = "a", *, ranks: int = 2, **given: Any) -> Cell:
    given = {key.replace("__", "."): value for key, value in given.items()}
    return Cell(name, given, resolve(ask(given), ranks))


@pytest.mark.parametrize(
    ("given", "ranks", "cores", "jobs"),
    [
        ({"num_clients": 8}, 2, 8, 4),
        ({"num_clients": 8}, 3, 8, 2),
        ({"num_clients": 8}, 8, 2, 1),  # more ranks than cores
        ({"num_clients": 8}, 1, 1, 1),
        ({"num_clients": 8, "threads": 2}, 2, 8, 2),
        ({"num_clients": 8, "threads": "auto"}, 2, 8, 1),  # a run has all cores then
        ({"num_clients": 4, "rank0": "coordinator"}, 5, 8, 2),  # rank 0 does not compute
    ],
)
def test_as_many_as_there_are_cores_for(given: dict[str, Any], ranks: int, cores: int, jobs: int) -> None:
    assert jobs_that_fit([cell(ranks=ranks, **given).resolved], ranks, cores, gpu=False) == jobs


def test_the_cell_that_needs_most_decides() -> None:
    small, large = cell(num_clients=8).resolved, cell(num_clients=8, threads=3).resolved
    assert jobs_that_fit([small, large], 2, 12, gpu=False) == 2
    assert jobs_that_fit([large, small], 2, 12, gpu=False) == 2


def test_one_at_a_time_on_a_host_with_gpus_unless_they_are_not_used() -> None:
    auto, cpu = (cell(num_clients=8, device=device).resolved for device in ("auto", "cpu"))
    assert jobs_that_fit([cpu, auto], 2, 8, gpu=True) == 1
    assert jobs_that_fit([cpu, cpu], 2, 8, gpu=True) == 4


def test_gpus_are_found_without_their_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "nvidiactl").touch()  # there with the driver, also without a GPU
    assert not has_gpu(tmp_path)
    (tmp_path / "nvidia0").touch()
    assert has_gpu(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not has_gpu(tmp_path)


def test_auto_fits_this_host_and_never_more_than_the_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_a_time, "usable_cores", lambda: 8)
    monkeypatch.setattr(at_a_time, "has_gpu", lambda: False)
    cells = [cell(str(seed), num_clients=8, seed=seed) for seed in range(6)]
    assert count_jobs("auto", cells, 2) == 4
    assert count_jobs("auto", cells[:3], 2) == 3
    assert count_jobs("5", cells, 2) == 5
    assert count_jobs("50", cells, 2) == 6
    assert count_jobs("auto", [], 2) == 1


@pytest.mark.parametrize("given", ["0", "-1", "2.5", "many", "Auto", "٣"])
def test_anything_else_is_refused(given: str) -> None:
    with pytest.raises(ConfigError) as error:
        count_jobs(given, [cell(num_clients=8)], 2)
    assert str(error.value) == f"jobs: given {given}, allowed: a whole number, 1 or more, or auto"
