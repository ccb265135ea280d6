"""`--dry-run`: what it says is what the run then is, it writes nothing, and it refuses what a start refuses."""

import itertools
import json
import os
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import yaml
from launching import TRAINER, Finished, alone, dfl_dist, lines, ranks, run, torchrun, train

from dfl_dist.config.parse import parse
from dfl_dist.config.schema import SETTINGS
from dfl_dist.config.values import flatten, format_value
from dfl_dist.distributed.world import World
from dfl_dist.topology.graph import Graph
from dfl_dist.training.build import UserCode
from dfl_dist.training.dry_run import examine, memory_of
from dfl_dist.training.prepare import find_folder, prepare

SHORT = ("--rounds", "3", "--local.steps", "1", "--report", "false", "--checkpoint.every", "1")
NOT_SAVED = ("--checkpoint.every", "0")  # else what is in flight lands before it is due
GRAPHS = {
    "fixed degree": (),
    "any degree": ("--graph.kind", "erdos_renyi", "--graph.p", "0.4"),
    "any degree, in flight": ("--graph.kind", "erdos_renyi", "--graph.p", "0.4", "--overlap", "2"),
    "several exchanges": ("--graph.gossip_steps", "2", "--overlap", "1", "--dtype", "float64"),
    "by loss": ("--algorithm", "dfedsgpsm-s"),
    "server": ("--algorithm", "fedavg", "--participation", "0.4"),
}


def settings_shown(text: str) -> dict[str, tuple[str, str]]:
    """The value of each setting that is shown, and where it comes from."""
    found = re.findall(r"^  (\S+) +(\S+)  +(\S.*)$", text, re.MULTILINE)
    return {key: (value, origin) for key, value, origin in found if key in SETTINGS}


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files, and when they were written."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


def succeed(done: Finished) -> str:
    assert done.code == 0, done.err
    return done.out


def without_process(text: str) -> str:
    """What is told without the memory of the process that told it."""
    assert "\n  the process" in text
    return re.sub(r"\n  the process.*", "", text)


def test_every_way_to_start_it_tells_the_same_and_writes_nothing(tmp_path: Path) -> None:
    by_launch = succeed(run(dfl_dist("launch", "--dry-run", "-n", "3", *SHORT), tmp_path))
    by_torchrun = succeed(run(torchrun(3, "--dry-run", *SHORT), tmp_path))
    by_train = succeed(run(dfl_dist("train", *SHORT, "--dry-run", "-n", "3"), tmp_path))
    assert by_torchrun.count("dry run: ") == 1, "rank 0 alone tells it"
    assert without_process(by_launch) == without_process(by_torchrun) == without_process(by_train)
    assert "3 clients on 3 ranks" in by_launch
    by_one = succeed(run(alone("--dry-run"), tmp_path))
    assert "8 clients on 1 rank" in by_one
    assert (settings_shown(by_launch)["num_clients"], settings_shown(by_one)["num_clients"]) == (
        ("3", "ranks"),
        ("8", "default"),
    )
    named = succeed(run(alone("--dry-run", "--out", "deep/down", "--tracker", "tensorboard"), tmp_path))
    assert "run folder: deep/down, which is new\n" in named
    assert settings_shown(named)["out"] == ("deep/down", "asked")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_run_is_what_was_told(tmp_path: Path, graph: str) -> None:
    """Its folder, every setting, who holds what, the bytes of every round, its checkpoints."""
    arguments = ("--num_clients", "5", "--seed", "3", "--data.alpha", "0.2", *SHORT, *GRAPHS[graph])
    text = succeed(run(ranks(2, TRAINER, "--dry-run", *arguments), tmp_path))
    assert list(tmp_path.iterdir()) == []
    (named,) = re.findall(r"^run folder: (\S+), which is new$", text, re.MULTILINE)
    done = run(ranks(2, TRAINER, *arguments), tmp_path)
    assert done.code == 0, done.err
    folder = tmp_path / named

    resolved = dict(flatten(yaml.safe_load((folder / "resolved.yaml").read_text())))
    resolved["out"] = os.path.relpath(resolved["out"], tmp_path.resolve())
    shown = settings_shown(text)
    assert {key: value for key, (value, _) in shown.items()} == {k: format_value(v) for k, v in resolved.items()}
    assert "config.yaml" in os.listdir(folder)
    assert "dry" not in (folder / "config.yaml").read_text()

    with np.load(folder / "partition.npz") as held:
        sizes = [len(held[name]) for name in held]
    assert f"samples per client  {min(sizes)} to {max(sizes)}\n" in text
    counts = np.array(json.loads((folder / "classes.json").read_text())["counts"])
    kinds = np.count_nonzero(counts, axis=1)
    assert f"classes per client  {kinds.min()} to {kinds.max()}, " in text
    assert "clients 0-1 on rank 0, 2-4 on rank 1\n" in text

    sent = [line["bytes_sent"] for line in lines(folder / "metrics.jsonl")]
    assert f"  {round(np.mean(sent)):,} bytes per round" in text
    if min(sent) < max(sent):
        assert f"in the mean of 3 rounds, {min(sent):,} to {max(sent):,}\n" in text
    assert (min(sent) < max(sent)) == ("erdos_renyi" in GRAPHS[graph])

    told = re.search(r"^  (.+) each; at the end of the run the newest (\d+) are there: (\S+) MB$", text, re.MULTILINE)
    assert told
    kept = list((folder / "checkpoints").iterdir())
    sizes = [sum(path.stat().st_size for path in one.glob("client-*.pt")) / 1e6 for one in kept]
    each = [float(size.removesuffix(" MB")) for size in told[1].split(" to ")]
    assert [each[0], each[-1]] == pytest.approx([min(sizes), max(sizes)], rel=0.01)
    assert (int(told[2]), float(told[3])) == (len(kept), pytest.approx(sum(sizes), rel=0.01))


