"""`dfl-dist topology`: its table, its picture, its refusals, and how large it may get."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from launching import lines
from matplotlib.collections import LineCollection

from dfl_dist import train
from dfl_dist.commands.main import main
from dfl_dist.commands.topology.command import draw
from dfl_dist.commands.topology.study import make_study, study_settings
from dfl_dist.topology.kinds import KINDS
from dfl_dist.training.build import graph_schedule

ALL = ("random_directed", "random_symmetric", "ring", "directed_ring", "exponential", "one_peer_exponential", "full")


def table(text: str) -> dict[str, dict[str, str]]:
    """The rows of the table by the name of the graph, each by the names of the columns."""
    _, head, *rows = text.partition("\n\n")[0].splitlines()
    names = re.split(r"\s{2,}", head)
    found = [dict(zip(names, re.split(r"\s{2,}", row), strict=True)) for row in rows]
    return {row["graph"]: row for row in found}


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, str]]:
    assert main(["topology", *words]) == 0
    return table(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that refuses these arguments."""
    assert main(["topology", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_table_of_several_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    rows = shown(capsys, *ALL, "--num_clients", "16", "--parameters", "1000")
    assert list(rows) == list(ALL)
    columns = ("weights", "out-degree", "in-degree", "B", "diameter", "rounds to 1e-6", "edges/round", "bytes/round")
    facts = {kind: [row[column] for column in columns] for kind, row in rows.items()}
    assert facts["ring"] == ["metropolis", "2", "2", "1", "8", "over 100", "32", "128 kB"]
    assert facts["directed_ring"] == ["out-degree", "1", "1", "1", "15", "over 100", "16", "64.1 kB"]
    assert facts["exponential"][:5] == ["out-degree", "4", "4", "1", "4"]
    assert facts["one_peer_exponential"] == ["out-degree", "1", "1", "4", "4", "4", "16", "64.1 kB"]
    assert facts["full"] == ["metropolis", "15", "15", "1", "1", "1", "240", "962 kB"]
    assert facts["random_symmetric"][:3] == ["metropolis", "3", "3"]
    assert facts["random_directed"][:2] == ["out-degree", "3"]
    fewest, most = map(int, rows["random_directed"]["in-degree"].split("-"))
    assert fewest < 3 < most
    assert 0 < float(rows["random_directed"]["δ"]) < 1
    assert {rows[kind]["δ"] for kind in ALL[1:]} == {"1"}
    assert [rows[kind]["q"] for kind in ("one_peer_exponential", "full")] == ["0", "0"]
    assert 0.3 < float(rows["random_directed"]["q"]) < 0.6 < float(rows["ring"]["q"]) < 1


def test_settings_are_those_of_a_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(
        "{algorithm: dfedsam, num_clients: 12, rank0: coordinator, graph: {out_degree: 4}, dtype: float64}"
    )
    assert main(["topology", "--config", str(config), "--rounds=7", "--seed", "3", "--parameters=10"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("12 clients, 7 rounds, seed 3, a model of 10 parameters in float64\n")
    (row,) = table(out).values()
    assert (row["graph"], row["out-degree"], row["bytes/round"]) == ("random_symmetric", "4", "4.22 kB")
    plain = shown(capsys, "ring", "--graph.weights", "out-degree", "--parameters", "8")
    assert (plain["ring"]["weights"], plain["ring"]["bytes/round"]) == ("out-degree", "640 B")
    twice = shown(capsys, "ring", "--graph.gossip_steps", "2", "--parameters", "8")
    assert twice["ring"]["bytes/round"] == "1.28 kB"
    assert float(twice["ring"]["q"]) == pytest.approx(float(plain["ring"]["q"]) ** 2, rel=0.01)
    late = shown(capsys, "ring", "--overlap", "2")
    assert float(late["ring"]["q"]) > float(plain["ring"]["q"])
    assert float(late["ring"]["δ"]) < 1
    frozen = ("--graph.static", "true", "--graph.out_degree", "1", "--num_clients", "30")
    row = shown(capsys, "random_directed", *frozen)["random_directed"]
    assert (row["B"], row["diameter"], row["rounds to 1e-6"]) == ("never", "never", "over 100")


def test_bytes_are_those_that_a_run_sends(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    settings = {"num_clients": 5, "graph.kind": "ring", "graph.gossip_steps": 3, "rounds": 1}
    done = train({**settings, "local.steps": 1, "report": False, "out": str(tmp_path / "run")})
    (metrics,) = lines(done.folder / "metrics.jsonl")
    words = [f"--{key}={value}" for key, value in settings.items()]
    capsys.readouterr()
    assert metrics["bytes_sent"] == 5 * 2 * (55210 * 4 + 8) * 3
    assert shown(capsys, *words)["ring"]["bytes/round"] == f"{metrics['bytes_sent'] / 1e6:.3g} MB"


def test_graphs_of_a_file_beside_others(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "graphs"
    halves = [{"out": [[1], [0], [3], [2]]}, {"out": [[2], [3], [0], [1]], "weights": "metropolis"}]
    path.write_text("\n".join(map(json.dumps, halves)))
    rows = shown(capsys, "file", "ring", "--graph.file", str(path), "--num_clients", "4")
    assert list(rows) == ["file", "ring"]
    row = rows["file"]
    assert (row["weights"], row["B"], row["diameter"], row["rounds to 1e-6"]) == (
        "metropolis/out-degree",
        "2",
        "2",
        "2",
    )
    assert list(shown(capsys, "--graph.file", str(path), "--num_clients", "4")) == ["file"]


def test_by_loss_says_that_it_has_no_losses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", "by_loss"]) == 0
    assert "by_loss: there are no losses without training" in capsys.readouterr().out


@pytest.mark.parametrize("num_clients", ["1", "2", "3"])
def test_few_clients(capsys: pytest.CaptureFixture[str], tmp_path: Path, num_clients: str) -> None:
    drawn = [name for name, kind in KINDS.items() if kind.uses != "file" and not kind.is_server]
    rows = shown(capsys, *drawn, "--num_clients", num_clients, "--plot", str(tmp_path / "few.png"))
    assert list(rows) == drawn
    assert all(row["B"] == "1" for kind, row in rows.items() if kind not in ("erdos_renyi", "one_peer_exponential"))


@pytest.mark.parametrize("kind", ["random_directed", "random_symmetric", "ring", "exponential"])
def test_ten_thousand_clients(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    row = shown(capsys, kind, "--num_clients", "10000", "--parameters", "1000000", "--rounds", "20")[kind]
    exact = {"ring": ("1", "5000", "20,000"), "exponential": ("1", "11", "140,000")}
    if kind in exact:
        assert (row["B"], row["diameter"], row["edges/round"]) == exact[kind]
    else:
        assert 1 <= int(row["B"]) < 10
        assert 4 < int(row["diameter"]) < 30
        assert (row["edges/round"], row["bytes/round"]) == ("30,000", "120 GB")
        assert 0.4 < float(row["q"]) < 0.7


@pytest.mark.parametrize("num_clients", ["12", "100"])
def test_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path, num_clients: str) -> None:
    from matplotlib.image import imread

    def picture(name: str, round_idx: str) -> np.ndarray:
        path = tmp_path / name
        words = ("--num_clients", num_clients, "--plot", str(path), "--round", round_idx)
        shown(capsys, "random_directed", "ring", *words)
        assert path.read_bytes().startswith(b"\x89PNG")
        return imread(path)[60:, :, :3]  # without the titles, which name the round

    first, same, other = picture("a.png", "5"), picture("b.PNG", "5"), picture("c.png", "6")
    height, width, _ = first.shape
    assert height > 500
    assert width > 1000
    halves = np.split(first, [width // 2], axis=1)
    assert all(0.005 < (half.min(axis=2) < 0.9).mean() < 0.5 for half in halves), "something is drawn in both halves"
    assert (first == same).all()
    assert (first != other)[:, : width // 3].any(), "another round, another graph"
    assert (first == other)[:, width // 2 :].all(), "and the same averaging"


@pytest.mark.parametrize("kinds", [ALL[:1], ALL[:2], ALL[:3], ALL], ids=len)
def test_every_graph_that_is_asked_for_is_drawn(kinds: tuple[str, ...]) -> None:
    studies = []
    for kind in kinds:
        config = study_settings({"num_clients": 12, "rounds": 3}, kind)
        studies.append(make_study(config, graph_schedule(config)))
    figure = draw(studies, 2)
    figure.draw_without_rendering()
    *panels, curves = [axes for axes in figure.axes if axes.axison or axes.get_title()]
    edges = {found.config.graph.kind: found.rounds[1].edges for found in studies}
    assert [axes.get_title().split("\n") for axes in panels] == [
        [kind, f"{len(edges[kind].senders)} edges"] for kind in kinds
    ]
    for kind, axes in zip(kinds, panels, strict=True):
        both_ways = sum(len(lines.get_segments()) for lines in axes.collections if isinstance(lines, LineCollection))
        assert 2 * both_ways + len(axes.patches) == len(edges[kind].senders), kind
    assert [text.get_text() for text in curves.get_legend().get_texts()] == list(kinds)
    boxes = [axes.get_window_extent() for axes in (*panels, curves)]
    assert not any(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[:place])


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: dfl-dist topology [KIND ...]")
    assert all(
        word in out for word in ("--plot", "--round", "--parameters", "--graph.out_degree", "one_peer_exponential")
    )
    assert main(["--help"]) == 0
    assert "topology" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["rings"], "graph.kind: given rings, allowed: "),
        (["rings"], "(did you mean ring?)"),
        (["server"], "a server has no graph"),
        (["--algorithm", "fedavg"], "graph.kind: given server, allowed: random_directed"),
        (
            ["full", "--num_clients", "10000"],
            "full of 10000 clients, 99,990,000 edges per round, allowed: at most 5,000,000",
        ),
        (["random_directed", "--num_clients", "10000", "--rounds", "2000"], "rounds: given 2000 of random_directed"),
        (["--num_clientss", "4"], "did you mean num_clients?"),
        (["--num_clients"], "num_clients: given nothing"),
        (["file"], "graph.file: given null"),
        (["random_directed", "--graph.weights", "metropolis"], "graph.weights: given metropolis"),
        (["--graph.out_degree", "8"], "graph.out_degree: given 8, allowed: 0 to 7"),
        (["--parameters", "many"], "parameters: given many, allowed: a whole number, 1 or more"),
        (["--parameters", "0"], "parameters: given 0"),
        (["--round", "101"], "round: given 101, allowed: a whole number, 1 to 100"),
        (["--plot"], "plot: given nothing"),
        (["--plot", "--round", "3"], "plot: given nothing"),
        (["--plot", "graph.txt"], "plot: given graph.txt, allowed: a file that ends in one of "),
        (["--plot", "/nowhere/graph.png"], "plot: given /nowhere/graph.png, allowed: a file that can be written"),
        (["--model.name", "nowhere:net"], "model.name: given nowhere:net, which cannot be imported"),
    ],
)
def test_mistakes_are_told_in_one_line(capsys: pytest.CaptureFixture[str], words: list[str], complaint: str) -> None:
    assert complaint in refused(capsys, *words)


def test_picture_without_matplotlib(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install 'dfl-dist[plot]'" in refused(capsys, "--plot", "graph.png")
    assert list(shown(capsys, "ring")) == ["ring"], "the table needs none"
