"""What ranks print: on the screen, and in files by attempt and rank."""

import fcntl
import os
import pty
import socket
import struct
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dfl_dist.launcher.output import Log, Output, Stream


class Screen:
    """Two pipes in the place of a terminal."""

    def __init__(self) -> None:
        (self.out_r, self.out), (self.err_r, self.err) = os.pipe(), os.pipe()

    def shown(self) -> tuple[bytes, bytes]:
        for file in (self.out_r, self.err_r):
            os.set_blocking(file, False)
        found = []
        for file in (self.out_r, self.err_r):
            try:
                found.append(os.read(file, 1 << 16))
            except BlockingIOError:
                found.append(b"")
        return found[0], found[1]


@pytest.fixture
def screen() -> Iterator[Screen]:
    made = Screen()
    yield made
    for file in (made.out_r, made.out, made.err_r, made.err):
        os.close(file)


def print_as(output: Output, rank: int, attempt: int, out: bytes, err: bytes) -> None:
    """What a rank does that prints and ends."""
    ends = output.attach(rank, attempt, first=rank == 0)
    for end, text in zip(ends, (out, err), strict=True):
        os.write(end, text)
        os.close(end)


def log_of(folder: Path, attempt: int, rank: int) -> list[str]:
    return (folder / f"attempt-{attempt}" / f"rank-{rank:04d}.log").read_text().splitlines()


def test_the_screen_has_rank_0_and_what_the_others_warn_of(tmp_path: Path, screen: Screen) -> None:
    output = Output(screen.out, screen.err)
    output.keep_in(tmp_path)
    print_as(output, 0, 0, b"results\n", b"no newline")
    print_as(output, 3, 0, b"chatter\n", b"[rank 3] known already\nwarning\n")
    output.drain(10)
    assert screen.shown() == (b"results\n", b"no newline[rank 3] known already\n[rank 3] warning\n")
    header, *printed = log_of(tmp_path, 0, 3)
    assert header.startswith("--- ")
    assert header.endswith(f"rank 3 on {os.uname().nodename}, attempt 0")
    assert sorted(printed) == ["[rank 3] known already", "chatter", "warning"]
    assert sorted(log_of(tmp_path, 0, 0)[1:]) == ["no newline", "results"]


def test_what_is_printed_before_there_is_a_folder_is_not_lost(tmp_path: Path, screen: Screen) -> None:
    output = Output(screen.out, screen.err)
    print_as(output, 1, 0, b"early\n", b"")
    output.drain(10)
    output.keep_in(tmp_path / "logs")
    print_as(output, 1, 1, b"late\n", b"")
    output.drain(10)
    assert log_of(tmp_path / "logs", 0, 1)[1:] == ["early"]
    assert log_of(tmp_path / "logs", 1, 1)[1:] == ["late"]


def test_what_a_rank_tells_for_the_end_is_in_its_log_too(tmp_path: Path, screen: Screen) -> None:
    output = Output(screen.out, screen.err)
    output.keep_in(tmp_path)
    for rank in (0, 1):
        print_as(output, rank, 0, b"", b"")
    output.keep(1, "Traceback …\nKeyError")
    output.drain(10)
    assert log_of(tmp_path, 0, 1)[1:] == ["Traceback …", "KeyError"]
    assert log_of(tmp_path, 0, 0)[1:] == []
    assert screen.shown() == (b"", b"")


def test_a_second_launch_adds_to_the_file(tmp_path: Path, screen: Screen) -> None:
    for text in (b"first\n", b"second\n"):
        output = Output(screen.out, screen.err)
        output.keep_in(tmp_path)
        print_as(output, 0, 0, text, b"")
        output.drain(10)
    assert [line for line in log_of(tmp_path, 0, 0) if not line.startswith("---")] == ["first", "second"]


def test_of_a_bar_only_the_last_state_is_kept(screen: Screen) -> None:
    log = Log("name", "header")
    Stream(log, screen.err, None).take(b"\r 1/3\r 2/3\r 3/3\nnext\r\n")
    assert log.waiting == [b" 3/3\n", b"next\n"]
    assert screen.shown() == (b"", b"\r 1/3\r 2/3\r 3/3\nnext\r\n"), "the screen has every byte"


def test_a_disk_that_cannot_be_written_costs_only_the_log(screen: Screen) -> None:
    output = Output(screen.out, screen.err)
    output.keep_in(Path("/proc/nowhere"))
    print_as(output, 0, 0, b"results\n", b"")
    output.drain(10)
    assert screen.shown() == (b"results\n", b"")


def test_rank_0_sees_a_terminal_where_the_command_has_one() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 77, 0, 0))
    output = Output(theirs, theirs)
    out, err = output.attach(0, 0, first=True)
    _, other = output.attach(1, 0, first=False)
    assert not os.isatty(out)
    assert os.isatty(err)
    assert not os.isatty(other)
    assert os.get_terminal_size(err).columns == 77
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 44, 0, 0))
    end = time.monotonic() + 10
    while os.get_terminal_size(err).columns != 44:
        assert time.monotonic() < end, "a change of its size is not passed on"
        time.sleep(0.05)
    for file in (out, err, other, ours, theirs):
        os.close(file)


def test_a_long_message_of_a_rank_is_heard_whole(screen: Screen) -> None:
    """A traceback full of letters that JSON writes as six each."""
    heard: list[bytes] = []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    with ours, theirs:
        output = Output(screen.out, screen.err)
        output.listen(ours.fileno(), heard.append)
        theirs.send(b"x" * 200_000)
        output.drain(0.0)
        end = time.monotonic() + 30
        while not heard and time.monotonic() < end:
            time.sleep(0.005)
        output.poll.unregister(ours.fileno())
    assert heard == [b"x" * 200_000]