@pytest.mark.parametrize(
    ("world_size", "arguments", "exact"),
    [
        (4, ("--graph.kind", "full"), True),
        (4, ("--graph.kind", "full", "--overlap", "2", "--graph.gossip_steps", "2", *NOT_SAVED), True),
        (3, ("--graph.kind", "full", "--window", "1", "--dtype", "float64"), True),
        (2, ("--graph.kind", "full", "--num_clients", "5"), True),
        (2, ("--num_clients", "9", "--rounds", "4", "--algorithm", "dfedsam"), False),
        (2, ("--algorithm", "fedavg"), True),
    ],
)
def test_a_rank_keeps_what_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world_size: int, arguments: tuple[str, ...], exact: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [*SHORT, *arguments]
    world = World(0, world_size, 0, world_size, torchrun=True)
    prepared = prepare(parse(given), world, UserCode())
    assert prepared.built is not None
    rank, memory = memory_of(examine(parse(given), prepared, prepared.built, find_folder(prepared.plan), world))
    done = run(ranks(world_size, "weighing:main_and_weigh", *given), tmp_path)
    assert done.code == 0, done.err
    weight = json.loads((tmp_path / f"weight-{rank}.json").read_text())
    told = asdict(memory)
    for key in ("evaluation", "checkpoint"):  # at the end nothing is in flight any more
        taken, most = weight.pop(key), told.pop(key)
        assert taken == pytest.approx(most, rel=0.02) or (taken < most and "--overlap" in arguments)
    if not exact:  # graphs of later rounds may need more rows, or fewer
        frames, most = weight.pop("frames"), told.pop("frames")
        assert 0 < frames <= most
    assert weight == told
    assert memory.kept == sum(asdict(memory)[key] for key in ("model", "clients", "frames", "shards", "test"))


