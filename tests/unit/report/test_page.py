"""report.html as text: what is in it, and that nothing in a run folder can break it."""

import base64
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import lines, train
from run_folders import lead, read_groups, write_run

from dfl_dist.config.schema import SETTINGS
from dfl_dist.report.measures import MEASURES
from dfl_dist.report.page import render, write_page
from dfl_dist.report.page_graphs import pack_graphs, push_weights, read_graphs
from dfl_dist.report.read import read_run
from dfl_dist.run_folder.metrics import CURVES, METRICS

CLASSES = {"classes": ["cat", "dog"], "counts": [[3, 0], [1, 2]]}


def data_of(page: str) -> Any:
    """What the page's scripts read."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def page_of(*folders: Path) -> str:
    return render(read_groups(*folders))


def headline(page: str) -> str:
    found = re.search(r"<title>(.*?)</title>", page)
    assert found
    return found[1]


def write_graphs(folder: Path, graphs: list[dict[str, Any]]) -> None:
    with (folder / "topology.jsonl").open("w") as file:
        for round_idx, graph in enumerate(graphs):
            file.write(json.dumps({"round": round_idx, "weights": "out-degree", **graph}) + "\n")


def unpack_graph(text: str) -> list[list[int]]:
    """The out-neighbours of each client, as the page's scripts read them."""
    flat, rows, at = np.frombuffer(base64.b64decode(text), "<u2").tolist(), [], 0
    while at < len(flat):
        rows.append(flat[at + 1 : at + 1 + flat[at]])
        at += 1 + flat[at]
    return rows


# What a run records.

WAYS = {"plain": [], "overlap and gossip": ["--overlap", "1", "--graph.gossip_steps", "2"]}


