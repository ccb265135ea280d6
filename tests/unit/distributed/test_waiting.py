"""Waiting for another rank: the error says for whom, and whether it is silent or gone."""

from datetime import timedelta

import pytest

from dfl_dist.distributed.waiting import blaming, wait
from dfl_dist.errors import PeerError

SILENT = "[/pytorch/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1000ms for recv operation"
CLOSED = "[/pytorch/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:3. This may mean"


class Never:
    """An operation that ends with the backend's complaint."""

    def __init__(self, complaint: str) -> None:
        self.complaint = complaint

    def wait(self, timeout: timedelta = timedelta()) -> bool:
        assert timeout == timedelta(seconds=2)
        raise RuntimeError(self.complaint)


@pytest.mark.parametrize(
    ("complaint", "reason"),
    [
        (SILENT, "nothing came within 2 s (timeout_s)"),
        ("wait timeout after 2000ms, keys: /x", "nothing came within 2 s (timeout_s)"),
        (CLOSED, "the connection is gone (Connection closed by peer [127.0.0.1]:3)"),
    ],
)
def test_a_wait_that_fails_says_for_whom_and_why(complaint: str, reason: str) -> None:
    with pytest.raises(PeerError) as error:
        wait(Never(complaint), what="the plan of round 3 from rank 0", timeout_s=2.0)
    assert str(error.value) == f"waited for the plan of round 3 from rank 0: {reason}"


def test_who_was_blamed_first_is_to_blame() -> None:
    with pytest.raises(PeerError, match=r"^waited for rank 1$"), blaming("rank 2", 1.0):
        raise PeerError("waited for rank 1")


def test_other_errors_are_nobodys_fault() -> None:
    with pytest.raises(KeyError), blaming("rank 2", 1.0):
        raise KeyError("x")
