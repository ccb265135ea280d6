"""The distributed run on real ranks equals the NumPy simulation of the same equations, for every algorithm."""

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from launching import assert_same_clients, client_states, lines, train
from oracle import NO_MISTAKE, Mistake, Problem, State, chosen_by_loss, mixing_matrix, push, simulate
from oracle_checks import (
    BASE,
    EXACT,
    assert_checkpoints_are_simulated,
    assert_graphs_are_as_described,
    assert_metrics_are_simulated,
    compare,
    graph_file,
    largest,
    resume,
)

from dfl_dist.algorithms.table import ALGORITHMS
from dfl_dist.data import partition

COMMON = (*BASE, "--data.alpha", "1", "--local.epochs", "2", "--local.batch_size", "40", "--local.lr", "0.2")
# As few options as can be, so that the rows of the table show.
PLAIN = (*BASE, "--rounds", "10", "--dtype", "float64", "--eval.every", "1", "--local.batch_size", "40")

# The methods of DESIGN: rho, momentum, local epochs, where the gradient is taken, graph, weights.
ROWS: dict[str, tuple[float, float, int, str, str, str]] = {
    "dfedsgpsm": (0.1, 0.9, 5, "step", "random_directed", "out-degree"),
    "dfedsgpsm-s": (0.1, 0.9, 5, "step", "by_loss", "out-degree"),
    "dfedsgpm": (0.0, 0.9, 5, "step", "random_directed", "out-degree"),
    "osgp": (0.0, 0.0, 5, "step", "random_directed", "out-degree"),
    "sgp": (0.0, 0.0, 1, "step", "random_directed", "out-degree"),
    "asyng": (0.0, 0.0, 5, "round", "by_loss", "out-degree"),
    "dfedsam": (0.25, 0.0, 5, "step", "random_symmetric", "metropolis"),
    "dfedavgm": (0.0, 0.9, 5, "step", "random_symmetric", "metropolis"),
    "dfedavg": (0.0, 0.0, 5, "step", "random_symmetric", "metropolis"),
    "d-psgd": (0.0, 0.0, 1, "step", "random_symmetric", "metropolis"),
    "fedavg": (0.0, 0.0, 5, "step", "server", "server"),
}

