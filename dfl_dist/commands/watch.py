"""`dfl-dist watch [RUN|SWEEP]`: the report of what is running, as a page that follows it."""

import os
import re
import socket
from pathlib import Path

from dfl_dist.commands.options import split
from dfl_dist.errors import refusal
from dfl_dist.report.follow import Followed
from dfl_dist.report.live import Board, follow, serving
from dfl_dist.sweep.locks import GUARD, read_holder, started_at
from dfl_dist.text import help_page

DEFAULT = "runs/latest"
WANTED = f"the folder of a run, such as {DEFAULT}, or of several"
OPTIONS = {"port": "the port of the page on 127.0.0.1 (default: one that is free)"}
BEGUN = ("environment.json", GUARD, "sweep.json")  # what is first in the folder of a run, a sweep and a cell


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(help_text())
        return 0
    folder, port = read_words(argv)
    followed = look_at(folder)
    if (standing := followed.stand()).patience_s == 0:
        page, command = folder / "report.html", f"dfl-dist report {folder} --html FILE"
        where = f"its page is {page}" if page.exists() else f"its page: {command}"
        print(f"dfl-dist watch: nothing to follow: {folder}: {standing.ending}; {where}")
        return 0
    board = Board()
    with serving(board, port) as url:
        print(f"dfl-dist watch: {url} follows {folder}; Ctrl-C ends it", flush=True)
        if note := followed.note():
            print(f"dfl-dist watch: {note}", flush=True)
        ending = follow(followed, board, lambda: is_held(folder))
        board.leave()
    print(f"dfl-dist watch: {folder}: {ending}")
    return 0


def help_text() -> str:
    return help_page(
        "usage: dfl-dist watch [RUN|SWEEP] [--port N]",
        f"The report of a run, or of the runs in a folder, as a page that follows them (default: {DEFAULT}): a browser "
        "on this host shows each round as soon as it is recorded. Ends with the runs, and exit code 0, or by Ctrl-C, "
        "with 130; the runs take no notice. From another host: --port 8000, and there ssh -L 8000:127.0.0.1:8000 HOST.",
        {"--port N": OPTIONS["port"]},
    )


def read_words(argv: list[str]) -> tuple[Path, int]:
    """The folder and the port, 0 for any."""
    words = split(argv, OPTIONS)
    if words.settings:
        raise refusal("option", words.settings[0].partition("=")[0], "--port", ["--port"])
    if len(words.plain) > 1:
        raise refusal("watch", " ".join(words.plain), "one run, or one folder of runs")
    port = words.own.get("port", "0")
    if "port" in words.own and not (re.fullmatch(r"\d{1,5}", port) and 0 < int(port) < 65536):
        raise refusal("port", port, "a whole number, 1 to 65535")
    folder = Path(*(words.plain or [DEFAULT]))
    if not folder.is_dir():
        raise refusal("run", folder, WANTED)
    return Path(os.path.relpath(folder.resolve())) if folder.is_symlink() else folder, int(port)


def look_at(folder: Path) -> Followed:
    """What is there; refused where that is neither runs nor the beginning of one."""
    followed = Followed(folder)
    try:
        followed.look()
        others = not followed.runs and any(folder.iterdir())
    except OSError as error:
        raise refusal("run", folder, f"a folder that can be read ({error.strerror})") from error
    if others and not any((folder / name).exists() for name in BEGUN):
        raise refusal("run", folder, WANTED)
    return followed


def is_held(folder: Path) -> bool:
    """Whether a sweep of this host is at work in a folder."""
    holders = [holder for lock in folder.glob("*.lock") if (holder := read_holder(lock))]
    here = socket.gethostname()
    return any(holder["host"] == here and started_at(holder["pid"]) == holder["started"] for holder in holders)
