"""Signals that end a command or a run, and the system that it needs."""

import os
import platform
import signal
import subprocess
import sys

import pytest

from dfl_dist import signals
from dfl_dist.commands.main import main
from dfl_dist.signals import InScript, OwnProcess, StopSignal, signals_caught, signals_restored


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


# In a rank: the run ends after a round, and the process after the run.


@pytest.mark.parametrize(
    "begun",
    [
        "ThreadPoolExecutor(1).submit(time.sleep, 600)",
        "threading.Thread(target=time.sleep, args=(600,)).start()",
        "atexit.register(time.sleep, 600)",
    ],
    ids=["pool", "thread", "exit handler"],
)
def test_what_others_have_begun_holds_up_the_end_of_the_process_for_a_moment_only(begun: str) -> None:
    script = f"""
import atexit, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from dfl_dist import signals
{begun}
signals.LEAVE_WITHIN_S = 0.2
signals.begin_to_leave(3)
print("done")
sys.exit(3)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (3, "done\n")
    assert done.stderr.endswith("perhaps of a tracker, go on 0.2 s after the end; left by force\n")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: found[0])
    return found


def test_a_second_press_much_later_means_at_once(now: list[float]) -> None:
    heard = StopSignal()
    assert not heard.remember(signal.SIGINT)
    assert (heard.number, heard.name) == (signal.SIGINT, "Ctrl-C (SIGINT)")
    now[0] += 0.1
    assert not heard.remember(signal.SIGINT), "the same press, passed on by torchrun"
    assert not heard.remember(signal.SIGTERM)
    now[0] += 5
    assert not heard.remember(signal.SIGTERM)
    assert heard.remember(signal.SIGINT)
    assert heard.number == signal.SIGINT


def test_in_a_script_a_second_press_is_a_keyboard_interrupt(now: list[float]) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with signals_restored():
        stops = InScript()
        stops.begin()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stops.heard.name == "SIGTERM"
        now[0] += 5
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


class LeftError(Exception):
    """In place of the end of the process."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("phase", ["before", "within", "finished"])
def test_what_a_signal_does_to_a_process_that_only_trains(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], now: list[float], number: int, phase: str
) -> None:
    def leave(code: int) -> None:
        raise LeftError(code)

    monkeypatch.setattr(signals.os, "_exit", leave)
    monkeypatch.delenv("RANK", raising=False)
    process, name = OwnProcess(), signal.Signals(number).name
    if phase == "before":
        with pytest.raises(LeftError, match=f"^{128 + number}$"):
            process.hear(number)
        assert capfd.readouterr().err == f"dfl_dist: stopped by {name} before the run began\n"
        return
    process.begin()
    if phase == "finished":
        process.finish()
    process.hear(number)
    assert process.heard.number == number
    text = "dfl_dist: stopping after the current round; Ctrl-C again ends it at once\n"
    assert capfd.readouterr().err == (text if phase == "within" else "")
    now[0] += 5
    process.hear(signal.SIGTERM)
    with pytest.raises(LeftError, match="^0$" if phase == "finished" else "^130$"):
        process.hear(signal.SIGINT)
    assert capfd.readouterr().err == "dfl_dist: ended at once by a second Ctrl-C\n"


def test_one_rank_speaks_for_all(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        signals.say("a word")
    assert capfd.readouterr().err == "dfl_dist: a word\n"
