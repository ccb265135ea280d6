"""What the trainer tells its launcher, and the folder that --status names."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dfl_dist.errors import ConfigError
from dfl_dist.run_folder.status import (
    MOST_CHARS,
    NEWS,
    Status,
    check,
    clear,
    read_ending,
    read_run_folder,
    write_ending,
    write_run,
)


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    own, rank = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    own.setblocking(False)
    monkeypatch.setenv(NEWS, str(rank.fileno()))
    with own, rank:
        yield own


def heard(launcher: socket.socket) -> list[dict[str, Any]]:
    found = []
    while True:
        try:
            found.append(json.loads(launcher.recv(1 << 20)))
        except BlockingIOError:
            return found


def test_each_rank_tells_its_launcher_and_the_first_one_the_folder(launcher: socket.socket) -> None:
    for local_rank in (0, 1):
        told = Status.from_environment(local_rank)
        assert told.is_there
        told.tell_run(Path("/runs/x"), 5.0, 2.5)
        told.tell_last_words(3, "Traceback …")
        told.tell_ending("failed")
        run = {"folder": "/runs/x", "timeout_s": 5.0, "trackers_s": 2.5}
        words = {"words": "Traceback …", "rank": 3}
        assert heard(launcher) == [*([run] if local_rank == 0 else []), words, {"ending": "failed"}]


def test_a_long_traceback_is_cut_in_the_middle(launcher: socket.socket) -> None:
    Status.from_environment(0).tell_last_words(0, "a" + "\0" * 3 * MOST_CHARS + "z")  # 6 bytes each in JSON
    (message,) = heard(launcher)
    assert message["words"].startswith("a\0")
    assert message["words"].endswith("\0z")
    assert f"… {2 * MOST_CHARS + 2} characters are left out here …" in message["words"]


def test_a_launcher_that_is_gone_is_no_error(launcher: socket.socket) -> None:
    told = Status.from_environment(0)
    launcher.close()
    told.tell_ending("finished")


def test_a_launcher_that_does_not_listen_holds_nobody_up(
    launcher: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dfl_dist.run_folder.status.SENT_WITHIN_S", 0)
    monkeypatch.setattr("dfl_dist.run_folder.status.SENT_WITHIN_US", 1000)
    told = Status.from_environment(0)
    for _ in range(100):
        told.tell_last_words(0, "a" * MOST_CHARS)
    assert 0 < len(heard(launcher)) < 100


@pytest.mark.parametrize("value", [None, "", "three", "a pipe", "closed"])
def test_without_a_launcher_nobody_is_told(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    """Also where a process inherited the variable and not the socket."""
    reading, writing = os.pipe()
    closed = os.dup(reading)
    os.close(closed)
    monkeypatch.delenv(NEWS, raising=False)
    if value is not None:
        monkeypatch.setenv(NEWS, {"a pipe": str(writing), "closed": str(closed)}.get(value, value))
    told = Status.from_environment(0)
    assert not told.is_there
    told.tell_run(Path("nowhere"), 5.0, 2.5)
    told.tell_ending("failed")
    os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_a_script_finds_the_run_and_its_ending_in_a_folder(tmp_path: Path) -> None:
    status, run = tmp_path / "status", tmp_path / "run"
    status.mkdir()
    check(status)
    run.mkdir()
    assert (read_run_folder(status), read_ending(status)) == (None, None)
    for word in ("failed", "finished"):
        write_run(status, run)
        write_ending(status, word)
        assert (read_run_folder(status), read_ending(status)) == (run, word)
    assert sorted(path.name for path in status.iterdir()) == ["ending", "run"], "nothing else is left there"
    clear(status)
    clear(status)
    assert list(status.iterdir()) == []
    assert run.is_dir()


@pytest.mark.parametrize("content", ["of a book", None])
@pytest.mark.parametrize("name", ["run", "ending"])
def test_a_run_or_an_ending_of_the_users_is_refused_and_stays(tmp_path: Path, name: str, content: str | None) -> None:
    """Also a folder of that name; and then what a launch has left beside it stays too."""
    (tmp_path / name).mkdir() if content is None else (tmp_path / name).write_text(content)
    if name == "ending":
        write_run(tmp_path, tmp_path)
    before = sorted(tmp_path.iterdir())
    for refuse in (check, clear):
        with pytest.raises(ConfigError) as error:
            refuse(tmp_path)
        allowed = "a folder without it, or that of an earlier launch"
        assert str(error.value) == f"status: given {tmp_path}, which holds {name}, allowed: {allowed}"
    assert sorted(tmp_path.iterdir()) == before