def test_what_is_in_flight_is_counted_where_graphs_send_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process: a model for each sender arrives, and one for each edge is written."""
    monkeypatch.chdir(tmp_path)
    shares = ("--graph.weights", "out-degree")  # the same for all receivers
    given = parse(["--num_clients", "6", "--rounds", "7", "--overlap", "2", *GRAPHS["any degree"], *shares])
    world = World()
    prepared = prepare(given, world, UserCode())
    assert prepared.built is not None
    found = examine(given, prepared, prepared.built, find_folder(prepared.plan), world)
    degrees = [[len(row) - 1 for row in graph.out] for graph in found.graphs if isinstance(graph, Graph)]
    pairs = list(itertools.pairwise(degrees))
    landed = max(sum(map(bool, first + second)) for first, second in pairs)
    parcels = max(sum(first + second) for first, second in pairs)
    assert parcels > sum(degrees[0]) * 2, "the first graph says too little"
    copy, (_, memory) = prepared.built.model.params.nbytes, memory_of(found)
    assert memory.checkpoint == (6 + 1 + max(landed, 6) + parcels) * copy
    assert memory.evaluation > (6 + parcels) * copy


def test_checkpoints_of_many_rounds_are_told_by_the_last_ones(tmp_path: Path) -> None:
    many = ("--rounds", "500", "--checkpoint.every", "1", "--checkpoint.keep", "0", "--overlap", "2")
    last = succeed(run(alone("--dry-run", *many), tmp_path)).splitlines()[-1]
    assert "the newest 501 are there: " in last
    assert last.endswith(" GB, by the sizes of the last 25")


def test_a_run_that_would_go_on_is_named_and_not_touched(tmp_path: Path) -> None:
    train(2, tmp_path / "a", *SHORT, "--data.partition", "iid")
    before = snapshot(tmp_path)
    text = succeed(run(alone("--dry-run", "--resume", "a", "--rounds", "5"), tmp_path))
    assert "goes on after 3 rounds in a, from a/checkpoints/round-000003\n" in text
    shown = settings_shown(text)
    assert shown["rounds"] == ("5", "asked")
    assert shown["num_clients"] == ("2", "the run")
    assert shown["data.partition"] == ("iid", "the run")
    assert " in 2 rounds\n" in text
    assert snapshot(tmp_path) == before


def test_a_job_that_is_started_again_finds_its_run(tmp_path: Path) -> None:
    launched = ("-n", "2", "--id", "job", *SHORT)
    assert run(dfl_dist("launch", *launched), tmp_path).code == 0
    before = snapshot(tmp_path)
    text = succeed(run(dfl_dist("launch", "--dry-run", *launched), tmp_path))
    assert "this job has finished its run, in runs/dfedsgpsm-digits-001: nothing is left to do\n" in text
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("--rouds", "3"),
        ("--rounds", "none"),
        ("--num_clients", "2000"),
        ("--graph.out_degree", "8"),
        ("--graph.file", "nowhere"),
        ("--backend", "nccl"),
        ("--model.name", "small_models:misfit"),
        ("--data.limit", "5000"),
        ("--resume", "nowhere"),
        ("--resume", "a"),
        ("--out", "a"),
        ("--out", "a/config.yaml/b"),
        ("--out", "a/config.yaml"),
        ("--rounds", "--dry-run"),
    ],
    ids=lambda words: " ".join(words),
)
def test_it_refuses_what_a_start_refuses(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    train(None, tmp_path / "a", "--rounds", "1", "--local.steps", "1", "--num_clients", "4")
    before = snapshot(tmp_path)
    dry = run(alone("--dry-run", *arguments), tmp_path)
    start = run(alone(*(word for word in arguments if word != "--dry-run")), tmp_path)
    assert (dry.code, start.code) == (2, 2), dry.err + start.err
    assert dry.err == start.err
    assert dry.err.count("\n") == 1
    assert dry.out == ""
    assert snapshot(tmp_path) == before


def test_user_code_that_fails_shows_its_traceback(tmp_path: Path) -> None:
    done = run(alone("--dry-run", "--data.name", "own_project:raises", "--model.name", "own_project:tiny"), tmp_path)
    assert done.code == 1
    assert done.err.count("ValueError: no such table") == 1


def test_one_of_several_hosts_meets_nobody(tmp_path: Path) -> None:
    hosts = ("--head", "127.0.0.1", "--hosts", "3", "--host", "1", "-n", "2")
    done = run(dfl_dist("launch", "--dry-run", *hosts, *SHORT), tmp_path)
    assert "6 clients on 6 ranks" in succeed(done)
    assert done.err.startswith("launch: host 1 of 3 would start 2 ranks at 127.0.0.1 and meet the others at ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--logs", "--status"])
def test_a_launch_that_would_be_refused_is(tmp_path: Path, option: str) -> None:
    (tmp_path / "file").touch()
    words = ("-n", "1", option, "file/x")
    dry, start = (run(dfl_dist("launch", *flag, *words), tmp_path) for flag in (("--dry-run",), ()))
    assert (dry.code, start.code) == (2, 2)
    assert dry.err == start.err
    assert "which cannot be made: [Errno 20] Not a directory" in dry.err
