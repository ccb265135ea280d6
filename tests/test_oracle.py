"""The distributed run on real ranks equals the NumPy simulation of the same equations, for every algorithm."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from launching import assert_same_clients, client_states, lines, ranks, run, train
from oracle import (
    NO_MISTAKE,
    Mistake,
    Problem,
    Simulation,
    State,
    chosen_by_loss,
    log_odds,
    mixing_matrix,
    push,
    simulate,
)

import dfl_dist.train
from dfl_dist.data.datasets import digits

EXACT = 1e-9
BASE = ("--model.name", "small_models:softmax", "--seed", "7", "--checkpoint.every", "5", "--checkpoint.keep", "0")
COMMON = (*BASE, "--data.alpha", "1", "--local.epochs", "2", "--local.batch_size", "40", "--local.lr", "0.2")
# As few options as can be, so that the rows of the table show.
PLAIN = (*BASE, "--rounds", "10", "--dtype", "float64", "--eval.every", "1", "--local.batch_size", "40")

# Out-degrees from 0 to 4. In the first graph client 1 pushes to nobody and nobody pushes to client 3; in the second
# client 4 does neither; in the third nobody pushes to client 0. A client that were never pushed to would end with w
# near 0 and steps lr/w so large that rounding alone decides where it goes.
IRREGULAR = [
    [[1, 2], [], [0, 1, 4], [0, 1, 2, 4], [0]],
    [[3], [0, 2, 3], [1], [1, 2], []],
    [[4, 3], [3], [3, 4], [2], [1, 2, 3]],
]

# The table of DESIGN: rho, momentum, local epochs, where the gradient is taken, graph, weights.
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

# Ranks, and what is given on the command line besides PLAIN. The first words name the row.
CASES: dict[str, tuple[int, str]] = {
    "dfedsgpsm": (4, "--graph.out_degree 2"),
    "dfedsgpsm-s, 2 x 3": (2, "--num_clients 6 --graph.out_degree 2"),
    "dfedsgpm, coordinator": (3, "--num_clients 5 --rank0 coordinator --graph.out_degree 2"),
    "osgp, overlap 1": (4, "--overlap 1 --graph.out_degree 2"),
    "sgp, overlap 2, 5 on 2": (2, "--num_clients 5 --overlap 2 --graph.out_degree 2 --local.lr 0.2"),
    "asyng": (4, "--graph.out_degree 2 --data.alpha 0.1"),
    "dfedsam, unequal degrees, 5 on 2": (2, "--num_clients 5 --graph.out_degree 3"),
    "dfedavgm": (4, "--graph.out_degree 2"),
    "dfedavg, gossip 2, 2 x 3": (2, "--num_clients 6 --graph.out_degree 3 --graph.gossip_steps 2"),
    "d-psgd, coordinator": (3, "--num_clients 5 --rank0 coordinator --graph.out_degree 3"),
    "fedavg": (4, "--participation 0.5 --server_lr 0.7"),
    "fedavg, one of 5 on 2": (2, "--num_clients 5"),
    "dfedsgpsm, overlap 1, 2 x 3": (2, "--num_clients 6 --overlap 1 --graph.out_degree 2"),
    "dfedsgpsm, overlap 2, step x": (
        4,
        "--overlap 2 --graph.out_degree 2 --local.step x --local.lr 0.01 --local.clip_norm 1 --local.weight_decay 0.1",
    ),
    "dfedsgpsm, overlap 1, gossip 2, 5 on 2": (2, "--num_clients 5 --overlap 1 --graph.gossip_steps 2"),
    "dfedsgpsm, gossip 2": (4, "--graph.gossip_steps 2 --graph.out_degree 1"),
    "dfedsgpsm, step z, clipped, decayed": (
        4,
        "--local.step z --local.clip_norm 0.5 --local.weight_decay 0.1 --graph.out_degree 2",
    ),
    "dfedsgpsm, gradient at the round's z": (
        3,
        "--num_clients 5 --local.gradient_at round --local.clip_norm 0.5 --local.weight_decay 0.1",
    ),
    "dfedsgpsm-s, overlap 1": (4, "--overlap 1 --graph.out_degree 2"),
    "dfedsgpsm, static, 5 on 2": (2, "--num_clients 5 --graph.static true --graph.out_degree 2"),
    "dfedsam, overlap 1, unequal degrees, 5 on 2": (2, "--num_clients 5 --graph.out_degree 3 --overlap 1"),
    "dfedsam, overlap 2, coordinator": (3, "--num_clients 5 --rank0 coordinator --graph.out_degree 3 --overlap 2"),
    "dfedavgm, erdos_renyi, 2 x 3": (2, "--num_clients 6 --graph.kind erdos_renyi --graph.p 0.5"),
    "dfedavg, equal shares": (4, "--graph.kind erdos_renyi --graph.p 0.5 --graph.weights out-degree"),
}

Recorded = Callable[[str], Path]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The run of a case, made when first asked for."""
    folders: dict[str, Path] = {}

    def get(case: str) -> Path:
        if case not in folders:
            world_size, given = CASES[case]
            arguments = (*PLAIN, "--algorithm", case.partition(",")[0], *given.split())
            folders[case] = train(world_size, tmp_path_factory.mktemp("case") / "run", *arguments)
        return folders[case]

    return get