@pytest.fixture(scope="module", params=WAYS)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of 5 rounds: the second, fourth and fifth are evaluated, the clients in the fourth and fifth."""
    arguments = ["--num_clients", "6", "--rounds", "5", "--local.steps", "1", *WAYS[request.param]]
    evaluated = ["--eval.every", "2", "--eval.clients_every", "4"]
    return train(1, tmp_path_factory.mktemp("real") / "run", *arguments, *evaluated)


def test_every_key_that_a_run_records_is_a_row_of_the_table(recorded: Path) -> None:
    every = {key for key, metric in METRICS.items() if metric.rounds == "every"}
    evaluated = {key for key, metric in METRICS.items() if metric.rounds == "evaluated"}
    expected = [every, every | evaluated, every, set(METRICS), set(METRICS)]
    assert [set(line) for line in lines(recorded / "metrics.jsonl")] == expected


def test_push_weights_are_those_that_a_run_recorded(recorded: Path) -> None:
    run = read_run(recorded)
    weights = push_weights(run, read_graphs(run.graphs(), 6))
    assert len(weights) == 5
    for line, found in zip(lines(recorded / "metrics.jsonl"), weights, strict=True):
        expected = (line["push_weight_min"], line["push_weight_max"])
        assert (min(found), max(found)) == pytest.approx(expected, rel=1e-9), f"round {line['round']}"
    packed = pack_graphs(run, 1_000_000)
    assert packed["trouble"] is None
    shown = np.frombuffer(base64.b64decode(packed["push_weights"]), "<f4").reshape(5, 6)
    np.testing.assert_allclose(shown, weights, rtol=1e-6)
    for step, line in zip(packed["steps"], lines(recorded / "topology.jsonl"), strict=True):
        others = [[peer for peer in row if peer != client] for client, row in enumerate(line["out"])]
        assert unpack_graph(packed["graphs"][step]) == others


def test_push_weights_stay_one_with_metropolis_weights(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [0.5], num_clients=3)
    write_graphs(folder, [{"out": [[0, 1], [0, 1, 2], [1, 2]], "weights": "metropolis"}])
    run = read_run(folder)
    assert push_weights(run, read_graphs(run.graphs(), 3)) == [pytest.approx([1.0, 1.0, 1.0])]


def test_weights_that_do_not_follow_from_the_graphs_are_owned_up_to(tmp_path: Path) -> None:
    even = {"push_weight_min": 1.0, "push_weight_max": 1.0}
    folder = write_run(tmp_path / "run", [0.5, 0.5, 0.5], [even, even, even | {"push_weight_max": 1.1}], num_clients=2)
    write_graphs(folder, [{"out": [[0, 1], [0, 1]]}] * 3)
    assert "From round 3 on" in pack_graphs(read_run(folder), 100_000)["trouble"]


def test_of_a_server_those_that_trained(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [0.5, 0.5], algorithm="fedavg", num_clients=5)
    write_graphs(folder, [{"out": None, "clients": [1, 4], "weights": "server"}, {"out": None, "clients": [0]}])
    packed = data_of(page_of(folder))["runs"][0]["graph"]
    assert packed["server"]
    assert [unpack_graph(packed["graphs"][step]) for step in packed["steps"]] == [[[1, 4]], [[0]]]


# What the page says.


def test_a_run_in_a_sentence_and_in_numbers(tmp_path: Path) -> None:
    scores = {"client_accuracy_mean": 0.5, "client_accuracy_min": 0.25, "client_accuracy_max": 0.75}
    folder = write_run(tmp_path / "run", [0.5, None, 0.9, 0.875], [{}, {}, scores], num_clients=3)
    lead(folder, world_size=2, hosts=["a", "a"], versions={"x": "1"}, finished_after=4)
    (folder / "classes.json").write_text(json.dumps(CLASSES))
    page = page_of(folder)
    assert headline(page) == "DFedSGPSM reached 87.50 % on digits with 3 clients after 4 rounds"
    data = data_of(page)
    run = data["runs"][0]
    assert run["state"] == {"tone": "good", "text": "finished, 4 rounds"}
    tiles = {tile["name"]: tile for tile in run["tiles"]}
    best = {"label": "best accuracy", "form": "percent", "value": 0.9, "detail": ["after round 3"]}
    assert tiles["best_accuracy"] == {"name": "best_accuracy", **best}
    assert tiles["client_accuracy_mean"]["detail"] == ["{} to {}", 0.25, 0.75]
    assert (tiles["bytes_sent"]["value"], tiles["bytes_sent"]["detail"]) == (2_000_000, ["{} per round", 500_000])
    assert ["Clients", "3 on 2 ranks"] in run["about"]
    found = [["world_size", "2"], ["hosts", "a × 2"], ["versions: x", "1"], ["finished_after", "4"]]
    assert run["environment"] == found
    assert data["classes"][run["classes"]]["counts"] == CLASSES["counts"]
    settings = {key: run["settings"][place] for place, (key, _, _) in enumerate(data["settings"])}
    assert settings["num_clients"] == ["3", "3"]
    accuracy = data["groups"][0]["curves"]["test_accuracy"]
    assert (accuracy["round"], accuracy["mean"]) == ([1, 3, 4], [0.5, 0.9, 0.875])
    assert (accuracy["mb"], accuracy["s"]) == ([0.5, 1.5, 2.0], [0.25, 0.75, 1.0])


def test_groups_over_their_seeds(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / f"{method}-{seed}", [0.5, accuracy], algorithm=method, seed=seed, rounds=2)
        for method, seed, accuracy in [("sgp", 0, 0.5), ("sgp", 1, 0.6), ("osgp", 0, 0.7), ("osgp", 1, 0.9)]
    ]
    page = page_of(*folders)
    expected = "2 methods, 4 runs on digits: OSGP reached the highest mean accuracy, 80.00 ± 14.14 % over 2 seeds"
    assert headline(page) == expected
    data = data_of(page)
    assert data["columns"][0] == "final accuracy,\N{NO-BREAK SPACE}%"
    final = [group["scores"][0] for group in data["groups"]]
    assert [score["mean"] for score in final] == pytest.approx([0.55, 0.8])
    assert [score["std"] for score in final] == pytest.approx([0.05 * 2**0.5, 0.1 * 2**0.5])
    assert data["groups"][1]["curves"]["test_accuracy"]["std"][1] == pytest.approx(0.141421)
    assert [run["group"] for run in data["runs"]] == [0, 0, 1, 1]


def test_charts_and_columns_follow_from_the_tables(tmp_path: Path) -> None:
    """What is drawn has points for every metric that it names, whether there is one group or several."""
    runs = [write_run(tmp_path / method, [0.5], algorithm=method) for method in ("sgp", "osgp")]
    for folders in (runs[:1], runs):
        data = data_of(page_of(*folders))
        drawn = [line for chart in data["charts"] for line in chart["lines"]]
        assert sorted(line["metrics"][0] for line in drawn) == sorted(CURVES)
        assert all(set(line["metrics"]) <= set(group["curves"]) for group in data["groups"] for line in drawn)
    assert [chart["id"] for chart in data_of(page_of(runs[0]))["charts"]] == [
        "accuracy",
        "loss",
        "consensus",
        "weights",
    ]
    columns = sum(bool(row.column) and not row.needs_target and not row.is_optional for row in MEASURES.values())
    assert {len(group["scores"]) for group in data["groups"]} == {len(data["columns"])} == {columns}


def test_a_graph_is_told_by_what_shapes_it(tmp_path: Path) -> None:
    told = {
        "random_directed": "random directed, 3 out-neighbours per client, 2 exchanges per round",
        "ring": "ring, 2 exchanges per round",
    }
    for kind, words in told.items():
        folder = write_run(tmp_path / kind, [0.5], graph__kind=kind, graph__gossip_steps=2)
        assert dict(data_of(page_of(folder))["runs"][0]["about"])["Graph"] == words
    server = write_run(tmp_path / "server", [0.5], algorithm="fedavg", participation=0.25)
    told_server = dict(data_of(page_of(server))["runs"][0]["about"])["Graph"]
    assert told_server == "none: a server averages 25 % of the clients each round"


def test_help_has_no_names_to_be_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = dataclasses.replace(SETTINGS["model.name"], help="model ({models}), or package.module:function")
    monkeypatch.setitem(SETTINGS, "model.name", changed)
    settings = data_of(page_of(write_run(tmp_path / "run", [0.5])))["settings"]
    assert ["model.name", "auto", "model, or package.module:function"] in settings


def test_runs_of_one_seed_share_their_table_of_classes(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / method, [0.5], algorithm=method) for method in ("sgp", "osgp", "asyng")]
    for folder, counts in zip(folders, ([[3, 0]], [[3, 0]], [[2, 1]]), strict=True):
        (folder / "classes.json").write_text(json.dumps(CLASSES | {"counts": counts}))
    data = data_of(page_of(*folders))
    assert [run["classes"] for run in data["runs"]] == [0, 0, 1]
    assert [table["counts"] for table in data["classes"]] == [[[3, 0]], [[2, 1]]]


# Several partitions.


@pytest.fixture
def partitions(tmp_path: Path) -> list[Path]:
    """Two methods on three partitions, in an order of nobody's; one of them diverged on the last."""
    found = []
    for part, settings in {"iid": {"data__partition": "iid"}, "b": {"data__alpha": 0.6}, "a": {}}.items():
        for method, accuracy in {"osgp": 0.6, "dfedsgpsm": 0.7}.items():
            diverged = [{}, {"train_loss": None}] if (part, method) == ("b", "osgp") else []
            folder = tmp_path / f"{part}-{method}"
            found.append(write_run(folder, [0.5, accuracy], diverged, algorithm=method, rounds=2, **settings))
    return found


