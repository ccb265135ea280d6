"""The distributed run on real ranks equals the NumPy simulation of the same equations."""

import json
from pathlib import Path

import numpy as np
import pytest
from launching import client_states, lines, train
from oracle import NO_MISTAKE, Mistake, simulate

COMMON = (
    *("--model.name", "small_models:softmax", "--data.alpha", "1", "--seed", "7"),
    *("--checkpoint.every", "5", "--checkpoint.keep", "0"),
    *("--local.epochs", "2", "--local.batch_size", "40", "--local.lr", "0.2"),
)

# Out-degrees from 0 to 4. In the first graph client 1 pushes to nobody and nobody pushes to client 3; in the second
# client 4 does neither; in the third nobody pushes to client 0. A client that were never pushed to would end with w
# near 0 and steps lr/w so large that rounding alone decides where it goes.
IRREGULAR = [
    [[1, 2], [], [0, 1, 4], [0, 1, 2, 4], [0]],
    [[3], [0, 2, 3], [1], [1, 2], []],
    [[4, 3], [3], [3, 4], [2], [1, 2, 3]],
]


def compare(folder: Path, rounds: int, mistake: Mistake = NO_MISTAKE) -> float:
    """The largest difference between the run and the simulation, over all x and w."""
    X, w = simulate(folder, rounds, mistake)
    states = client_states(folder, rounds)
    assert len(states) == len(X)
    return max(max(np.abs(state["x"].numpy() - X[i]).max(), abs(state["w"] - w[i])) for i, state in enumerate(states))


def graph_file(folder: Path) -> Path:
    path = folder / "graphs.jsonl"
    path.write_text("".join(json.dumps({"out": out}) + "\n" for out in IRREGULAR))
    return path


@pytest.mark.parametrize(
    ("world_size", "arguments"),
    [
        pytest.param(4, ["--graph.out_degree", "2"], id="4 ranks x 1 client"),
        pytest.param(2, ["--num_clients", "6", "--graph.out_degree", "2"], id="2 ranks x 3 clients"),
        pytest.param(3, ["--num_clients", "5", "--rank0", "coordinator"], id="coordinator, 2 ranks x 2 and 3 clients"),
        pytest.param(4, ["--local.step", "z", "--local.clip_norm", "0.5", "--local.weight_decay", "0.01"], id="step z"),
        pytest.param(
            3, ["--algorithm", "sgp", "--local.epochs", "null", "--local.steps", "7"], id="plain gradient, steps"
        ),
        pytest.param(4, ["--window", "1", "--local.weight_decay", "0.01", "--local.batch_size", "0"], id="window 1"),
    ],
)
def test_run_equals_simulation(tmp_path: Path, world_size: int, arguments: list[str]) -> None:
    folder = train(world_size, tmp_path / "run", "--rounds", "10", "--dtype", "float64", *COMMON, *arguments)
    assert compare(folder, 10) < 1e-9


@pytest.mark.parametrize("world_size", [5, 2])
def test_irregular_graphs_with_isolated_and_unheard_clients(tmp_path: Path, world_size: int) -> None:
    graphs = graph_file(tmp_path)
    arguments = ("--num_clients", "5", "--graph.kind", "file", "--graph.file", str(graphs), "--dtype", "float64")
    folder = train(world_size, tmp_path / "run", "--rounds", "10", *COMMON, *arguments)
    assert compare(folder, 10) < 1e-9
    w = [state["w"] for state in client_states(folder, 10)]
    assert max(w) / min(w) > 2, "the weights must differ for this to prove anything"
    assert lines(folder / "topology.jsonl")[3]["out"] == [[0, 1, 2], [1], [0, 1, 2, 4], [0, 1, 2, 3, 4], [0, 4]]


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(Mistake(ascend_sign=-1), id="descends before the second gradient"),
        pytest.param(Mistake(descend_sign=-1), id="climbs"),
        pytest.param(Mistake(ignore_w=True), id="gradient at x instead of x/w"),
        pytest.param(Mistake(freeze_w=True), id="w never transmitted"),
        pytest.param(Mistake(transpose=True), id="P transposed"),
        pytest.param(Mistake(keep_momentum=True), id="momentum not reset"),
    ],
)
def test_a_wrong_simulation_differs(irregular_run: Path, mistake: Mistake) -> None:
    assert compare(irregular_run, 10) < 1e-9
    assert compare(irregular_run, 10, mistake) > 1e-3


@pytest.fixture(scope="module")
def irregular_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("oracle")
    arguments = ("--num_clients", "5", "--graph.file", str(graph_file(folder)), "--dtype", "float64")
    return train(5, folder / "run", "--rounds", "10", *COMMON, *arguments)


def test_float32_run_stays_near(tmp_path: Path) -> None:
    folder = train(4, tmp_path / "run", "--rounds", "5", *COMMON)
    assert client_states(folder, 5)[0]["x"].dtype.itemsize == 4
    assert compare(folder, 5) < 1e-4


def test_one_graph_for_all_rounds(tmp_path: Path) -> None:
    """Client 1 is cut off both ways in every round; client 3 pushes, and nobody ever pushes to it."""
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"out": [[2], [], [0, 4], [0], [2, 0]]}))
    arguments = ("--num_clients", "5", "--graph.file", str(path), "--dtype", "float64", *COMMON, "--local.lr", "0.01")
    folder = train(3, tmp_path / "run", "--rounds", "10", *arguments)
    assert compare(folder, 10) < 1e-9
    states = client_states(folder, 10)
    assert states[1]["w"] == 1
    assert states[3]["w"] == 2.0**-10
