"""Signals that end a command or a run, and the system that it needs."""

import os
import platform
import signal

import pytest

from dfl_dist import signals
from dfl_dist.commands.main import main
from dfl_dist.signals import StopSignal, signals_caught


@pytest.mark.parametrize("system", ["Darwin", "Windows"])
@pytest.mark.parametrize("words", [["algorithms"], ["--help"]], ids=" ".join)
def test_another_system_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], system: str, words: list[str]
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    assert main(words) == 2
    found = capsys.readouterr()
    assert found.err == f"dfl-dist: needs Linux, given {system} (it uses /proc and Linux network interfaces)\n"
    assert found.out == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_remembered_and_a_ctrl_c_after_it_means_at_once(number: int) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # whatever the tests themselves were started with
    inherited = {other: signal.getsignal(other) for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with signals_caught() as interrupt:
            assert (interrupt.number, interrupt.at_once) == (None, False)
            os.kill(os.getpid(), number)
            assert (interrupt.number, interrupt.at_once) == (number, False)
            interrupt.remember(signal.SIGTERM, None)
            assert (interrupt.number, interrupt.at_once) == (number, False), "only Ctrl-C is impatient"
            interrupt.remember(signal.SIGINT, None)
            assert (interrupt.number, interrupt.at_once) == (number, True)
        assert {other: signal.getsignal(other) for other in inherited} == inherited
    finally:
        signal.signal(number, before)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        with signals_caught() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
        assert interrupt.number is None
    finally:
        signal.signal(signal.SIGHUP, before)


# In a rank: the run ends after a round.


def test_a_second_press_much_later_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    stop = StopSignal()
    stop._remember(signal.SIGINT, None)
    assert stop.received == "SIGINT"
    now[0] += 0.1
    stop._remember(signal.SIGINT, None)  # the same press, passed on by torchrun
    stop._remember(signal.SIGTERM, None)
    now[0] += 5
    with pytest.raises(KeyboardInterrupt):
        stop._remember(signal.SIGINT, None)
    assert stop.received == "SIGINT"