def test_methods_by_partition(partitions: list[Path]) -> None:
    page = page_of(*partitions)
    said = "2 methods, 6 runs on digits, 3 partitions: DFedSGPSM reached the highest mean accuracy on all 3 of them"
    assert headline(page) == said
    data = data_of(page)
    assert data["grid"]["columns"] == [
        {"data_set": "digits", "partition": name} for name in ("Dirichlet 0.3", "Dirichlet 0.6", "IID")
    ]
    rows = {row["label"]: row["cells"] for row in data["grid"]["rows"]}
    assert list(rows) == ["OSGP", "DFedSGPSM"]
    assert [cell["mean"] for cell in rows["OSGP"]] == [0.6, None, 0.6]
    assert [cell["diverged"] for cell in rows["OSGP"]] == [False, True, False]
    assert [cell["place"] for cell in rows["DFedSGPSM"]] == [1, 0, 1]
    assert "Test accuracy (%) of the mean model after 2 rounds" in data["grid"]["caption"]
    assert data["states"] == [{"tone": "good", "text": "5 finished"}, {"tone": "bad", "text": "1 diverged"}]
    placed = {group["label"]: (group["name"], group["row"], group["column"]) for group in data["groups"]}
    assert placed["OSGP, IID"] == ("OSGP", 0, 2)
    assert placed["DFedSGPSM, Dirichlet 0.6"] == ("DFedSGPSM", 1, 1)
    numbers = {group["label"]: group["scores"][0]["text"] for group in data["groups"]}
    assert (numbers["OSGP, Dirichlet 0.6"], numbers["OSGP, IID"]) == ("diverged", "60.00")


