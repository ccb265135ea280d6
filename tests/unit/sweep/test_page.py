"""The page that a sweep keeps in its folder: after every cell, and whatever happens to it."""

import signal
import time
from pathlib import Path

import pytest
from run_folders import write_run

from dfl_dist.signals import Interrupt
from dfl_dist.sweep.page import NAME, GridPage

WITHIN_S = 60.0


def wait_until_written(page: GridPage) -> None:
    end = time.monotonic() + WITHIN_S
    while page.writer is not None:
        assert time.monotonic() < end
        time.sleep(0.02)
        page.tend()


@pytest.fixture
def grid(tmp_path: Path) -> GridPage:
    """Two cells, of which one has not begun, and one is no run."""
    write_run(tmp_path / "osgp", [0.5, 0.625], algorithm="osgp", rounds=2)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "resolved.yaml").write_text("[")
    return GridPage(tmp_path, ["sgp", "osgp", "damaged"])


def test_it_is_written_while_the_sweep_goes_on_and_at_its_end(grid: GridPage) -> None:
    page = grid.out / NAME
    grid.refresh()
    grid.refresh()  # another cell has ended while it is written
    wait_until_written(grid)
    assert not grid.is_due
    assert "OSGP reached 62.50&nbsp;%" in page.read_text(encoding="utf-8")
    write_run(grid.out / "sgp", [0.5, 0.75], algorithm="sgp", rounds=2)
    assert grid.finish(Interrupt()) == f"report: {page}"
    text = page.read_text(encoding="utf-8")
    assert "SGP reached the highest mean accuracy, 75.00&nbsp;%" in text
    assert text.index('"label":"SGP"') < text.index('"label":"OSGP"'), "in the order of the grid"


def test_what_keeps_it_from_being_written_is_said(grid: GridPage) -> None:
    (grid.out / NAME).mkdir()
    assert grid.finish(Interrupt()).startswith(f"no new {NAME}: IsADirectoryError: ")
    assert not list(grid.out.glob(f".{NAME}.*")), "nothing is left half written"
    assert GridPage(grid.out, ["damaged"]).finish(Interrupt()) == f"no new {NAME}: no cell has recorded a round yet"


def test_a_second_ctrl_c_does_not_wait_for_it(grid: GridPage) -> None:
    interrupt = Interrupt()
    for _ in range(2):
        interrupt.remember(signal.SIGINT, None)
    assert interrupt.at_once
    assert grid.finish(interrupt) == f"no new {NAME}: it was not written to its end"
    assert grid.writer is None
    assert not (grid.out / NAME).exists()