# Ranks, and what is given on the command line besides PLAIN. The first words name the row; None is one process that
# hosts all clients. The first cases are the rows of the table as they stand, whatever rows there are.
AS_IT_STANDS = (None, "--num_clients 6")
SPECIAL: dict[str, tuple[int | None, str]] = {
    "dfedsgpsm, 4 x 1": (4, "--graph.out_degree 2"),
    "dfedsgpsm-s, 2 x 3": (2, "--num_clients 6 --graph.out_degree 2"),
    "dfedsgpm, coordinator": (3, "--num_clients 5 --rank0 coordinator --graph.out_degree 2"),
    "osgp, overlap 1": (None, "--num_clients 4 --overlap 1 --graph.out_degree 2"),
    "sgp, overlap 2, 5 on 2": (2, "--num_clients 5 --overlap 2 --graph.out_degree 2 --local.lr 0.2"),
    "asyng, few classes each": (None, "--num_clients 4 --graph.out_degree 2 --data.alpha 0.1"),
    "dfedsam, unequal degrees, 5 on 2": (2, "--num_clients 5 --graph.out_degree 3"),
    "dfedavg, gossip 2": (None, "--num_clients 6 --graph.out_degree 3 --graph.gossip_steps 2"),
    "d-psgd, coordinator": (3, "--num_clients 5 --rank0 coordinator --graph.out_degree 3"),
    "fedavg, half of 4": (None, "--num_clients 4 --participation 0.5 --server_lr 0.7"),
    "fedavg, one of 5 on 2": (2, "--num_clients 5"),
    "dfedsgpsm, overlap 1, 2 x 3": (2, "--num_clients 6 --overlap 1 --graph.out_degree 2"),
    "dfedsgpsm, overlap 2, step x": (
        None,
        "--num_clients 4 --overlap 2 --graph.out_degree 2 --local.step x --local.lr 0.01 --local.clip_norm 1"
        " --local.weight_decay 0.1",
    ),
    "dfedsgpsm, overlap 1, gossip 2, 5 on 2": (2, "--num_clients 5 --overlap 1 --graph.gossip_steps 2"),
    "dfedsgpsm, gossip 2": (None, "--num_clients 4 --graph.gossip_steps 2 --graph.out_degree 1"),
    "dfedsgpsm, step z, clipped, decayed": (
        None,
        "--num_clients 4 --local.step z --local.clip_norm 0.5 --local.weight_decay 0.1 --graph.out_degree 2",
    ),
    "dfedsgpsm, gradient at the round's z, 5 on 3": (
        3,
        "--num_clients 5 --local.gradient_at round --local.clip_norm 0.5 --local.weight_decay 0.1",
    ),
    "dfedsgpsm, cosine, warmed up": (None, "--num_clients 4 --local.schedule cosine --local.warmup_rounds 3"),
    "osgp, constant rate": (None, "--num_clients 4 --local.schedule constant"),
    "dfedsgpsm-s, overlap 1": (None, "--num_clients 4 --overlap 1 --graph.out_degree 2"),
    "dfedsgpsm, static": (None, "--num_clients 5 --graph.static true --graph.out_degree 2"),
    "dfedsam, overlap 1, unequal degrees": (None, "--num_clients 5 --graph.out_degree 3 --overlap 1"),
    "dfedsam, overlap 2, coordinator": (3, "--num_clients 5 --rank0 coordinator --graph.out_degree 3 --overlap 2"),
    "dfedavgm, erdos_renyi, 2 x 3": (2, "--num_clients 6 --graph.kind erdos_renyi --graph.p 0.5"),
    "dfedavg, equal shares": (
        None,
        "--num_clients 4 --graph.kind erdos_renyi --graph.p 0.5 --graph.weights out-degree",
    ),
}
CASES = dict.fromkeys(ALGORITHMS, AS_IT_STANDS) | SPECIAL
OVERLAP, METROPOLIS = "dfedsgpsm, overlap 1, 2 x 3", "dfedsam, unequal degrees, 5 on 2"
LATE_GOSSIP, CLIPPED = "dfedsgpsm, overlap 1, gossip 2, 5 on 2", "dfedsgpsm, step z, clipped, decayed"
SERVER, BY_LOSS = "fedavg, half of 4", "asyng, few classes each"

