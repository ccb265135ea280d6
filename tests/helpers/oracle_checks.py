"""Comparing runs with their simulation: clients, what is in flight, metrics and graphs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forked import Ranks
from launching import TRAINER, client_states, lines, run
from oracle import (
    NO_MISTAKE,
    Mistake,
    Problem,
    Simulation,
    State,
    chosen_by_loss,
    log_odds,
    mixing_matrix,
    simulate,
)

from dfl_dist.data.datasets import digits

EXACT = 1e-9
BASE = ("--model.name", "small_models:softmax", "--seed", "7", "--checkpoint.every", "5", "--checkpoint.keep", "0")

# Out-degrees from 0 to 4. In the first graph client 1 pushes to nobody and nobody pushes to client 3; in the second
# client 4 does neither; in the third nobody pushes to client 0. A client that were never pushed to would end with w
# near 0 and steps lr/w so large that rounding alone decides where it goes.
IRREGULAR = [
    [[1, 2], [], [0, 1, 4], [0, 1, 2, 4], [0]],
    [[3], [0, 2, 3], [1], [1, 2], []],
    [[4, 3], [3], [3, 4], [2], [1, 2, 3]],
]


def graph_file(folder: Path) -> Path:
    path = folder / "graphs.jsonl"
    path.write_text("".join(json.dumps({"out": out}) + "\n" for out in IRREGULAR))
    return path


def resume(world_size: int | None, folder: Path, *arguments: str) -> None:
    done = run(Ranks(world_size, TRAINER, ("--resume", str(folder), *arguments)), folder.parent)
    assert done.code == 0, done.err


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
