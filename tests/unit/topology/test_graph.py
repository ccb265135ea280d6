"""Graphs: self-loops, weights that keep mass, what is recorded."""

import math

import numpy as np
import pytest
from graphs import DRAWN, SYMMETRIC, draw, matrix
from hypothesis import given
from hypothesis import strategies as st

from dfl_dist.errors import ArgumentError
from dfl_dist.topology.graph import WEIGHTS, Server, make_graph


def test_weights_of_a_path_by_hand() -> None:
    path = [[1], [0, 2], [1]]
    third = 1 / 3
    np.testing.assert_allclose(
        matrix(make_graph(path, "metropolis")), [[2 / 3, third, 0], [third, third, third], [0, third, 2 / 3]]
    )
    np.testing.assert_allclose(matrix(make_graph(path)), [[0.5, third, 0], [0.5, third, 0.5], [0, third, 0.5]])
    graph = make_graph(path)
    assert [graph.share(0, 1), graph.share(1, 0), graph.share(2, 2)] == [0.5, third, 0.5]


@given(st.sampled_from(DRAWN), st.sampled_from(sorted(WEIGHTS)), st.integers(1, 40), st.integers(0, 2**32))
def test_split_is_the_matrix_product_and_keeps_mass(kind: str, weights: str, num_clients: int, seed: int) -> None:
    neighbors = draw(kind, num_clients, seed=seed, out_degree=min(3, num_clients - 1), p=0.3)
    graph = make_graph(neighbors, weights if kind in SYMMETRIC else "out-degree")
    w = np.random.default_rng(seed).uniform(0.1, 2, size=num_clients)
    P, (kept, pushed) = matrix(graph), graph.split(w.tolist())
    np.testing.assert_allclose(kept, P.diagonal() * w, rtol=1e-14)
    np.testing.assert_allclose(pushed, (P - np.diag(P.diagonal())) @ w, rtol=1e-12)
    assert math.isclose(math.fsum(kept + pushed), math.fsum(w), rel_tol=1e-14)


def test_a_server_keeps_every_w_and_names_its_clients() -> None:
    server = Server((1, 3))
    assert server.split([0.5, 1.0, 2.0, 0.25]) == ([0.5, 1.0, 2.0, 0.25], [0.0] * 4)
    assert server.record() == {"out": None, "clients": (1, 3), "weights": "server"}


def test_make_graph_sorts_and_adds_the_client_itself() -> None:
    assert make_graph([[2, 1], [], [0, 0]]).out == ((0, 1, 2), (1,), (0, 2))
    assert make_graph([[2, 1], [], [0, 0]]) == make_graph([[0, 1, 2], [1], [2, 0]])


def test_metropolis_is_refused_on_a_directed_graph() -> None:
    with pytest.raises(ArgumentError, match=r"^weights: given metropolis on a directed graph, allowed: out-degree$"):
        make_graph([[1], [2], [0]], "metropolis")


@pytest.mark.parametrize("kind", SYMMETRIC)
def test_symmetric_kinds_are_doubly_stochastic_with_metropolis_weights(kind: str) -> None:
    degrees_seen = set()
    for num_clients in (*range(1, 14), 24, 33):
        for k in {0, 1, 3, num_clients // 2, num_clients - 1} & set(range(num_clients)):
            p = k / num_clients
            graph = make_graph(draw(kind, num_clients, round_idx=k, out_degree=k, p=p), "metropolis")
            P, adjacent = matrix(graph), np.zeros((num_clients, num_clients), dtype=bool)
            for client, row in enumerate(graph.out):
                adjacent[client, list(row)] = client != np.array(row)
            degrees = adjacent.sum(axis=1)
            degrees_seen.add(len(set(degrees.tolist())))
            assert (adjacent == adjacent.T).all()
            formula = adjacent / (1 + np.maximum.outer(degrees, degrees))
            assert (P - np.diag(P.diagonal()) == formula).all(), "p_ij = 1/(1 + max(d_i, d_j)) for neighbours"
            assert (P == P.T).all()
            np.testing.assert_allclose(P.sum(axis=0), 1, rtol=1e-14)
            np.testing.assert_allclose(P.sum(axis=1), 1, rtol=1e-14)
            assert (P.diagonal() > 0).all()
    assert max(degrees_seen) > 1 or kind not in {"erdos_renyi", "random_symmetric"}, "unequal degrees were tried"
