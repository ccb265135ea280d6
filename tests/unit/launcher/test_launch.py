"""A host's part of a job: the interface it uses, the exit code it gives."""

import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dfl_dist.errors import ConfigError
from dfl_dist.launcher.launch import Hosts, Launch, check_port, choose_interface, exit_code, wait_for_head
from dfl_dist.launcher.news import Told
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
        wait_for_head(nobody, Interrupt(signal.SIGTERM), time.monotonic() + 60)
    assert ended.value.code == 143
    assert capsys.readouterr().err == "launch: stopped by SIGTERM while host 1 waited for host 0\n"


def test_a_head_that_never_answers_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    nobody = Hosts(count=2, own=1, head="127.0.0.1", port=1, job_id="x")
    with pytest.raises(ConfigError, match=r"head: given 127\.0\.0\.1, where no host 0 answered at port 1 for 600 s"):
        wait_for_head(nobody, Interrupt(), time.monotonic() + 0.1)
    assert capsys.readouterr().err == "launch: host 1 waits for host 0 at 127.0.0.1:1\n"


def test_a_port_that_is_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = rf"port: given {port}, which cannot be had here \(Address already in use\), allowed: a free one"
        with pytest.raises(ConfigError, match=line):
            check_port(port)
    check_port(port)


def test_something_else_that_answers_at_the_port_is_not_taken_for_the_head_for_ever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        hosts = Hosts(count=2, own=1, head="127.0.0.1", port=other.getsockname()[1], job_id="x")
        wait_for_head(hosts, Interrupt(), time.monotonic() + 60)
        with pytest.raises(ConfigError, match="where no host 0 answered"):
            wait_for_head(hosts, Interrupt(), time.monotonic() - 1)


def test_a_status_folder_that_cannot_be_written_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing: Any = None
    launch = Launch(nothing, nothing, command="dfl-dist launch", token="x", status=tmp_path / "gone")
    job: Any = SimpleNamespace(told=Told(folder=tmp_path / "run"))
    for _ in range(3):
        launch.note(job)
    assert capsys.readouterr().err.count("launch: status: ") == 1
    (tmp_path / "gone").mkdir()
    job.told.ending = FINISHED
    launch.note(job)
    assert (tmp_path / "gone" / "ending").read_text() == "finished\n"
    assert (tmp_path / "gone" / "run").readlink() == tmp_path / "run"
