"""The page of runs that may be at work, served to a browser of this host, which is told when there is something new.

A browser asks for the data with the version that it has. The answer is held back until there is a newer one: so what is
recorded is seen at once, a page in the background is not left behind, and nothing is sent while nothing happens.
"""

import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any
from urllib.parse import urlsplit

from dfl_dist.errors import refusal
from dfl_dist.report.follow import Followed
from dfl_dist.report.groups import group_runs
from dfl_dist.report.page import fill_template, gather, gather_run, to_json
from dfl_dist.report.page_summary import RUNNING_NOW, count_states
from dfl_dist.report.read import Run

HOST = "127.0.0.1"
PAGE, DATA = "/", "/data.json"
OWN_NAMES = re.compile(r"(localhost|127\.0\.0\.1)(:\d+)?", re.IGNORECASE)
EVERY_S = 0.5  # the files are looked at
HOLD_S = 10.0  # an answer, while there is nothing new; the page takes a longer silence for a lost connection
REQUEST_S = 5.0  # for a request to be there, once a browser has connected
LAST_S = 2.0  # for pages that just draw to ask again, once there is no more to come
SHARE = 0.2  # of a core, at most, is spent on pages while runs are at work
OURS_ONLY = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}


class Board:
    """The newest state of the runs: put up by one thread, taken by those that serve it, made when first asked for."""

    def __init__(self, hold_s: float = HOLD_S) -> None:
        self.hold_s = hold_s
        self.news = threading.Condition()
        self.making = threading.Lock()
        self.start = secrets.token_hex(4)  # so that a page left by an earlier server is not taken for up to date
        self.number = 0
        self.last = False
        self.serving = 0
        self.rest_until = 0.0  # on the monotonic clock
        self.runs: list[Run] = []
        self.live: dict[str, Any] = {}
        self.made: dict[str, Any] = {}
        self.gathered: dict[Path, tuple[Run, int, dict[str, Any]]] = {}

    @property
    def version(self) -> str:
        return f'"{self.start}-{self.number}"'

    def put(self, runs: Sequence[Run], text: str, running: Sequence[str], *, last: bool = False) -> None:
        """Put up the runs and the words of their badge; `last` says that there is no more to come."""
        with self.news:
            self.number += 1
            self.runs, self.last = list(runs), last
            self.live = {"version": self.version, "text": text, "running": list(running), "over": last}
            self.news.notify_all()

    def data(self) -> dict[str, Any]:
        """What the page shows now."""
        with self.making:
            with self.news:
                self.news.wait_for(lambda: self.number)
                runs, live = self.runs, self.live
            if self.made.get("live") is not live:
                begun = time.monotonic()
                self.made = {**gather(group_runs(runs), None, self.gather_once), "live": live}
                for run in self.made["runs"]:
                    run["state"] = RUNNING_NOW if run["folder"] in live["running"] else run["state"]
                self.made["states"] = count_states([run["state"] for run in self.made["runs"]])
                self.rest_until = time.monotonic() + (time.monotonic() - begun) * (1 / SHARE - 1)
            return self.made

    def gather_once(self, run: Run, num_runs: int, target: float | None) -> dict[str, Any]:
        """What the page shows of a run; remembered until it is read again or must leave room for others."""
        known, among, content = self.gathered.get(run.folder, (None, 0, {}))
        if known is not run or among != num_runs:
            content = gather_run(run, num_runs, target)
            self.gathered[run.folder] = (run, num_runs, content)
        return dict(content)

    def has_newer(self, known: str) -> bool:
        """Whether there is something newer than a version; waits for it, but not for long."""
        with self.news:
            return self.news.wait_for(lambda: self.version != known, 0.0 if self.last else self.hold_s)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """While a request is answered."""
        with self.news:
            self.serving += 1
        try:
            yield
        finally:
            with self.news:
                self.serving -= 1
                self.news.notify_all()

    def leave(self) -> None:
        """Let every page that is open get the last state."""
        time.sleep(LAST_S)
        with self.news:
            self.news.wait_for(lambda: not self.serving, REQUEST_S)


class Handler(BaseHTTPRequestHandler):
    """The answer to one request: the page or its data, to whoever names this host as such."""

    server: "Server"
    server_version, sys_version = "dfl-dist", ""
    timeout = REQUEST_S

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def answer(self) -> None:
        board, path, known = self.server.board, urlsplit(self.path).path, self.headers.get("If-None-Match")
        with board.busy():
            if not OWN_NAMES.fullmatch(self.headers.get("Host", "")):  # a name of another site that leads here
                self.send_error(403, explain=f"Only as {HOST} or localhost.")
            elif path not in (PAGE, DATA):
                self.send_error(404)
            elif known is not None and not board.has_newer(known):
                self.send_response(304)
                self.end_headers()
            else:
                self.send(board.data(), as_page=path == PAGE)

    def send(self, data: dict[str, Any], *, as_page: bool) -> None:
        content = (fill_template(data, live=True) if as_page else to_json(data)).encode()
        kind = "text/html" if as_page else "application/json"
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(content))}
        self.send_response(200)
        for name, value in {**headers, **OURS_ONLY, "ETag": data["live"]["version"]}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a browser asks all the time."""


class Server(ThreadingTCPServer):
    """Answers the browsers of this host, each request in a thread of its own."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, board: Board) -> None:
        self.board = board
        super().__init__((HOST, port), Handler)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing where a page was closed meanwhile; what else goes wrong is an error of ours, and is shown."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def follow(followed: Followed, board: Board, is_held: Callable[[], bool]) -> str:
    """Put up what is new until there is no more to come; how the runs ended, in words.

    `is_held` says whether somebody may still begin another run.
    """
    shown, quiet_since, is_new = followed.stand(), time.monotonic(), True
    while True:
        changed, now = followed.look(), time.monotonic()
        standing = followed.stand()
        is_new |= changed or standing != shown
        if changed or standing.running or is_held():
            quiet_since = now
        is_over = now - quiet_since >= standing.patience_s
        if is_over or (is_new and now >= board.rest_until):
            board.put(followed.runs, standing.ending if is_over else standing.text, standing.running, last=is_over)
            shown, is_new = standing, False
        if is_over:
            return standing.ending
        time.sleep(EVERY_S)


@contextmanager
def serving(board: Board, port: int = 0) -> Iterator[str]:
    """Serve a board on a port of this host, or on a free one; yields the address."""
    try:
        server = Server(port, board)
    except OSError as error:
        raise refusal("port", port, f"one that is free ({error.strerror})") from error
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        server.server_close()
