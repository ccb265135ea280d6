"""The end of a cell's log, and the estimate of the rest."""

from pathlib import Path

import pytest

from dfl_dist.sweep.cells import last_lines
from dfl_dist.sweep.work import Pace


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n\nE0101 x] failed (exitcode: -9) of\nTraceback\n", ["a", "failed (exitcode: -9) of"]),
        ("E0101 x] failed (exitcode: 1)\nb\n", ["E0101 x] failed (exitcode: 1)", "b"]),
        ("".join(f"{n}\n" for n in range(9)), ["4", "5", "6", "7", "8"]),
        ("", []),
    ],
)
def test_the_last_lines_are_those_of_this_start(tmp_path: Path, text: str, shown: list[str]) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"--- before\nold\n--- command\n{text}")
    assert last_lines(log, len("--- before\nold\n")) == shown


def test_the_rest_is_estimated_from_what_was_finished() -> None:
    pace = Pace().add(10, 20.0).add(30, 60.0)
    assert pace.eta(1850) == ", ETA 01:01:40"
    assert pace.eta(0) == ""
    assert Pace().eta(10) == ""
