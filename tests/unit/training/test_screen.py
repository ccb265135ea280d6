"""What rank 0 shows of a run: at the start, as it goes on, at the end."""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from run_folders import write_run

from dfl_dist.config.resolve import resolve
from dfl_dist.config.values import ask
from dfl_dist.run_folder.files import aside
from dfl_dist.run_folder.job import Job
from dfl_dist.training.build import graph_schedule
from dfl_dist.training.screen import (
    COMPLETE,
    command_to_go_on,
    set_up_logging,
    summary,
    tell_graph,
    tell_report,
    tell_start,
    telling,
)

HOSTS = ("a", "a", "a", "b")


@pytest.mark.parametrize(
    ("devices", "backend", "lines"),
    [
        (("cuda:0", "cuda:1", "cuda:2", "cuda:0"), "nccl", ["(cuda:0, nccl)", "run folder"]),
        (
            ("cuda:0", "cuda:1", "cuda:0", "cuda:0"),
            "gloo",
            ["(cuda:0, gloo)", "4 ranks share 3 GPUs: models go over gloo, through pinned host memory", "run folder"],
        ),
        (("cpu",) * 4, "gloo", ["(cpu, gloo)", "run folder"]),
    ],
)
def test_devices_and_backend_are_told_once(
    caplog: pytest.LogCaptureFixture, devices: tuple[str, ...], backend: str, lines: list[str]
) -> None:
    asked = ask({"num_clients": 4})
    job = Job(asked, resolve(asked), None, token="t", start_id="s", folder=Path("runs/x"), checkpoint=None)
    with caplog.at_level(logging.INFO):
        tell_start(job, backend, list(zip(HOSTS, devices, strict=True)), 100)
    assert len(caplog.messages) == len(lines)
    for message, part in zip(caplog.messages, lines, strict=True):
        assert part in message


def test_settings_that_change_nothing_are_told(caplog: pytest.LogCaptureFixture) -> None:
    asked = ask({"num_clients": 4, "data.partition": "iid", "data.alpha": 0.1, "graph.kind": "ring", "local.rho": 0.1})
    job = Job(asked, resolve(asked), None, token="t", start_id="s", folder=Path("runs/x"), checkpoint=None)
    with caplog.at_level(logging.INFO):
        tell_start(job, "gloo", [("host-a", "cpu")], 100)
    assert caplog.messages[-1] == "without effect here: data.alpha"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"graph.kind": "ring"}, "graph: ring, strongly connected over every round"),
        (
            {"graph.kind": "one_peer_exponential", "num_clients": 4},
            "graph: one_peer_exponential, strongly connected over every 2 rounds in a row",
        ),
        ({"graph.kind": "ring", "rounds": 51}, "graph: ring, strongly connected over every round of the first 50"),
        ({"num_clients": 4}, f"graph: random_directed, {COMPLETE}"),
        ({"graph.kind": "full", "rounds": 51}, f"graph: full, {COMPLETE} of the first 50"),
        ({"graph.out_degree": 6}, "graph: random_directed, strongly connected over every round"),
        ({"algorithm": "dfedsgpsm-s"}, "graph: by_loss, out-degree weights"),
        ({"algorithm": "dfedsgpsm-s", "num_clients": 4}, f"graph: by_loss, out-degree weights, {COMPLETE}"),
        (
            {"algorithm": "fedavg", "num_clients": 20},
            "graph: none, a server averages 2 of 20 clients per round",
        ),
        (
            {"graph.out_degree": 0, "rounds": 3},
            "the graphs of 3 rounds together are not strongly connected: some clients never learn from some others",
        ),
    ],
)
def test_what_the_graphs_do_is_told(caplog: pytest.LogCaptureFixture, given: dict[str, Any], line: str) -> None:
    config = resolve(ask(given))
    with caplog.at_level(logging.INFO):
        tell_graph(config, graph_schedule(config))
    assert caplog.messages == [line]


