"""A launcher's end of what ranks tell, for tests of ranks without a launcher."""

import contextlib
import json
import os
import socket
from collections.abc import Iterator

SOCKET = "news.socket"
MOST_BYTES = 1 << 20


@contextlib.contextmanager
def listening(ranks: int) -> Iterator[socket.socket]:
    """A place, in the folder one is in, where so many ranks that run `train` there can tell something."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as place:
        place.bind(SOCKET)
        place.listen(ranks)
        yield place


def heard(place: socket.socket, ranks: int) -> list[dict[str, str]]:
    """All that these ranks have told, once they have ended."""
    found = []
    for _ in range(ranks):
        way, _ = place.accept()
        with way:
            while message := way.recv(MOST_BYTES):
                found.append(json.loads(message))
    return found


def train(arguments: list[str]) -> int:
    """The trainer on a rank that has a launcher."""
    from dfl_dist.training.main import main

    way = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    way.connect(SOCKET)
    os.environ["DFL_NEWS"] = str(way.fileno())
    return main(arguments)
