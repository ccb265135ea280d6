"""Whether hosts reach one another: trying, and the words for what is blocked; tests/cluster has real firewalls."""

import socket
import threading
import time
from typing import Any

import pytest
import torch.distributed as dist

from dfl_dist.distributed import reach
from dfl_dist.distributed.positions import explain
from dfl_dist.distributed.reach import Door, Hosts, check, check_store, describe, own_address, try_all
from dfl_dist.distributed.world import World
from dfl_dist.errors import ConfigError, PeerError

DOORS = [Door(rank, rank, "abc"[rank], f"10.0.0.{rank + 1}", 41234 + rank, "32768-60999") for rank in range(3)]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29400")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)


def refusing_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_all_are_tried_at_the_same_time() -> None:
    """One that answers, one that refuses, two that do not answer: their queue is full."""
    with socket.create_server(("127.0.0.1", 0)) as good, socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        silent = full.getsockname()
        doors = {1: good.getsockname(), 2: ("127.0.0.1", refusing_port()), 3: silent, 4: silent}
        started = time.monotonic()
        lines, failed = try_all(doors, within_s=0.5)
        assert 0.4 < time.monotonic() - started < 0.9
        for each in (*lines, *fillers):
            each.close()
    assert failed == {2: "Connection refused", 3: "no answer within 0.5 s", 4: "no answer within 0.5 s"}
    assert len(lines) == 1


def run_hosts(monkeypatch: pytest.MonkeyPatch, hosts: list[int]) -> list[Any]:
    """What the check gives or raises on each rank of some hosts, all of them in this process."""
    served = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    monkeypatch.setattr(reach, "own_address", lambda: "127.0.0.1")
    found: list[Any] = [None] * len(hosts)

    def run(rank: int) -> None:
        store = dist.TCPStore("127.0.0.1", served.port, is_master=False)
        try:
            found[rank] = check(World(rank=rank, size=len(hosts), host=hosts[rank], torchrun=True), store, hosts)
        except ConfigError as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(hosts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def test_hosts_that_reach_one_another_are_known_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    started = time.monotonic()
    found = run_hosts(monkeypatch, [0, 0, 1, 2])
    assert time.monotonic() - started < 1
    for rank, hosts in enumerate(found):
        assert isinstance(hosts, Hosts)
        assert [each.rank for each in hosts.firsts] == [0, 2, 3]
        assert len(hosts.lines) == (0 if rank == 1 else 4), "one to and one from each other host"
        for line in hosts.lines:
            line.close()


def test_all_ranks_refuse_where_one_host_does_not_reach_another(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = reach.try_all

    def partly(doors: dict[int, Any]) -> Any:
        if 3 not in doors or 0 not in doors:  # ranks 0 and 3 themselves
            return whole(doors)
        lines, _ = whole({rank: door for rank, door in doors.items() if rank != 3})
        return lines, {3: "no answer within 10 s"}

    monkeypatch.setattr(reach, "try_all", partly)
    found = run_hosts(monkeypatch, [0, 0, 1, 2])
    assert len({str(error) for error in found}) == 1
    assert all(isinstance(error, ConfigError) for error in found)
    assert "host 1 (" in str(found[0])
    assert str(found[0]).count("does not reach host 2 (") == 1


def test_one_host_has_nobody_to_reach() -> None:
    assert check(World(rank=0, size=2, torchrun=True), None, [0, 0]) == ([], [])


def test_the_direction_and_the_ports_are_named() -> None:
    words = describe({(DOORS[1], DOORS[0]): "no answer within 10 s"}, DOORS)
    assert words == (
        "host 1 (b, 10.0.0.2) does not reach host 0 (a, 10.0.0.1) at port 41234 (no answer within 10 s), "
        "the other direction works: open TCP ports 32768-60999 between the hosts, in both directions"
    )


def test_a_pair_that_is_blocked_both_ways_is_named_once_and_many_pairs_in_short() -> None:
    both = {(one, other): "Connection refused" for one in DOORS[:2] for other in DOORS[:2] if one != other}
    assert describe(both, DOORS).count("does not reach") == 1
    assert "nor the other way round" in describe(both, DOORS)
    many = [door._replace(host=number, rank=number) for door in DOORS[:1] for number in range(8)]
    words = describe({(one, other): "no" for one in many for other in many if one != other}, many)
    assert words.count("does not reach") == 3
    assert "25 more pairs of hosts" in words


def test_an_address_that_only_this_host_knows_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_address() == ""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert own_address() == ""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "no such one")
    assert own_address() == ""


def test_a_store_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    port = refusing_port()
    monkeypatch.setenv("MASTER_PORT", str(port))
    monkeypatch.setattr(reach, "CONNECT_S", 0.7)
    elsewhere = World(rank=2, size=4, local_rank=0, local_size=2, torchrun=True, host=1)
    with pytest.raises(PeerError, match=rf"^host 1 .* does not reach the head, 127.0.0.1, at port {port} \(.*refused"):
        check_store(elsewhere)
    with pytest.raises(PeerError) as second:
        check_store(World(rank=3, size=4, local_rank=1, local_size=2, torchrun=True, host=1))
    assert explain(second.value) == "", "it is told once per host"
    check_store(World(rank=0, size=4, local_rank=0, local_size=4, torchrun=True))  # one host: nothing is tried
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "False")
    check_store(elsewhere)  # rank 0 may open it in minutes only