def test_graphs_that_connect_only_in_the_end_are_told(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    lines = [{"out": [[1], [2], []]}] * 54 + [{"out": [[], [], [0]]}]
    (tmp_path / "g").write_text("\n".join(map(json.dumps, lines)))
    config = resolve(ask({"graph.file": str(tmp_path / "g"), "num_clients": 3, "rounds": 60}))
    with caplog.at_level(logging.INFO):
        tell_graph(config, graph_schedule(config))
    assert caplog.messages == ["graph: file, strongly connected over the first 55 rounds"]


def test_the_end_says_what_was_reached_and_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scores = {"test_accuracy": 0.875, "test_loss": 0.5, "consensus_distance": 0.125}
    folder = tmp_path / "runs" / "x"
    done = summary(folder, "finished after round 20 of 20, 3.0 s", scores).splitlines()
    assert done[0] == "finished after round 20 of 20, 3.0 s"
    assert "test accuracy 87.50%, test loss 0.5000" in done[1]
    assert not any("--resume" in line for line in done)
    stopped = summary(folder, "stopped", scores, go_on=command_to_go_on(folder)).splitlines()
    assert stopped[-1] == "go on with: python -m dfl_dist.train --resume runs/x"


@pytest.mark.parametrize(
    ("variables", "command"),
    [
        ({}, "python -m dfl_dist.train --resume 'my runs/x'"),
        (
            {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"},
            "torchrun --nproc_per_node=4 -m dfl_dist.train --resume 'my runs/x'",
        ),
        (
            {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"},
            "the same command on each host, with --resume 'my runs/x'",
        ),
        (
            {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "DFL_COMMAND": "dfl-dist launch -n 2"},
            "dfl-dist launch -n 2 --resume 'my runs/x'",
        ),
    ],
)
def test_the_whole_command_that_goes_on_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "DFL_COMMAND"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert command_to_go_on(tmp_path / "my runs" / "x") == command


def test_a_report_for_which_there_is_no_room_costs_one_line_and_an_error_of_ours_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_run(tmp_path / "run", [0.5] * 4)
    aside(folder / "report.html", os.getpid()).symlink_to("/dev/full")
    tell_report(folder)
    monkeypatch.setattr("dfl_dist.report.at_end.write_page", lambda *_: 1 // 0)
    tell_report(folder)
    full, bug = caplog.records
    why = "[Errno 28] No space left on device"
    assert full.getMessage() == f"the report could not be written: {why}; the run is complete without it"
    assert (bool(full.exc_info), bool(bug.exc_info)) == (False, True)


@contextmanager
def fresh_logging() -> Iterator[None]:
    """Logging as Python begins with it, without pytest's handlers; afterwards as it was."""
    root, ours = logging.getLogger(), logging.getLogger("dfl_dist")
    before = root.handlers, root.level, ours.level
    root.handlers = []
    root.setLevel(logging.WARNING)
    ours.setLevel(logging.NOTSET)
    try:
        yield
    finally:
        root.handlers = before[0]
        root.setLevel(before[1])
        ours.setLevel(before[2])


@fresh_logging()
def test_of_what_other_libraries_say_only_warnings_reach_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(0, tells=True)
    logging.getLogger("matplotlib.font_manager").info("generated new fontManager")
    logging.getLogger("matplotlib").warning("no such font")
    logging.getLogger("dfl_dist.training.progress").info("round 1")
    assert capsys.readouterr().err.splitlines() == ["[rank 0] no such font", "[rank 0] round 1"]


@fresh_logging()
def test_a_script_without_logging_is_told_once_and_only_as_long_as_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("dfl_dist.training.progress")
    for rank, level in ((0, logging.INFO), (0, logging.INFO), (3, logging.WARNING)):
        with telling(rank, tells=rank == 0):
            log.info("round 1")
            log.warning("late")
        told = ["round 1", "late"] if level == logging.INFO else ["late"]
        assert capsys.readouterr().err.splitlines() == [f"[rank {rank}] {line}" for line in told]
        assert not log.isEnabledFor(logging.INFO)
    assert not log.hasHandlers()