def largest(values: list[Any]) -> float:
    """The largest of some numbers and arrays, without regard to sign; NaN if there is one."""
    return float(np.abs(np.concatenate([np.ravel(value) for value in values])).max())


def difference(states: list[dict[str, Any]], expected: State) -> float:
    """The largest difference between the clients of a run and the simulated ones, over all x and w."""
    assert len(states) == len(expected.X)
    x = [state["x"].numpy() - expected.X[i] for i, state in enumerate(states)]
    return largest([*x, *(state["w"] - expected.w[i] for i, state in enumerate(states))])


def compare(folder: Path, rounds: int, mistake: Mistake = NO_MISTAKE) -> float:
    """The largest difference between a checkpoint and the simulation, over all x and w."""
    return difference(client_states(folder, rounds), simulate(folder, rounds, mistake).end)


def in_flight_difference(states: list[dict[str, Any]], expected: State) -> float:
    """The largest difference between the shares that are on their way in a run and the simulated ones."""
    found = [0.0]
    for i, state in enumerate(states):
        shares = {(share["due"], share["step"], share["sender"]): share for share in state["in_flight"]}
        assert len(shares) == len(state["in_flight"]), "one share for each sender, step and round"
        keys = {(*key, int(j)) for key, pushed in expected.in_flight.items() for j in pushed.P[i].nonzero()[0]}
        assert set(shares) == keys, f"to client {i}"
        for (due, step, j), share in shares.items():
            pushed = expected.in_flight[due, step]
            found += [largest([share["x"].numpy() - pushed.P[i, j] * pushed.X[j]])]
            found += [abs(share["w"] - pushed.P[i, j] * pushed.w[j])]
    return largest(found)


def assert_checkpoints_are_simulated(folder: Path, simulation: Simulation) -> None:
    """The one in the middle, not drained, and the last, drained, with what it was before."""
    for rounds in (5, 10):
        states, expected = client_states(folder, rounds), simulation.states[rounds]
        assert difference(states, expected) < EXACT, f"after {rounds} rounds"
        assert in_flight_difference(states, expected) < EXACT, f"after {rounds} rounds"
        losses = [np.nan if state["train_loss"] is None else state["train_loss"] for state in states]
        np.testing.assert_allclose(losses, expected.losses, rtol=0, atol=EXACT)
    assert not simulation.end.in_flight
    if simulation.before_drain.in_flight:
        before = [state["before_drain"] for state in client_states(folder, 10)]
        assert difference(before, simulation.before_drain) < EXACT
        assert in_flight_difference(before, simulation.before_drain) < EXACT


def assert_metrics_are_simulated(folder: Path, simulation: Simulation) -> None:
    """Every round: the loss, the push weights, and x̄ by its distance from the clients and its scores."""
    problem, data, metrics = Problem(folder), digits(), lines(folder / "metrics.jsonl")
    assert len(metrics) == 10
    for t, (line, state) in enumerate(zip(metrics, simulation.states[1:], strict=True)):
        trained = problem.graphs[t].get("clients", range(problem.num_clients))
        odds = log_odds(state.mean(), data.test_inputs.astype(np.float64))
        expected = {
            "train_loss": state.losses[trained].mean(),
            "push_weight_min": state.w.min(),
            "push_weight_max": state.w.max(),
            "push_weight_sum": problem.num_clients,
            "consensus_distance": state.consensus_distance(),
            "test_loss": -odds[np.arange(len(odds)), data.test_targets].mean(),
            "test_accuracy": (odds.argmax(axis=1) == data.test_targets).mean(),
        }
        assert {key: line[key] for key in expected} == pytest.approx(expected, rel=0, abs=EXACT), f"round {t}"
        assert state.mass() == pytest.approx(problem.num_clients, rel=0, abs=EXACT)
    model = torch.load(folder / "model.pt", weights_only=True)
    found = np.concatenate([parameter.numpy().ravel() for parameter in model.values()])
    assert largest([found - simulation.end.mean()]) < EXACT