def test_who_is_best_is_said_of_what_is_there(tmp_path: Path, partitions: list[Path]) -> None:
    assert headline(page_of(*partitions[::2])).endswith(
        "OSGP, 3 runs on digits, 3 partitions: mean accuracy from 60.00 to 60.00 %"
    )
    alone = write_run(tmp_path / "other", [0.5, 0.9], algorithm="osgp", rounds=2, data__alpha=0.1)
    assert headline(page_of(*partitions, alone)).endswith("reached the highest mean accuracy on 3 of them")
    tied = [write_run(tmp_path / f"rho-{rho}", [0.5], local__rho=rho, rounds=1) for rho in (0.0, 0.2)]
    said = "DFedSGPSM with 2 settings, 2 runs on digits: no SAM and SAM radius 0.2 reached the highest mean accuracy"
    assert headline(page_of(*tied)) == f"{said}, 50.00 % over 1 seed"
    young = [write_run(tmp_path / f"young-{seed}", [None], seed=seed) for seed in (0, 1)]
    assert headline(page_of(*young)) == "DFedSGPSM, 2 runs on digits: not evaluated yet"
    first = write_run(tmp_path / "first", [0.5], algorithm="osgp", rounds=1)
    assert headline(page_of(*young, first)) == "2 methods, 3 runs on digits: not all evaluated yet"


def test_runs_that_cannot_be_compared_are_only_counted(tmp_path: Path) -> None:
    def run(accuracy: float | None, rounds: int = 1, **settings: Any) -> Path:
        return write_run(tmp_path / str(len(list(tmp_path.iterdir()))), [accuracy] * rounds, rounds=rounds, **settings)

    mixed = [run(0.5), run(0.6, rounds=3), run(0.7, num_clients=4), run(0.8, local__rho=0.05)]
    assert headline(page_of(*mixed)) == "4 runs of DFedSGPSM on digits"
    elsewhere = run(0.9, data__name="mnist")
    assert headline(page_of(*mixed, elsewhere)) == "5 runs of DFedSGPSM on digits and MNIST"
    other = run(0.9, algorithm="osgp", data__name="mnist", data__alpha=0.6)
    assert headline(page_of(mixed[0], other)) == "2 runs of DFedSGPSM and OSGP on digits and MNIST", "no column of both"
    young = [run(None, num_clients=4, local__rho=0.05), run(None, num_clients=6, local__rho=0.3)]
    assert headline(page_of(*young)) == "2 runs of DFedSGPSM on digits: not evaluated yet"


def test_data_sets_are_no_partitions(tmp_path: Path) -> None:
    won = {("sgp", "digits"): 0.5, ("osgp", "digits"): 0.6, ("sgp", "mnist"): 0.9, ("osgp", "mnist"): 0.95}
    folders = {
        (method, name): write_run(tmp_path / f"{method}-{name}", [score], rounds=1, algorithm=method, data__name=name)
        for (method, name), score in won.items()
    }
    what = "2 methods, 4 runs on digits and MNIST"
    said = headline(page_of(*folders.values()))
    assert said == f"{what}: OSGP reached the highest mean accuracy on both of them"
    more = write_run(tmp_path / "more", [0.5], rounds=1, algorithm="sgp", data__partition="iid")
    said = headline(page_of(*folders.values(), more))
    assert said.endswith("on digits and MNIST, 3 partitions: OSGP reached the highest mean accuracy on 2 of them")
    said = headline(page_of(*[folders[cell] for cell in won if cell != ("osgp", "digits")], more))
    assert said.endswith("OSGP reached the highest mean accuracy on MNIST")
    metrics = folders["sgp", "mnist"] / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("0.9", "0.99"))
    said = headline(page_of(*folders.values()))
    assert said == f"{what}: SGP and OSGP each reached the highest mean accuracy on 1 of them"


def test_what_all_runs_have_in_common_is_said_once(partitions: list[Path]) -> None:
    common = dict(data_of(page_of(*partitions))["common"])
    assert common["Clients"] == "8"
    assert not {"Method", "Data", "Folder"} & set(common)


def test_no_tile_is_without_its_number(tmp_path: Path) -> None:
    (run,) = data_of(page_of(write_run(tmp_path / "run", [0.5])))["runs"]
    assert "client_accuracy_mean" not in {tile["name"] for tile in run["tiles"]}, "the clients were not evaluated"
    assert all(tile["label"] and tile["value"] is not None and tile["detail"][0] for tile in run["tiles"])


