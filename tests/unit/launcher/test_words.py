"""What a launcher says of ranks that failed."""

import pytest

from dfl_dist.launcher.words import describe, what_follows


@pytest.mark.parametrize(
    ("failed", "text"),
    [
        ({3: -9}, "rank 3 was killed by SIGKILL"),
        ({1: 1, 5: -11, 6: 1}, "rank 5 was killed by SIGSEGV"),
        ({4: 7}, "rank 4 left with exit code 7"),
        ({4: 1, 2: 1, 7: 1}, "rank 2 and 2 more left with exit code 1"),
        ({0: -200}, "rank 0 was killed by signal 200"),
    ],
)
def test_the_rank_that_failed_is_named(failed: dict[int, int], text: str) -> None:
    assert describe(failed) == text


@pytest.mark.parametrize(
    ("allowed", "left", "asked_to_stop", "text"),
    [
        (3, 3, False, "all ranks start again (1 of 3)"),
        (3, 1, False, "all ranks start again (3 of 3)"),
        (3, 0, False, "no restart is left"),
        (0, 0, False, "the job ends"),
        (3, 3, True, "the job ends"),
    ],
)
def test_what_follows_a_failure_is_told(allowed: int, left: int, asked_to_stop: bool, text: str) -> None:
    assert what_follows(allowed, left, asked_to_stop=asked_to_stop) == text
