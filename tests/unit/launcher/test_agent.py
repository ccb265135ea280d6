"""What the agent says of ranks that failed."""

import pytest

from dfl_dist.launcher.agent import describe


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
