"""The server of a live page: to whom it answers, with what, and when it has nothing more to say."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from run_folders import GONE, HERE, grow, lead, read_groups, write_run

import dfl_dist.report.follow as following
from dfl_dist.errors import ConfigError
from dfl_dist.report.follow import Followed
from dfl_dist.report.live import Board, follow, serving
from dfl_dist.report.page import render

HOLD_S = 0.2
WITHIN_S = 20.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.content)


def ask(url: str, path: str = "/data.json", method: str = "GET", **headers: str) -> Answer:
    """Ask as a browser does; `Host=""` leaves the name of the host out."""
    connection = HTTPConnection(url.split("/")[2], timeout=WITHIN_S)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        if value:
            connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    response = connection.getresponse()
    answer = Answer(response.status, dict(response.getheaders()), response.read())
    connection.close()
    return answer


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = write_run(tmp_path / "run", [0.5])
    lead(folder, leader=HERE)
    return folder


@pytest.fixture
def board(run: Path) -> Board:
    board = Board(hold_s=HOLD_S)
    put(board, run)
    return board


def put(board: Board, folder: Path) -> None:
    followed = Followed(folder)
    followed.look()
    board.put(followed.runs, followed.stand().text, followed.stand().running)


@pytest.fixture
def url(board: Board) -> Iterator[str]:
    with serving(board) as url:
        yield url


def points(answer: Answer) -> int:
    return len(answer.data["groups"][0]["curves"]["test_accuracy"]["mean"])


# What is served, and to whom.


def test_the_page_is_the_report_with_one_part_more(url: str, run: Path) -> None:
    static, answer = render(read_groups(run)), ask(url, "/")
    page = answer.content.decode()
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert int(answer.headers["Content-Length"]) == len(answer.content)
    live = "fetch("
    assert (live in page, live in static) == (True, False)
    assert ("connect-src 'self'" in page, "connect-src" in static) == (True, False)
    scripts = [text.rpartition("<script>\n")[2] for text in (static, page)]
    assert scripts[1].startswith(scripts[0].partition("\n</script>")[0]), "all of the report's own scripts"
    assert "live, round 1 of 4" in page


def test_the_data_say_how_the_run_stands(url: str, run: Path) -> None:
    answer = ask(url)
    assert answer.data["live"] == {
        "version": answer.headers["ETag"],
        "text": "live, round 1 of 4",
        "running": [str(run)],
        "over": False,
    }
    assert answer.data["runs"][0]["state"] == {"tone": "good", "text": "running"}
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("localhost", 200), ("127.0.0.1:9", 200), ("LOCALHOST:80", 200), ("", 403), ("evil.example", 403)),
        *(("127.0.0.1.evil.example", 403), ("localhost:80:evil.example", 403), ("localhost@evil.example", 403)),
    ],
)
def test_only_names_of_this_host_are_answered(url: str, host: str, status: int) -> None:
    for path in ("/", "/data.json"):
        answer = ask(url, path, Host=host)
        assert answer.status == status
        assert (b"test_accuracy" in answer.content) == (status == 200)


@pytest.mark.parametrize("path", ["/metrics.jsonl", "/run/config.yaml", "/../../etc/passwd", "/data.json/"])
def test_no_file_is_served(url: str, path: str) -> None:
    assert ask(url, path).status == 404


def test_only_reading_is_possible(url: str) -> None:
    assert [ask(url, "/", method).status for method in ("POST", "PUT", "DELETE", "OPTIONS")] == [501] * 4
    head, whole = ask(url, "/", "HEAD"), ask(url, "/")
    assert (head.status, head.content) == (200, b"")
    assert head.headers["Content-Length"] == whole.headers["Content-Length"]


def test_nobody_else_reaches_it(url: str) -> None:
    port = int(url.rpartition(":")[2].rstrip("/"))
    assert url == f"http://127.0.0.1:{port}/"
    with pytest.raises(ConnectionRefusedError):  # any other address of this host
        socket.create_connection(("127.0.0.2", port), timeout=WITHIN_S)


def test_a_port_in_use_is_refused(url: str) -> None:
    port = int(url.rpartition(":")[2].rstrip("/"))
    text = f"port: given {port}, allowed: one that is free \\(Address already in use\\)"
    with pytest.raises(ConfigError, match=text), serving(Board(), port):
        pass


# What is newer.


def test_nothing_is_sent_while_nothing_has_changed(url: str) -> None:
    version = ask(url).headers["ETag"]
    again = ask(url, If_None_Match=version)
    assert (again.status, again.content) == (304, b"")
    assert ask(url, If_None_Match='"of an earlier server"').status == 200


def test_the_curves_grow_as_rounds_are_recorded(url: str, board: Board, run: Path) -> None:
    first = ask(url)
    grow(run, 1)
    put(board, run)
    second = ask(url, If_None_Match=first.headers["ETag"])
    assert (points(first), points(second)) == (1, 2)
    assert second.data["live"]["text"] == "live, round 2 of 4"


def test_who_waits_is_answered_at_once(url: str, board: Board, run: Path) -> None:
    board.hold_s = WITHIN_S
    version, answers = ask(url).headers["ETag"], []
    wait_until(lambda: board.serving == 0)
    asking = threading.Thread(target=lambda: answers.append(ask(url, If_None_Match=version)))
    asking.start()
    wait_until(lambda: board.serving == 1)
    assert not answers
    grow(run, 1)
    put(board, run)
    asking.join(WITHIN_S / 2)  # sooner than without news
    assert [points(answer) for answer in answers] == [2]


def test_a_run_that_has_not_changed_is_not_gathered_again(board: Board, run: Path) -> None:
    followed = Followed(run.parent)

    def parts() -> list[int]:
        followed.look()
        board.put(followed.runs, "", [])
        return [id(one["settings"]) for one in board.data()["runs"]]

    parts()
    write_run(run.parent / "second", [0.5])
    two = parts()
    grow(run, 1)
    new, kept = parts()
    assert kept == two[1]
    assert new != two[0]


# To the end.


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "RESTART_S", 0.3)
    monkeypatch.setattr(following, "BEGIN_S", 0.3)


def test_a_run_is_followed_to_its_end(run: Path) -> None:
    followed, board, texts = Followed(run), Board(), []
    thread = threading.Thread(target=lambda: texts.append(follow(followed, board, lambda: False)))
    thread.start()
    with serving(board, 0) as url:
        first = ask(url)
        assert (points(first), first.data["live"]["over"]) == (1, False)
        grow(run, 1)
        second = ask(url, If_None_Match=first.headers["ETag"])
        assert (points(second), second.data["live"]["over"]) == (2, False)
        lead(run, leader=HERE, finished_after=2)
        last = ask(url, If_None_Match=second.headers["ETag"])
        assert (last.data["live"]["over"], last.data["live"]["text"]) == (True, "stopped early, 2 of 4 rounds")
        thread.join(WITHIN_S)
        assert ask(url, If_None_Match=last.headers["ETag"]).status == 304, "there is nothing more to wait for"
    assert texts == ["stopped early, 2 of 4 rounds"]


@pytest.mark.usefixtures("quick")
def test_what_is_broken_off_or_does_not_begin_is_given_up(run: Path, tmp_path: Path) -> None:
    lead(run, leader=GONE)
    assert follow(Followed(run), Board(), lambda: False) == "not finished, 1 of 4 rounds"
    assert follow(Followed(tmp_path), Board(), lambda: False) == "1 run, 1 unfinished"
    (empty := tmp_path / "empty").mkdir()
    assert follow(Followed(empty), Board(), lambda: False) == "no run has begun"


@pytest.mark.usefixtures("quick")
def test_a_sweep_that_is_at_work_may_begin_another_run(run: Path, tmp_path: Path) -> None:
    lead(run, finished_after=1)
    held = iter([True] * 3)
    seen = 0

    def is_held() -> bool:
        nonlocal seen
        seen += 1
        if seen == 3:
            lead(write_run(tmp_path / "second", [0.5]), finished_after=1)
        return next(held, False)

    assert follow(Followed(tmp_path), Board(), is_held) == "2 runs, 2 stopped early"
    assert seen > 3
