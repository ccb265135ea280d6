"""Connectivity against networkx, averaging against dense matrices, and facts known from the literature."""

import math
from collections.abc import Iterator, Sequence

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfl_dist.connectivity import (
    FLOOR,
    Averaging,
    average,
    connected_within,
    diameter,
    is_strongly_connected,
    make_edges,
    make_mixing,
    smallest_window,
)
from dfl_dist.topology import KINDS, SYMMETRIC, Graph, Options, make_graph


def draw(kind: str, num_clients: int, round_idx: int = 0, out_degree: int = 3, p: float = 0.2) -> Graph:
    rng, options = np.random.default_rng(round_idx), Options(out_degree=out_degree, p=p)
    neighbors = KINDS[kind](num_clients, round_idx, rng, options)
    return make_graph(neighbors, "metropolis" if kind in SYMMETRIC else "out-degree")


@st.composite
def schedules(draw: st.DrawFn) -> list[Graph]:
    """A few sparse graphs, some of which come again as the same object."""
    count = draw(st.integers(1, 8))
    rows = st.lists(st.sets(st.integers(0, count - 1), max_size=2).map(sorted), min_size=count, max_size=count)
    distinct = [make_graph(neighbors) for neighbors in draw(st.lists(rows, min_size=1, max_size=5))]
    return draw(st.lists(st.sampled_from(distinct), min_size=1, max_size=10))


def oracle(graphs: Sequence[Graph]) -> "nx.DiGraph[int]":
    """The union of graphs, for networkx."""
    union: nx.DiGraph[int] = nx.DiGraph()
    union.add_nodes_from(range(len(graphs[0].out)))
    union.add_edges_from(
        (sender, receiver) for graph in graphs for sender, row in enumerate(graph.out) for receiver in row
    )
    return union


def matrix_of(graph: Graph) -> np.ndarray:
    """P, with p_{j,i} in row j and column i."""
    matrix = np.zeros((len(graph.out), len(graph.out)))
    for sender, (receivers, shares) in enumerate(zip(graph.out, graph.shares, strict=True)):
        matrix[list(receivers), sender] = shares
    return matrix


@given(schedules())
def test_union_is_connected_as_networkx_says(graphs: list[Graph]) -> None:
    edges, union = [make_edges(graph) for graph in graphs], oracle(graphs)
    connected = nx.is_strongly_connected(union)
    assert is_strongly_connected(edges) == connected
    assert diameter(edges) == (nx.diameter(union) if connected else None)
    paths = nx.single_source_shortest_path_length(union, 0)
    assert diameter(edges, sources=[0]) == (max(paths.values()) if len(paths) == len(union) else None)


@given(schedules())
def test_windows_are_as_small_as_can_be(graphs: list[Graph]) -> None:
    def connected(start: int, window: int) -> bool:
        return bool(nx.is_strongly_connected(oracle(graphs[start : start + window])))

    sizes = range(1, len(graphs) + 1)
    first = next((size for size in sizes if connected(0, size)), None)
    every = next((size for size in sizes if all(connected(s, size) for s in range(len(graphs) - size + 1))), None)
    assert connected_within(iter(graphs)) == first
    made = {id(graph): make_edges(graph) for graph in graphs}
    assert smallest_window([made[id(graph)] for graph in graphs]) == every
    assert smallest_window([make_edges(graph) for graph in graphs]) == every, "whether graphs are known again or not"


def test_connected_within_takes_no_more_graphs_than_it_needs() -> None:
    def graphs() -> Iterator[Graph]:
        yield make_graph([[1], [], []])
        yield make_graph([[], [2], [0]])
        raise AssertionError("one graph too many was asked for")

    assert connected_within(graphs()) == 2
    assert connected_within([]) is None


def test_diameter_of_more_clients_than_are_looked_at_at_once() -> None:
    graph = draw("random_directed", 1100, out_degree=5)
    ring = draw("directed_ring", 1100)
    assert diameter([make_edges(graph), make_edges(ring)]) == nx.diameter(oracle([graph, ring]))

    hub_and_tail = [range(1041), *([0] for _ in range(1, 1030)), *([client + 1] for client in range(1030, 1040)), [0]]
    assert diameter([make_edges(make_graph(hub_and_tail))]) == 12, "from 1030 along the tail to 1040, 0, and the others"


@pytest.mark.parametrize("sources", [None, [0]])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 64, 70])
def test_known_diameters(n: int, sources: list[int] | None) -> None:
    def found(kind: str) -> int | None:
        return diameter([make_edges(draw(kind, n))], sources)

    assert found("directed_ring") == n - 1
    assert found("ring") == n // 2
    assert found("full") == min(1, n - 1)
    if n.bit_count() == 1:  # else the way around the circle may be shorter
        assert found("exponential") == int(math.log2(n))
    rows = next(rows for rows in range(math.isqrt(n), 0, -1) if n % rows == 0)
    assert found("grid") == rows // 2 + n // rows // 2


def test_one_peer_exponential_needs_all_its_hops() -> None:
    edges = [make_edges(draw("one_peer_exponential", 16, round_idx)) for round_idx in range(12)]
    assert smallest_window(edges) == 4, "without the hop of 1, odd and even clients never meet"


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
        matrix = matrix_of(graph)
        kept = np.diag(np.diag(matrix))
        for step in range(gossip_steps):
            pushed[t, step] = (matrix - kept) @ x, (matrix - kept) @ w
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
    rounds = [make_mixing(draw("random_directed", 20, round_idx)) for round_idx in range(200)]
    start = np.random.default_rng(1).normal(5, 1, size=(20, 4))
    found = average(rounds, start, overlap=overlap, gossip_steps=gossip_steps)
    assert found.errors[-1] < 1e-9, "the mean is found only if all mass is kept"
    assert 0 < found.smallest_weight < 0.5


def simulate(kind: str, num_clients: int, rounds: int) -> Averaging:
    graphs = (make_mixing(draw(kind, num_clients, round_idx)) for round_idx in range(rounds))
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
    assert connected_within([halves] * 50) is None
    assert smallest_window([make_edges(halves)] * 50) is None
    assert diameter([make_edges(halves)]) is None
    found = average([make_mixing(halves)] * 50, np.array([[0.0], [0.0], [1.0], [1.0]]))
    assert found.errors.tolist() == [1.0] * 51
    assert found.contraction == 1
    assert found.rounds_until(1e-6) is None


def test_a_client_that_nobody_pushes_to_keeps_what_it_knew() -> None:
    found = average([make_mixing(make_graph([[1], []]))] * 2000, np.array([[0.0], [1.0]]))
    assert found.smallest_weight == 0, "halved so often that floating point knows it no more"
    assert found.errors.tolist() == pytest.approx([1.0] * 2001)


def test_one_client_agrees_with_itself() -> None:
    alone = make_graph([[]])
    assert connected_within([alone]) == smallest_window([make_edges(alone)]) == 1
    assert diameter([make_edges(alone)]) == 0
    assert average([make_mixing(alone)] * 3, np.ones((1, 2))).errors.tolist() == [0.0] * 4
