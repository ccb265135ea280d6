"""Averaging by push-sum: against dense matrices, and facts known from the literature."""

import math

import numpy as np
import pytest
from graphs import draw_graph, matrix, schedules
from hypothesis import given, settings
from hypothesis import strategies as st

from dfl_dist.topology.averaging import FLOOR, Averaging, average
from dfl_dist.topology.connectivity import make_mixing
from dfl_dist.topology.graph import Graph, make_graph


@settings(max_examples=60)
@given(
    schedules(), st.integers(1, 3), st.integers(0, 3), st.sampled_from([1, 6]), st.integers(0, 2**32)
)  # copies of the graph side by side make it sparse
def test_average_is_products_of_matrices(
    graphs: list[Graph], gossip_steps: int, overlap: int, copies: int, seed: int
) -> None:
    count = len(graphs[0].out)
    graphs = [
        make_graph([[peer + shift * count for peer in row] for shift in range(copies) for row in graph.out])
        for graph in graphs
    ]
    start = np.random.default_rng(seed).normal(size=(count * copies, 3))
    found = average(map(make_mixing, graphs), start, gossip_steps=gossip_steps, overlap=overlap)

    x, w = start, np.ones(len(start))
    pushed: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
    errors, smallest = [np.abs(x - start.mean(axis=0)).max()], 1.0
    for t, graph in enumerate(graphs):
        P = matrix(graph)
        kept = np.diag(np.diag(P))
        for step in range(gossip_steps):
            pushed[t, step] = (P - kept) @ x, (P - kept) @ w
            x, w = kept @ x, kept @ w
            if overlap <= t:
                arrived = pushed.pop((t - overlap, step))
                x, w = x + arrived[0], w + arrived[1]
        errors.append(np.abs(x / w[:, None] - start.mean(axis=0)).max())
        smallest = min(smallest, w.min())
        mass = x.sum(axis=0) + sum(of_x.sum(axis=0) for of_x, _ in pushed.values())
        np.testing.assert_allclose(mass, start.sum(axis=0), atol=1e-9)
    expected = np.array(errors) / errors[0] if errors[0] else np.zeros(len(errors))
    np.testing.assert_allclose(found.errors, expected, rtol=1e-6, atol=1e-11)
    assert found.smallest_weight == pytest.approx(smallest)


@pytest.mark.parametrize(("overlap", "gossip_steps"), [(0, 1), (0, 2), (1, 1), (2, 2), (3, 1)])
def test_nothing_is_lost_on_the_way(overlap: int, gossip_steps: int) -> None:
    rounds = [make_mixing(draw_graph("random_directed", 20, round_idx)) for round_idx in range(200)]
    start = np.random.default_rng(1).normal(5, 1, size=(20, 4))
    found = average(rounds, start, overlap=overlap, gossip_steps=gossip_steps)
    assert found.errors[-1] < 1e-9, "the mean is found only if all mass is kept"
    assert 0 < found.smallest_weight < 0.5


def simulate(kind: str, num_clients: int, rounds: int) -> Averaging:
    graphs = (make_mixing(draw_graph(kind, num_clients, round_idx)) for round_idx in range(rounds))
    return average(graphs, np.random.default_rng(0).normal(size=(num_clients, 8)))


@pytest.mark.parametrize(("kind", "rounds"), [("full", 1), ("one_peer_exponential", 3)])
def test_exact_averages_in_so_many_rounds(kind: str, rounds: int) -> None:
    found = simulate(kind, 8, 20)
    assert found.rounds_until(1e-6) == found.rounds_until(FLOOR) == rounds
    assert found.contraction == 0
    assert found.smallest_weight == pytest.approx(1)


@pytest.mark.parametrize("n", [8, 12])
def test_contraction_of_a_ring_is_its_second_eigenvalue(n: int) -> None:
    found = simulate("ring", n, 1000)
    assert found.contraction == pytest.approx((1 + 2 * math.cos(2 * math.pi / n)) / 3, rel=0.01)
    until = found.rounds_until(1e-6)
    assert until is not None
    assert found.errors[until] <= 1e-6 < found.errors[until - 1]


def test_contraction_by_hand() -> None:
    assert Averaging(np.array([1, 0.5, 0.25]), 1.0).contraction == pytest.approx(0.5)
    assert Averaging(np.array([1, 1e-5, 1e-10, 1e-15, 1e-16]), 1.0).contraction == pytest.approx(1e-5)
    assert Averaging(np.array([1, 0.1, 1e-16, 1e-16]), 1.0).contraction == 0


def test_two_halves_never_agree() -> None:
    halves = make_graph([[1], [0], [3], [2]])
    found = average([make_mixing(halves)] * 50, np.array([[0.0], [0.0], [1.0], [1.0]]))
    assert found.errors.tolist() == [1.0] * 51
    assert found.contraction == 1
    assert found.rounds_until(1e-6) is None


def test_a_client_that_nobody_pushes_to_keeps_what_it_knew() -> None:
    found = average([make_mixing(make_graph([[1], []]))] * 2000, np.array([[0.0], [1.0]]))
    assert found.smallest_weight == 0, "halved so often that floating point knows it no more"
    assert found.errors.tolist() == pytest.approx([1.0] * 2001)


def test_one_client_agrees_with_itself() -> None:
    assert average([make_mixing(make_graph([[]]))] * 3, np.ones((1, 2))).errors.tolist() == [0.0] * 4