def assert_graphs_are_as_described(folder: Path, simulation: Simulation, weights: str) -> None:
    """Weights by name, columns of P that sum to 1, and for `by_loss` the choice itself, from the simulated losses."""
    problem = Problem(folder)
    for t, graph in enumerate(problem.graphs):
        assert graph["weights"] == weights
        if weights == "server":
            count = max(1, round(problem.config["participation"] * problem.num_clients))
            assert graph["out"] is None
            assert len(set(graph["clients"])) == len(graph["clients"]) == count
            continue
        P = mixing_matrix(graph["out"], weights)
        np.testing.assert_allclose(P.sum(axis=0), 1, rtol=0, atol=1e-12)
        if weights == "metropolis" and problem.config["overlap"] == 0:
            np.testing.assert_allclose(simulation.states[t + 1].w, 1, rtol=0, atol=EXACT)
        if problem.config["graph"]["kind"] == "by_loss":
            degree = problem.config["graph"]["out_degree"]
            assert [len(receivers) for receivers in graph["out"]] == [degree + 1] * problem.num_clients
            chosen = chosen_by_loss(simulation.states[t].losses, degree, problem.config["seed"], t)
            assert t == 0 or graph["out"] == chosen, f"round {t}"


def assert_row_is_in_force(folder: Path, case: str) -> None:
    """What was not given on the command line is as the table says."""
    config, given = yaml.safe_load((folder / "resolved.yaml").read_text()), CASES[case][1]
    rho, momentum, epochs, gradient_at, kind, _ = ROWS[case.partition(",")[0]]
    local = {"rho": rho, "momentum": momentum, "epochs": epochs, "gradient_at": gradient_at}
    local["step"] = "z" if config["overlap"] > 0 else "x"
    for section, values in (("local", local), ("graph", {"kind": kind})):
        for key, value in values.items():
            assert f"--{section}.{key}" in given or config[section][key] == value, key


@pytest.mark.parametrize("case", CASES)
def test_every_algorithm_equals_its_simulation(recorded: Recorded, case: str) -> None:
    folder = recorded(case)
    simulation = simulate(folder, 10)
    assert_row_is_in_force(folder, case)
    assert_checkpoints_are_simulated(folder, simulation)
    assert_metrics_are_simulated(folder, simulation)
    weights = "out-degree" if "equal shares" in case else ROWS[case.partition(",")[0]][-1]
    assert_graphs_are_as_described(folder, simulation, weights)


def test_every_row_has_a_case() -> None:
    assert {case.partition(",")[0] for case in CASES} == set(ROWS)


OVERLAP, METROPOLIS = "dfedsgpsm, overlap 1, 2 x 3", "dfedsam, unequal degrees, 5 on 2"
LATE_GOSSIP, CLIPPED = "dfedsgpsm, overlap 1, gossip 2, 5 on 2", "dfedsgpsm, step z, clipped, decayed"


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
        pytest.param("asyng", Mistake(gradient_at_step=True), id="gradients at each step's z"),
        pytest.param("fedavg", Mistake(server_of_all=True), id="server averages also who did not train"),
        pytest.param("fedavg", Mistake(server_lr_ignored=True), id="server_lr ignored"),
        pytest.param("fedavg", Mistake(server_reaches_trained_only=True), id="who did not train keeps the old model"),
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
    folder = Path(shutil.copytree(recorded("fedavg"), tmp_path / "run"))
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
    folder = recorded("asyng")
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


def graph_file(folder: Path) -> Path:
    path = folder / "graphs.jsonl"
    path.write_text("".join(json.dumps({"out": out}) + "\n" for out in IRREGULAR))
    return path


@pytest.mark.parametrize(
    ("world_size", "arguments"),
    [
        pytest.param(
            3, ["--algorithm", "sgp", "--local.epochs", "null", "--local.steps", "7"], id="plain gradient, steps"
        ),
        pytest.param(4, ["--window", "1", "--local.weight_decay", "0.01", "--local.batch_size", "0"], id="window 1"),
    ],
)
def test_run_equals_simulation(tmp_path: Path, world_size: int, arguments: list[str]) -> None:
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
    folder = train(4, tmp_path / "run", "--rounds", "5", *COMMON)
    assert client_states(folder, 5)[0]["x"].dtype.itemsize == 4
    assert compare(folder, 5) < 1e-4


