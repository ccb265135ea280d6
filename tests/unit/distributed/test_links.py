"""What the kernel says of this process's connections; tests/cluster has links that are really cut."""

import socket
from collections.abc import Iterator

import pytest

from dfl_dist.distributed import links
from dfl_dist.distributed.links import Connection, Watch, connections
from dfl_dist.distributed.standstill import Link


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection between two addresses of this machine."""
    with socket.create_server(("127.0.0.2", 0)) as server:
        client = socket.create_connection(server.getsockname(), source_address=("127.0.0.1", 0))
        accepted, _ = server.accept()
        with client, accepted:
            yield client, accepted


def test_connections_to_other_addresses_are_found(ends: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = ends
    (before,) = [each for each in connections() if each.address == "127.0.0.2"]
    assert not before.unanswered
    accepted.send(b"hello")
    assert client.recv(5) == b"hello"
    (after,) = [each for each in connections() if each.address == "127.0.0.2"]
    assert after.segments_in == before.segments_in + 1
    assert client.fileno() >= 0, "looking closes nothing"
    assert client.send(b"x") == 1


def test_connections_of_an_address_with_itself_do_not_count() -> None:
    with (
        socket.create_server(("127.0.0.3", 0)) as server,
        socket.create_connection(server.getsockname(), source_address=("127.0.0.3", 0)),
    ):
        assert not [each for each in connections() if each.address == "127.0.0.3"]


def test_a_watch_remembers_who_was_heard_though_it_did_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(lambda: True)
    watch.end()

    def look(*found: Connection) -> dict[str, Link]:
        monkeypatch.setattr(links, "connections", lambda: iter(found))
        watch.look(waits=True)
        return watch.found

    idle = Connection(2, "b", unanswered=False, segments_in=5)
    assert look(Connection(1, "b", unanswered=False, segments_in=5), idle) == {}
    assert look(Connection(1, "b", unanswered=True, segments_in=5), idle) == {"b": Link(unanswered=True, heard=False)}
    assert look(Connection(1, "b", unanswered=True, segments_in=6), idle) == {"b": Link(unanswered=True, heard=True)}
    assert look(idle) == {"b": Link(unanswered=True, heard=True)}, "gloo has closed the connection by now"
    assert look(Connection(1, "b", unanswered=False, segments_in=9)) == {}, "it carries again"
    look(Connection(1, "b", unanswered=True, segments_in=5))
    watch.look(waits=False)
    assert watch.found == {}, "nobody waits any more"


def test_a_line_is_spoken_over_and_listened_to(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = ends
    links.speak(one, aloud=True)
    links.speak(other, aloud=False)
    other.setblocking(False)
    with pytest.raises(BlockingIOError):
        other.recv(1)  # it was taken in
    links.speak(one, aloud=True)
    assert other.recv(10) == b"."
    one.close()
    links.speak(one, aloud=True)  # whatever has become of it