Recorded = Callable[[str], Path]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The run of a case, made when first asked for."""

    @functools.cache
    def get(case: str) -> Path:
        world_size, given = CASES[case]
        arguments = (*PLAIN, "--algorithm", case.partition(",")[0], *given.split())
        return train(world_size, tmp_path_factory.mktemp("case") / "run", *arguments)

    return get


def assert_row_is_in_force(folder: Path, case: str) -> None:
    """What was not given on the command line is as DESIGN has it; a row that DESIGN has not is as its table says."""
    config, given = yaml.safe_load((folder / "resolved.yaml").read_text()), CASES[case][1]
    method = case.partition(",")[0]
    row = ALGORITHMS[method]
    values = (row.rho, row.momentum, row.epochs, row.gradient_at, row.graph)
    rho, momentum, epochs, gradient_at, kind = ROWS[method][:5] if method in ROWS else values
    local = {"rho": rho, "momentum": momentum, "epochs": epochs, "gradient_at": gradient_at}
    local["step"] = "z" if config["overlap"] > 0 else "x"
    for section, values in (("local", local), ("graph", {"kind": kind})):
        for key, value in values.items():
            assert f"--{section}.{key}" in given or config[section][key] == value, key


def weights_of(case: str, folder: Path) -> str:
    """The weights that a run must have: those of its row, where DESIGN has it and nothing else is asked for."""
    method, given = case.partition(",")[0], CASES[case][1].split()
    if "--graph.weights" in given:
        return given[given.index("--graph.weights") + 1]
    return ROWS[method][-1] if method in ROWS else lines(folder / "topology.jsonl")[0]["weights"]


@pytest.mark.parametrize("case", CASES)
def test_every_algorithm_equals_its_simulation(recorded: Recorded, case: str) -> None:
    folder = recorded(case)
    simulation = simulate(folder, 10)
    assert_row_is_in_force(folder, case)
    assert_checkpoints_are_simulated(folder, simulation)
    assert_metrics_are_simulated(folder, simulation)
    assert_graphs_are_as_described(folder, simulation, weights_of(case, folder))


def test_every_row_of_the_design_is_there() -> None:
    assert set(ROWS) <= set(ALGORITHMS)


@pytest.mark.parametrize(
    ("case", "mistake"),
    [
        pytest.param(OVERLAP, Mistake(nothing_in_flight=True), id="overlap ignored"),
        pytest.param(OVERLAP, Mistake(late_by_one=True), id="a round too late"),
        pytest.param(OVERLAP, Mistake(at_once_within=3), id="shares for hosted clients at once"),
        pytest.param(OVERLAP, Mistake(own_share_late=True), id="own share late too"),
        pytest.param(OVERLAP, Mistake(w_at_once=True), id="w at once, only x late"),
        pytest.param(OVERLAP, Mistake(w_lost=True), id="w in flight lost"),
        pytest.param(OVERLAP, Mistake(no_drain=True), id="not drained"),
        pytest.param(OVERLAP, Mistake(unscaled_step=True), id="step x with overlap"),
        pytest.param(LATE_GOSSIP, Mistake(steps_mixed_up=True), id="mixed in in the wrong gossip step"),
        pytest.param(LATE_GOSSIP, Mistake(gossip_once=True), id="gossip once, overlapped"),
        pytest.param("dfedsgpsm, gossip 2", Mistake(gossip_once=True), id="gossip once"),
        pytest.param(METROPOLIS, Mistake(equal_shares=True), id="metropolis replaced by out-degree"),
        pytest.param(CLIPPED, Mistake(unscaled_step=True), id="step x instead of z"),
        pytest.param(CLIPPED, Mistake(decay_before_clip=True), id="weight decay before clipping"),
        pytest.param(CLIPPED, Mistake(decay_at_x=True), id="weight decay of x instead of z"),
        pytest.param(CLIPPED, Mistake(decay_in_ascent=True), id="weight decay in the ascent"),
        pytest.param(BY_LOSS, Mistake(gradient_at_step=True), id="gradients at each step's z"),
        pytest.param(SERVER, Mistake(server_of_all=True), id="server averages also who did not train"),
        pytest.param(SERVER, Mistake(server_lr_ignored=True), id="server_lr ignored"),
        pytest.param(SERVER, Mistake(server_reaches_trained_only=True), id="who did not train keeps the old model"),
    ],
)
def test_a_mistake_in_an_option_differs(recorded: Recorded, case: str, mistake: Mistake) -> None:
    """That the run is as simulated without the mistake, the test above says."""
    assert compare(recorded(case), 10, mistake) > 1e-3


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(Mistake(loss_after_ascent=True), id="loss of the second pass"),
        pytest.param(Mistake(loss_unweighted=True), id="mean over batches instead of samples"),
    ],
)
def test_a_wrong_loss_differs(recorded: Recorded, mistake: Mistake) -> None:
    folder = recorded(LATE_GOSSIP)
    losses = [state["train_loss"] for state in client_states(folder, 10)]
    assert largest([simulate(folder, 10).end.losses - losses]) < EXACT
    assert largest([simulate(folder, 10, mistake).end.losses - losses]) > 1e-3


def test_metrics_without_what_is_in_flight_would_differ(recorded: Recorded) -> None:
    metrics, states = lines(recorded(OVERLAP) / "metrics.jsonl"), simulate(recorded(OVERLAP), 10).states
    for line, state in zip(metrics[:-1], states[1:-1], strict=True):
        forgetful = State(state.X, state.w, {}, state.losses)
        assert abs(forgetful.consensus_distance() - line["consensus_distance"]) > 1e-3
        assert abs(forgetful.mass() - line["push_weight_sum"]) > 1e-3


def test_server_average_weighs_the_clients_by_their_samples(recorded: Recorded, tmp_path: Path) -> None:
    """The partitions are even, so this one is made by hand and the run done again from its start."""
    folder = Path(shutil.copytree(recorded(SERVER), tmp_path / "run"))
    indices = np.concatenate(list(np.load(folder / "partition.npz").values()))
    shards = np.split(indices, [700, 1000, 1200])
    np.savez(folder / "partition.npz", **{f"client_{i:04d}": shard for i, shard in enumerate(shards)})
    resume(3, folder / "checkpoints" / "round-000000")
    assert_checkpoints_are_simulated(folder, simulate(folder, 10))
    assert_metrics_are_simulated(folder, simulate(folder, 10))
    assert compare(folder, 10, Mistake(server_unweighted=True)) > 1e-3


@pytest.mark.parametrize("age", [0, 2])
def test_neighbours_are_not_chosen_by_the_losses_of_another_round(recorded: Recorded, age: int) -> None:
    """Nor without any: the losses of no round are equal for all clients, which is the uniform choice."""
    folder = recorded(BY_LOSS)
    problem, states = Problem(folder), simulate(folder, 10).states
    degree, seed = problem.config["graph"]["out_degree"], problem.config["seed"]
    recorded_graphs = [graph["out"] for graph in problem.graphs[2:]]
    others = [chosen_by_loss(states[t + 1 - age].losses, degree, seed, t) for t in range(2, 10)]
    assert others != recorded_graphs
    assert [chosen_by_loss(np.zeros(problem.num_clients), degree, seed, t) for t in range(2, 10)] != recorded_graphs


def test_metropolis_weights_by_hand() -> None:
    """A path 0 - 1 - 2 and client 3 by itself."""
    P = mixing_matrix([[0, 1], [0, 1, 2], [1, 2], [3]], "metropolis")
    np.testing.assert_allclose(P, np.array([[2, 1, 0, 0], [1, 1, 1, 0], [0, 1, 2, 0], [0, 0, 0, 3]]) / 3, atol=1e-15)


def test_what_is_pushed_arrives_when_it_is_due() -> None:
    """Two clients that share evenly, two rounds late: by hand."""
    state, seen = State(np.array([[8.0], [0.0]]), np.ones(2), {}, np.zeros(2)), []
    for t in range(4):
        state = push(np.full((2, 2), 0.5), state, (t, 0), (t + 2, 0), NO_MISTAKE)
        seen.append((state.X.ravel().tolist(), state.w.tolist()))
        assert state.mass() == 2
        assert state.mean() == 4
    assert seen == [
        ([4, 0], [0.5, 0.5]),
        ([2, 0], [0.25, 0.25]),
        ([1, 4], [0.625, 0.625]),
        ([0.5, 4], [0.5625, 0.5625]),
    ]


@pytest.mark.parametrize(
    ("world_size", "arguments"),
    [
        pytest.param(
            None,
            ["--num_clients", "3", "--algorithm", "sgp", "--local.epochs", "null", "--local.steps", "7"],
            id="plain gradient, steps",
        ),
        pytest.param(4, ["--window", "1", "--local.weight_decay", "0.01", "--local.batch_size", "0"], id="window 1"),
    ],
)
def test_run_equals_simulation(tmp_path: Path, world_size: int | None, arguments: list[str]) -> None:
    folder = train(world_size, tmp_path / "run", "--rounds", "10", "--dtype", "float64", *COMMON, *arguments)
    assert compare(folder, 10) < EXACT


@pytest.fixture(scope="module", params=[5, 2], ids=["5 ranks", "2 ranks"])
def irregular_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("oracle")
    arguments = ("--num_clients", "5", "--graph.file", str(graph_file(folder)), "--dtype", "float64")
    return train(request.param, folder / "run", "--rounds", "10", *COMMON, *arguments)


def test_irregular_graphs_with_isolated_and_unheard_clients(irregular_run: Path) -> None:
    assert compare(irregular_run, 10) < EXACT
    w = [state["w"] for state in client_states(irregular_run, 10)]
    assert max(w) / min(w) > 2, "the weights must differ for this to prove anything"
    assert lines(irregular_run / "topology.jsonl")[3]["out"] == [[0, 1, 2], [1], [0, 1, 2, 4], [0, 1, 2, 3, 4], [0, 4]]


def test_a_division_of_ones_own_with_unequal_sizes(tmp_path: Path) -> None:
    sizes, file = [400, 3, 90, 41, 150], tmp_path / "own.npz"
    shards = np.split(np.random.default_rng(0).permutation(1437), np.cumsum(sizes))[: len(sizes)]
    partition.save(shards, file)
    given = ("--num_clients", "5", "--data.partition", "file", "--data.file", str(file), "--dtype", "float64")
    folder = train(2, tmp_path / "run", "--rounds", "5", *COMMON, *given)
    file.unlink()
    resume(2, folder, "--rounds", "10")
    assert [len(shard) for shard in partition.load(folder / "partition.npz", range(5))] == sizes
    assert compare(folder, 10) < EXACT


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
    assert compare(irregular_run, 10) < EXACT
    assert compare(irregular_run, 10, mistake) > 1e-3


def test_float32_run_stays_near(tmp_path: Path) -> None:
    folder = train(None, tmp_path / "run", "--rounds", "5", "--num_clients", "4", *COMMON)
    assert client_states(folder, 5)[0]["x"].dtype.itemsize == 4
    assert compare(folder, 5) < 1e-4


def test_one_graph_for_all_rounds(tmp_path: Path) -> None:
    """Client 1 is cut off both ways in every round; client 3 pushes, and nobody ever pushes to it."""
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"out": [[2], [], [0, 4], [0], [2, 0]]}))
    arguments = ("--num_clients", "5", "--graph.file", str(path), "--dtype", "float64", *COMMON, "--local.lr", "0.01")
    folder = train(None, tmp_path / "run", "--rounds", "10", *arguments)
    assert compare(folder, 10) < EXACT
    states = client_states(folder, 10)
    assert states[1]["w"] == 1
    assert states[3]["w"] == 2.0**-10


@pytest.mark.parametrize(
    ("case", "world_size"), [("osgp, overlap 1", 3), ("sgp, overlap 2, 5 on 2", 1), (LATE_GOSSIP, 5)]
)
def test_resumed_with_shares_in_flight(recorded: Recorded, tmp_path: Path, case: str, world_size: int) -> None:
    """From the middle, on another number of ranks: the same bits, and the simulated ones."""
    straight = recorded(case)
    copy = Path(shutil.copytree(straight, tmp_path / "run"))
    shutil.rmtree(copy / "checkpoints" / "round-000010")
    resume(world_size, copy / "checkpoints" / "round-000005")
    assert_same_clients(straight, copy, 10)
    assert lines(straight / "topology.jsonl") == lines(copy / "topology.jsonl")
    assert_checkpoints_are_simulated(copy, simulate(copy, 10))
    assert_metrics_are_simulated(copy, simulate(copy, 10))


def test_a_drained_run_goes_on_as_if_it_had_not_been(recorded: Recorded, tmp_path: Path) -> None:
    case = "osgp, overlap 1"
    copy = Path(shutil.copytree(recorded(case), tmp_path / "run"))
    resume(2, copy, "--rounds", "15")
    arguments = (*PLAIN, "--algorithm", "osgp", *CASES[case][1].split(), "--rounds", "15")
    straight = train(None, tmp_path / "straight", *arguments)
    assert_same_clients(straight, copy, 15)
    assert lines(straight / "topology.jsonl") == lines(copy / "topology.jsonl")
    assert compare(copy, 15) < EXACT
