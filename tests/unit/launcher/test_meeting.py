"""What hosts that have met refuse."""

import socket
import threading
from datetime import timedelta

import pytest
from torch.distributed import DistStoreError, HashStore  # type: ignore[attr-defined]

from dfl_dist.launcher import meeting
from dfl_dist.launcher.meeting import MeetingError, Table, check_complete, unreached, wrong_numbers


def test_a_meeting_without_all_hosts_is_refused() -> None:
    check_complete(2, 2)
    with pytest.raises(
        MeetingError, match="only 1 of 2 hosts are taken to be there; the clocks of the hosts may differ"
    ):
        check_complete(1, 2)


def test_numbers_of_hosts_that_do_not_fit() -> None:
    assert not wrong_numbers([0, 1, 2])
    assert wrong_numbers([0, 1, 1]) == "host: given 0, 1, 1 on 3 hosts, allowed: each of 0 to 2 on one host"


def test_a_host_that_does_not_reach_the_head_is_known_to_all() -> None:
    """Host 1 is given a port at which nobody listens."""
    store, told = HashStore(), ["", ""]
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as closed:
        ports = [server.getsockname()[1], closed.getsockname()[1]]
        closed.close()

        def meet(host: int) -> None:
            told[host] = unreached(Table(store, host, 2), host, f"10.0.0.{host}", ("127.0.0.1", ports[host]))

        hosts = [threading.Thread(target=meet, args=(host,)) for host in range(2)]
        for host in hosts:
            host.start()
        for host in hosts:
            host.join(30)
    assert told[0] == told[1]
    assert f", 10.0.0.1) does not reach the head, 127.0.0.1, at port {ports[1]} (Connection refused): " in told[0]
    assert "open TCP ports " in told[0]


def test_a_host_that_says_nothing_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "TOLD_WITHIN", timedelta(seconds=0.05))
    with pytest.raises(DistStoreError):
        Table(HashStore(), 0, 2).exchange("host", "0")