# What must not break it.


def test_what_a_run_folder_says_is_never_markup(tmp_path: Path) -> None:
    plain = page_of(write_run(tmp_path / "plain", [0.5]))
    evil = "</script><script>alert(1)</script><!-- <b>&x"
    folder = write_run(tmp_path / "<b>&x", [0.5], data__name="<i>&:load", model__name=evil)
    (folder / "classes.json").write_text(json.dumps({"classes": [evil], "counts": [[1]]}))
    (folder / "environment.json").write_text(json.dumps({evil: evil}))
    page = page_of(folder)
    assert "on &lt;i&gt;&amp;:load with" in headline(page)
    for tag in ("<script", "</script", "<!--", "<b>", "<i>"):
        assert page.count(tag) == plain.count(tag), tag
    data = data_of(page)
    assert data["runs"][0]["name"] == "<b>&x"
    assert [evil, evil] in data["runs"][0]["settings"]
    assert data["classes"][0]["names"] == [evil]
    assert data["runs"][0]["environment"] == [[evil, evil]]


def test_the_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "run", [0.5]))
    assert re.findall(r'(?:src|href)\s*=\s*"([^"]*)"', page) == ["data:,"]
    assert set(re.findall(r"https?://[\w./]+", page)) == {"http://www.w3.org/2000/svg"}, "a name, fetched by nobody"
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|\bimport\b *[({\"]", page)
    assert "default-src 'none'" in page
    assert "{{" not in page


def test_it_is_written_whole_over_an_older_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [0.5])
    (folder / "report.html").write_text("older")
    write_page(read_groups(folder), folder / "report.html")
    assert (folder / "report.html").read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


ODD = {
    "nothing recorded": ([], {}, "0 of 4 rounds done, not evaluated yet"),
    "not evaluated": ([None, None], {}, "2 of 4 rounds done, not evaluated yet"),
    "unfinished": ([0.5, 0.75], {}, "reached 75.00 % on digits with 8 clients after 2 of 4 rounds"),
    "evaluated early": ([0.5, None], {}, "after 2 of 4 rounds, last evaluated after round 1"),
    "one round": ([0.5], {}, "reached 50.00 %"),
    "diverged": (
        [0.5, 0.1],
        {"metrics.jsonl": '{"round": 0, "train_loss": null, "test_accuracy": null}\n'},
        "diverged",
    ),
    "strange numbers": ([], {"metrics.jsonl": '{"round": 0, "bytes_sent": "x", "train_loss": 1e999}\n'}, "diverged"),
    "damaged files": (
        [0.5],
        {"topology.jsonl": '{"round": 0, "out": 3}\n', "classes.json": '{"classes": 1, "counts": [[]]}'},
        "reached",
    ),
    "uneven classes": ([0.5], {"classes.json": '{"classes": ["a", "b"], "counts": [[1, 2], [1]]}'}, "reached"),
    "environment no mapping": ([0.5], {"environment.json": "[1]"}, "reached"),
    "unknown weights": ([0.5], {"topology.jsonl": '{"round": 0, "out": [[0]], "weights": "odd"}\n'}, "reached"),
    "nobody there": ([0.5], {"topology.jsonl": '{"round": 0, "out": [[9]], "weights": "out-degree"}\n'}, "reached"),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_runs_have_a_page_that_says_so(tmp_path: Path, odd: str) -> None:
    accuracies, files, said = ODD[odd]
    folder = write_run(tmp_path / "run", accuracies)
    for name, content in files.items():
        (folder / name).write_text(content)
    page = page_of(folder)
    assert said in headline(page)
    run = data_of(page)["runs"][0]
    assert "topology.jsonl is missing or holds no round yet" in run["graph"]["trouble"]
    assert run["classes"] is None
    assert run["environment"] == []


def test_stopped_early_is_told_from_not_finished(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [0.5, 0.5])
    assert data_of(page_of(folder))["runs"][0]["state"]["text"] == "not finished, 2 of 4 rounds"
    (folder / "environment.json").write_text('{"finished_after": 2}')
    assert data_of(page_of(folder))["runs"][0]["state"]["text"] == "stopped early, 2 of 4 rounds"
    lead(write_run(tmp_path / "full", [0.5] * 4))  # all rounds are recorded, and then the disk is full
    state = {"tone": "open", "text": "not finished, 4 of 4 rounds"}
    assert data_of(page_of(tmp_path / "full"))["runs"][0]["state"] == state
    (folder / "environment.json").write_text('{"finished_after": 2, "ended_by": "stop.target 0.5"}')
    state = {"tone": "good", "text": "finished by stop.target 0.5, 2 of 4 rounds"}
    assert data_of(page_of(folder))["runs"][0]["state"] == state


# How large it gets.


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 clients with 10 out-neighbours, another graph in each of 300 rounds, and 100 classes."""
    folder = write_run(tmp_path_factory.mktemp("large") / "run", [0.5] * 300, num_clients=100, rounds=300)
    rng = np.random.default_rng(0)
    ahead = [rng.permuted(np.arange(1, 100))[:10] for _ in range(300)]
    write_graphs(folder, [{"out": ((np.arange(100)[:, None] + some) % 100).tolist()} for some in ahead])
    counts = rng.poisson(5, (100, 100)).tolist()
    (folder / "classes.json").write_text(json.dumps({"classes": [f"class {i}" for i in range(100)], "counts": counts}))
    return folder


def test_a_large_run_is_shown_whole_and_many_in_part(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_of(large)
    assert len(page) < 2_000_000
    whole = data_of(page)["runs"][0]["graph"]
    assert whole["rounds"] == list(range(300))
    monkeypatch.setattr("dfl_dist.report.page.GRAPH_CHARS", 100_000)
    page = page_of(large)
    assert len(page) < 350_000
    part = data_of(page)["runs"][0]["graph"]
    assert sum(map(len, [*part["graphs"], part["push_weights"]])) <= 100_000
    assert 20 < len(part["rounds"]) < 40
    assert (part["rounds"][0], part["rounds"][-1], part["recorded"]) == (0, 299, 300)
    assert set(np.diff(part["rounds"])) <= {299 // (len(part["rounds"]) - 1), 299 // (len(part["rounds"]) - 1) + 1}
    where = whole["rounds"].index(part["rounds"][7])
    assert unpack_graph(part["graphs"][part["steps"][7]]) == unpack_graph(whole["graphs"][whole["steps"][where]])


def test_a_graph_that_comes_again_is_kept_once(large: Path, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [0.5] * 60, num_clients=100, rounds=60)
    write_graphs(folder, [{"out": line["out"]} for line in read_run(large).graphs()[:3]] * 20)
    packed = pack_graphs(read_run(folder), 1_000_000)
    assert len(packed["graphs"]) == 3
    assert packed["steps"] == [0, 1, 2] * 20


def test_curves_and_classes_are_thinned_too(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [0.5] * 2000, rounds=2000)
    (folder / "classes.json").write_text(json.dumps({"classes": ["a", "b"], "counts": [[1, 2]] * 1000}))
    data = data_of(page_of(folder))
    curve = data["groups"][0]["curves"]["test_accuracy"]
    assert (len(curve["round"]), curve["of"], curve["round"][0], curve["round"][-1]) == (500, 2000, 1, 2000)
    assert curve["mb"][-1] == 1000.0, "summed over all rounds, not over those shown"
    table = data["classes"][0]
    assert (len(table["clients"]), table["of"], table["clients"][-1]) == (400, 1000, 999)


def test_a_target_is_on_the_page(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"seed-{seed}", [0.5, 0.8, 0.9], seed=seed) for seed in (0, 1)]
    data = data_of(render(read_groups(*runs), target=0.75))
    assert data["columns"][-1] == "rounds to 75 %"
    assert [group["scores"][-1]["mean"] for group in data["groups"]] == [2]
    tiles = [run["tiles"][-1] for run in data["runs"]]
    assert [(tile["label"], tile["value"]) for tile in tiles] == [("rounds to 75 %", 2)] * 2
    assert "rounds to" not in data_of(page_of(*runs))["columns"][-1]


def test_what_part_of_the_data_was_used_is_told(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [0.5], **{"data.limit": 2000, "data.augment": True, "data.partition": "shards"})
    (told,) = data_of(page_of(run))["runs"]
    shown = (
        "digits, the first 2,000 training samples, cropped and mirrored by chance, split by label, 2 classes per client"
    )
    assert dict(told["about"])["Data"] == f"{shown} asked for"