def test_one_graph_for_all_rounds(tmp_path: Path) -> None:
    """Client 1 is cut off both ways in every round; client 3 pushes, and nobody ever pushes to it."""
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"out": [[2], [], [0, 4], [0], [2, 0]]}))
    arguments = ("--num_clients", "5", "--graph.file", str(path), "--dtype", "float64", *COMMON, "--local.lr", "0.01")
    folder = train(3, tmp_path / "run", "--rounds", "10", *arguments)
    assert compare(folder, 10) < EXACT
    states = client_states(folder, 10)
    assert states[1]["w"] == 1
    assert states[3]["w"] == 2.0**-10


def resume(world_size: int, folder: Path, *arguments: str) -> None:
    done = run(ranks(world_size, "dfl_dist.train:main", "--resume", str(folder), *arguments), folder.parent)
    assert done.code == 0, done.err


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
    straight = train(4, tmp_path / "straight", *arguments)
    assert_same_clients(straight, copy, 15)
    assert lines(straight / "topology.jsonl") == lines(copy / "topology.jsonl")
    assert compare(copy, 15) < EXACT


# Push-sum alone, without learning: how many clients and rounds, and what is given.
AVERAGING: dict[str, tuple[int, int, str]] = {
    "random_directed": (6, 40, "--graph.out_degree 2"),
    "directed_ring": (6, 110, ""),
    "exponential": (6, 40, ""),
    "one_peer_exponential": (6, 50, ""),
    "by_loss": (6, 40, "--graph.out_degree 2"),
    "file": (5, 45, ""),
    "random_symmetric": (5, 30, "--graph.out_degree 3"),
    "ring": (6, 50, ""),
    "grid": (6, 40, ""),
    "erdos_renyi": (6, 50, "--graph.p 0.5"),
    "full": (6, 5, ""),
    "random_directed, overlap 2": (6, 80, "--graph.out_degree 2 --overlap 2"),
    "ring, overlap 1": (6, 100, "--overlap 1"),
}
SYMMETRIC = ("random_symmetric", "ring", "grid", "erdos_renyi", "full")


def start_runs(arguments: list[str]) -> int:
    """Run on one rank: a round of each kind without learning, for the sake of the checkpoint before it."""
    folder = Path(arguments[0])
    for name, (num_clients, _, given) in AVERAGING.items():
        kind = name.partition(",")[0]
        graph = ["--graph.file", str(graph_file(folder))] if kind == "file" else ["--graph.kind", kind]
        settings = ["--num_clients", str(num_clients), "--rounds", "1", "--local.lr", "0", "--local.steps", "1"]
        command = [*BASE, *settings, "--dtype", "float64", *graph, *given.split(), "--out", str(folder / name)]
        if code := dfl_dist.train.main([*command, "--checkpoint.every", "1000", "--eval.every", "1000"]):
            return code
    return 0


@pytest.fixture(scope="module")
def start_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    done = run(ranks(1, "test_oracle:start_runs", str(folder)), folder)
    assert done.code == 0, done.err
    return folder


def start_apart(checkpoint: Path) -> np.ndarray:
    """Give each client of a checkpoint its own start value; return them."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    start = np.random.default_rng(3).normal(size=(manifest["num_clients"], manifest["parameters"]))
    for x, (name, entry) in zip(start, sorted(manifest["files"].items()), strict=True):
        torch.save(torch.load(checkpoint / name, weights_only=True) | {"x": torch.from_numpy(x)}, checkpoint / name)
        content = (checkpoint / name).read_bytes()
        entry |= {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
    return start


@pytest.mark.parametrize("name", AVERAGING)
def test_push_sum_alone_finds_the_mean_of_the_start_values(start_folder: Path, name: str) -> None:
    folder, (_, rounds, _) = start_folder / name, AVERAGING[name]
    start = start_apart(folder / "checkpoints" / "round-000000")
    resume(2 if "ring" in name else 3, folder / "checkpoints" / "round-000000", "--rounds", str(rounds))
    states = client_states(folder, rounds)
    x, w = np.stack([state["x"].numpy() for state in states]), np.array([[state["w"]] for state in states])
    mean = start.mean(axis=0)
    spread = np.linalg.norm(start - mean, axis=1).max()
    assert np.linalg.norm(x / w - mean, axis=1).max() < 1e-6 * spread
    assert compare(folder, rounds) < EXACT
    assert w.sum() == pytest.approx(len(w), rel=0, abs=EXACT)
    assert np.abs(w - 1).max() < EXACT or name not in SYMMETRIC
    if name == "file":
        assert np.linalg.norm(x - mean, axis=1).max() > 1e-3 * spread, "what the division by w is for"
