"""What a host's agent runs, and what becomes of it when it does not reach host 0 any more."""

import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.elastic.rendezvous import RendezvousConnectionError

from dfl_dist.launcher import engine, words
from dfl_dist.launcher.engine import count_ranks
from dfl_dist.launcher.jobs import HEAD_LOST, Meeting, Program


@pytest.mark.parametrize(
    ("host", "done", "code"),
    [
        pytest.param(1, False, HEAD_LOST, id="in the midst of the run: it may come back"),
        pytest.param(1, True, 0, id="after this host's ranks have left in peace: all is done"),
        pytest.param(0, False, 1, id="host 0 itself"),
    ],
)
def test_host_0_is_gone(monkeypatch: pytest.MonkeyPatch, host: int, done: bool, code: int) -> None:
    class Lost(Idle):
        is_done = done

        def run(self) -> None:
            raise RendezvousConnectionError("no answer")

    assert meet_and_run(Lost, host, monkeypatch) == code


def test_a_host_that_waits_hears_that_the_others_have_ended_the_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that came too late, or is one too many: the engine gives no result then."""
    assert meet_and_run(Idle, 1, monkeypatch) == 1
    assert capsys.readouterr().err == "launch: another host has ended the job\n"


def test_what_listens_at_the_port_and_is_not_host_0_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = threading.Event()
    say = words.say
    monkeypatch.setattr(words, "say", lambda text: (say(text), told.set()))
    monkeypatch.setattr(engine, "ANSWER_WITHIN_S", 0.01)
    assert meet_and_run(Idle, 1, monkeypatch, before=lambda: told.wait(10)) == 1
    line, _ = capsys.readouterr().err.splitlines()
    assert line == "launch: host 1 waits for host 0 at 10.0.0.1:1: what answers there does not speak like dfl_dist"


class Idle:
    """An agent that has done nothing."""

    is_done = False

    def __init__(self, *given: Any) -> None: ...

    def run(self) -> None: ...


def meet_and_run(
    agent: type[Idle], host: int, monkeypatch: pytest.MonkeyPatch, before: Callable[[], object] = lambda: None
) -> int:
    """The exit code with such an agent; it has left the meeting."""
    left: list[bool] = []
    handler = SimpleNamespace(shutdown=lambda: left.append(True), get_run_id=lambda: "this")
    monkeypatch.setattr(engine, "make_handler", lambda at: (before(), handler)[1])
    monkeypatch.setattr(engine, "Agent", agent)
    program = Program("a:b", [], 1, meeting=Meeting(2, host, "10.0.0.1", 1, "this", f"10.0.0.{host}"))
    nothing: Any = None
    code = engine.meet_and_run(program, nothing, nothing, nothing)
    assert left == [True]
    return code


@pytest.mark.parametrize(
    ("gpus", "hosts", "given", "without_gpu", "ranks"),
    [
        (0, 1, None, 0, 8),
        (4, 1, None, 0, 4),
        (4, 1, None, 1, 5),  # a coordinator beside them
        (4, 2, None, 0, 4),
        (0, 2, None, 0, len(os.sched_getaffinity(0))),
        (4, 1, 2, 1, 2),
    ],
)
def test_a_host_has_a_rank_for_each_gpu(
    monkeypatch: pytest.MonkeyPatch, gpus: int, hosts: int, given: int | None, without_gpu: int, ranks: int
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    program = Program("a:program", [], given, without_gpu=without_gpu, meeting=Meeting(hosts=hosts))
    assert count_ranks(program) == ranks
