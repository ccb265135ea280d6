"""The estimate of the rest of a sweep."""

import pytest

from dfl_dist.sweep.pace import Pace, longest_row


def test_the_rest_is_estimated_from_what_was_finished() -> None:
    pace = Pace().add(10, 20.0).add(30, 60.0)
    assert pace.eta(1850) == ", ETA 01:01:40"
    assert pace.eta(0) == ""
    assert Pace().eta(10) == ""


@pytest.mark.parametrize(
    ("running", "waiting", "jobs", "longest"),
    [
        ([10], [20, 30], 1, 60),  # one after the other
        ([], [], 1, 0),
        ([10, 20], [], 2, 20),
        ([10, 20], [30, 5], 2, 40),  # 30 after 10, 5 after 20
        ([7], [], 3, 7),
        ([], [4, 4, 4, 4], 3, 8),
    ],
)
def test_a_waiting_cell_begins_when_the_first_has_ended(
    running: list[int], waiting: list[int], jobs: int, longest: int
) -> None:
    assert longest_row(running, waiting, jobs) == longest
