"""A host's part of a job: the interface it uses, the exit code it gives."""

import signal

import pytest

from dfl_dist.errors import ConfigError
from dfl_dist.launcher.launch import Hosts, choose_interface, exit_code, wait_for_head
from dfl_dist.run_folder.status import FAILED, FINISHED, REFUSED, STOPPED
from dfl_dist.signals import Interrupt


def test_an_interface_that_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert choose_interface("a name that is not looked up") == (
        "127.0.0.1",
        {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"},
    )
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib7")
    with pytest.raises(
        ConfigError, match=r"GLOO_SOCKET_IFNAME: given ib7, allowed: one that is up .* lo \(127.0.0.1\)"
    ):
        choose_interface("127.0.0.1")


@pytest.mark.parametrize(
    ("ending", "stopped_by", "code", "expected"),
    [
        (FINISHED, None, 0, 0),
        (STOPPED, None, 0, 0),
        (REFUSED, None, 0, 2),
        (FAILED, None, 0, 1),
        (None, None, 1, 1),
        (None, None, -9, 1),
        (None, None, 137, 1),
        (FINISHED, None, -9, 0),
        (STOPPED, signal.SIGINT, 0, 130),
        (STOPPED, signal.SIGTERM, 0, 143),
        (FINISHED, signal.SIGTERM, 0, 0),
        (FAILED, signal.SIGTERM, 0, 1),
        (None, signal.SIGTERM, 1, 143),
    ],
)
def test_exit_codes(ending: str | None, stopped_by: int | None, code: int, expected: int) -> None:
    assert exit_code(ending, stopped_by, code) == expected


def test_a_signal_ends_the_wait_for_the_head(capsys: pytest.CaptureFixture[str]) -> None:
    nobody = Hosts(count=2, own=1, head="127.0.0.1", port=1, job_id="x")
    with pytest.raises(SystemExit) as ended:
        wait_for_head(nobody, Interrupt(signal.SIGTERM))
    assert ended.value.code == 143


def test_a_head_that_never_answers_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dfl_dist.launcher.launch.HEAD_WITHIN_S", 0.1)
    with pytest.raises(ConfigError, match=r"head: given 127\.0\.0\.1, where nothing answered at port 1 for 0\.1 s"):
        wait_for_head(Hosts(count=2, own=1, head="127.0.0.1", port=1, job_id="x"), Interrupt())
    assert capsys.readouterr().err == "launch: host 1 waits for host 0 at 127.0.0.1:1\n"
