"""Processes that a signal has stopped are seen, and since when."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from dfl_dist.launcher import stopped
from dfl_dist.launcher.processes import is_stopped
from dfl_dist.launcher.stopped import Watch


@pytest.fixture
def process() -> Iterator[int]:
    with subprocess.Popen(["sleep", "600"]) as started:
        yield started.pid
        started.kill()


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    while not is_stopped(pid):
        time.sleep(0.001)


def test_a_process_that_is_stopped_goes_on_and_ends(process: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopped, "LOOK_S", 0.0)
    watch = Watch()
    assert watch.stopped_for([process]) == {}
    stop(process)
    first = watch.stopped_for([process])[process]
    time.sleep(0.05)
    assert 0.05 <= watch.stopped_for([process])[process] - first < 5
    os.kill(process, signal.SIGCONT)
    while is_stopped(process):
        time.sleep(0.001)
    assert watch.stopped_for([process]) == {}
    assert not is_stopped(2**22 + 1), "no such process"


def test_a_process_that_has_ended_since_the_last_look_is_not_told(process: int) -> None:
    watch = Watch()
    stop(process)
    assert set(watch.stopped_for([process])) == {process}
    assert watch.stopped_for([]) == {}


def test_a_watch_that_stood_still_itself_blames_nobody(process: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole job was stopped for hours, and goes on: the agent first."""
    watch = Watch()
    stop(process)
    watch.stopped_for([process])
    monkeypatch.setattr(stopped, "LOOK_S", 0.0)
    monkeypatch.setattr(stopped, "MISSED_S", 0.0)
    time.sleep(0.05)
    assert watch.stopped_for([process])[process] < 0.05
