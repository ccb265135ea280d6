"""What is asked of Linux itself."""

import socket
from pathlib import Path

import pytest

from dfl_dist import system


@pytest.mark.parametrize(
    ("text", "lookup"),
    [
        (
            "passwd: files\nhosts:          files mdns4 [NOTFOUND=return] dns  # as ever\n",
            "files mdns4 [NOTFOUND=return] dns",
        ),
        ("# hosts: nis\n", system.USUAL_LOOKUP),
        (None, system.USUAL_LOOKUP),
    ],
)
def test_where_names_are_looked_up(tmp_path: Path, text: str | None, lookup: str) -> None:
    file = tmp_path / "nsswitch.conf"
    if text is not None:
        file.write_text(text)
    assert system.usual_lookup(file) == lookup


def test_names_of_this_host_are_known_within_and_after() -> None:
    with system.names_from_files():
        assert socket.gethostbyname("localhost") == "127.0.0.1"
    assert socket.gethostbyname("localhost") == "127.0.0.1"
