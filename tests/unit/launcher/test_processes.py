"""The supervisor of processes: start, stop, wait, and none is left behind."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dfl_dist.launcher.processes import MARK, Processes, find_marked, kill_marked, start
from dfl_dist.signals import Interrupt

STUBBORN = "import signal, time, pathlib; [signal.signal(n, signal.SIG_IGN) for n in (2, 15)]"
CODE_IS_SIGNAL = "import signal, sys, time, pathlib; [signal.signal(n, lambda n, _: sys.exit(n)) for n in (2, 15)]"


@pytest.fixture
def begin(tmp_path: Path) -> Callable[[str], Processes]:
    """Start a Python program under a new mark, and wait until it is ready."""

    def begin(text: str) -> Processes:
        ready = tmp_path / secrets.token_hex(4)
        code = f"{text}\npathlib.Path({str(ready)!r}).touch()\ntime.sleep(600)"
        job = start([sys.executable, "-c", code], secrets.token_hex(8), os.environ)
        end = time.monotonic() + 60
        while not ready.exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        return job

    return begin


def interrupted(*numbers: int) -> Interrupt:
    interrupt = Interrupt()
    for number in numbers:
        interrupt.remember(number, None)
    return interrupt


def idle(mark: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, MARK: mark})


@pytest.mark.parametrize(
    ("given", "arrives"),
    [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM), (signal.SIGHUP, signal.SIGTERM)],
)
def test_a_signal_is_passed_on_and_the_exit_code_returned(
    begin: Callable[[str], Processes], given: int, arrives: int
) -> None:
    assert begin(CODE_IS_SIGNAL).wait(interrupted(given)) == arrives


def test_a_second_ctrl_c_ends_everything_at_once(begin: Callable[[str], Processes]) -> None:
    job, interrupt, asked = begin(STUBBORN), interrupted(signal.SIGTERM), []

    def on_poll() -> None:
        if len(asked) == 1:
            interrupt.remember(signal.SIGINT, None)

    with idle(job.mark) as rank:
        assert job.wait(interrupt, on_signal=asked.append, on_poll=on_poll) == -signal.SIGKILL
        assert rank.wait(10) == -signal.SIGKILL, "found by its environment"
    assert asked == [signal.SIGTERM], "once"


def test_what_outlives_the_command_is_ended(tmp_path: Path) -> None:
    """A process in a session of its own, whose parent is gone, found by the mark that it inherits."""
    text = "import subprocess, sys; subprocess.Popen(['sleep', '600'], start_new_session=True); sys.exit(7)"
    with (tmp_path / "output").open("w") as output:
        job = start([sys.executable, "-c", text + "; print(1)"], secrets.token_hex(8), os.environ, output)
        job.first.wait(60)
        assert find_marked(job.mark), "it is there"
        assert job.wait(Interrupt()) == 7
    assert find_marked(job.mark) == []


def test_nothing_is_left_when_waiting_fails(begin: Callable[[str], Processes]) -> None:
    job = begin(STUBBORN)

    def fail() -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        job.wait(Interrupt(), on_poll=fail)
    assert find_marked(job.mark) == []


def test_other_marks_are_left_alone() -> None:
    mark = secrets.token_hex(8)
    with idle(mark) as process, idle(mark + "0") as other:
        assert wait_until_marked(mark) == [process.pid]
        kill_marked(mark)
        assert process.wait(10) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()


def wait_until_marked(mark: str) -> list[int]:
    """A new process has its environment only after it has begun its program."""
    end = time.monotonic() + 10
    while not (found := find_marked(mark)) and time.monotonic() < end:
        time.sleep(0.01)
    return found
