"""What torchrun is given, and what its ranks printed."""

from pathlib import Path
from typing import Any

import pytest

from dfl_dist.launcher import processes
from dfl_dist.launcher.ranks import Meeting, Program, lines_of_ranks, start_ranks


def test_on_one_host() -> None:
    plain = Program("dfl_dist.train", ["--out", "my run"], 3)
    assert plain.command_line() == "torchrun --standalone --nproc_per_node=3 -m dfl_dist.train --out 'my run'"
    kept = Program("m", [], 3, restarts=2, logs=Path("logs/host-0"))
    assert kept.torchrun_words() == [
        *("--standalone", "--nproc_per_node=3", "--max-restarts=2"),
        *("--log-dir=logs/host-0", "--redirects=3", "--tee=0:3", "-m", "m"),
    ]


@pytest.mark.parametrize(("host", "is_head"), [(0, "1"), (1, "0")])
def test_on_several_hosts(host: int, is_head: str) -> None:
    words = Program("m", [], None, meeting=Meeting(3, host, "a", 77, "x", "10.0.0.2")).torchrun_words()
    assert words == [
        *("--nnodes=3", "--rdzv-backend=c10d", "--rdzv-endpoint=a:77", "--rdzv-id=x"),
        *(f"--rdzv-conf=is_host={is_head}", "--local-addr=10.0.0.2", "--nproc_per_node=auto", "-m", "m"),
    ]


def test_what_the_ranks_find_in_their_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}
    monkeypatch.setattr(processes, "start", lambda command, mark, environment, output: found.update(environment))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "INFO")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    start_ranks(Program("m", [], 1), mark="a", environment={"GLOO_SOCKET_IFNAME": "lo"}, prefix="[1] ", patience_s=9)
    assert found["OMP_NUM_THREADS"] == "1", "where nobody says otherwise"
    assert found["TORCH_CPP_LOG_LEVEL"] == "INFO", "the user's own"
    assert found["GLOO_SOCKET_IFNAME"] == "lo", "given"
    assert found["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] == "[1] "
    assert found["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "9"


@pytest.mark.parametrize(
    ("lines", "printed"),
    [
        (["a", "b", "W0101 closing", "c", "E0101 x] failed (exitcode: 2) of", "Traceback"], ["a", "b", "c"]),
        (["a", "E0101 x] failed (exitcode: -9) of", "Traceback"], ["a", "failed (exitcode: -9) of"]),
        (["E0101 x] failed (exitcode: 1)", "b"], []),
        ([], []),
    ],
)
def test_lines_of_the_ranks(lines: list[str], printed: list[str]) -> None:
    assert lines_of_ranks(lines) == printed
