"""Who reaches whom, and how soon: against networkx, and facts known from the literature."""

import math
from collections.abc import Iterator, Sequence

import networkx as nx
import pytest
from graphs import draw_graph, schedules
from hypothesis import given, settings

from dfl_dist.topology.connectivity import (
    connected_within,
    diameter,
    is_strongly_connected,
    make_edges,
    smallest_window,
)
from dfl_dist.topology.graph import Graph, make_graph


def oracle(graphs: Sequence[Graph]) -> "nx.DiGraph[int]":
    """The union of graphs, for networkx."""
    union: nx.DiGraph[int] = nx.DiGraph()
    union.add_nodes_from(range(len(graphs[0].out)))
    union.add_edges_from(
        (sender, receiver) for graph in graphs for sender, row in enumerate(graph.out) for receiver in row
    )
    return union


@settings(max_examples=60)
@given(schedules())
def test_union_is_connected_as_networkx_says(graphs: list[Graph]) -> None:
    edges, union = [make_edges(graph) for graph in graphs], oracle(graphs)
    connected = nx.is_strongly_connected(union)
    assert is_strongly_connected(edges) == connected
    assert diameter(edges) == (nx.diameter(union) if connected else None)
    paths = nx.single_source_shortest_path_length(union, 0)
    assert diameter(edges, sources=[0]) == (max(paths.values()) if len(paths) == len(union) else None)


@settings(max_examples=60)
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
    graph = draw_graph("random_directed", 1100, out_degree=5)
    ring = draw_graph("directed_ring", 1100)
    assert diameter([make_edges(graph), make_edges(ring)]) == nx.diameter(oracle([graph, ring]))

    hub_and_tail = [range(1041), *([0] for _ in range(1, 1030)), *([client + 1] for client in range(1030, 1040)), [0]]
    assert diameter([make_edges(make_graph(hub_and_tail))]) == 12, "from 1030 along the tail to 1040, 0, and the others"


@pytest.mark.parametrize("sources", [None, [0]])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 64, 70])
def test_known_diameters(n: int, sources: list[int] | None) -> None:
    def found(kind: str) -> int | None:
        return diameter([make_edges(draw_graph(kind, n))], sources)

    assert found("directed_ring") == n - 1
    assert found("ring") == n // 2
    assert found("full") == min(1, n - 1)
    if n.bit_count() == 1:  # else the way around the circle may be shorter
        assert found("exponential") == int(math.log2(n))
    rows = next(rows for rows in range(math.isqrt(n), 0, -1) if n % rows == 0)
    assert found("grid") == rows // 2 + n // rows // 2


def test_one_peer_exponential_needs_all_its_hops() -> None:
    edges = [make_edges(draw_graph("one_peer_exponential", 16, round_idx)) for round_idx in range(12)]
    assert smallest_window(edges) == 4, "without the hop of 1, odd and even clients never meet"


def test_two_halves_never_meet() -> None:
    halves = make_graph([[1], [0], [3], [2]])
    assert connected_within([halves] * 50) is None
    assert smallest_window([make_edges(halves)] * 50) is None
    assert diameter([make_edges(halves)]) is None


def test_one_client_reaches_itself() -> None:
    alone = make_graph([[]])
    assert connected_within([alone]) == smallest_window([make_edges(alone)]) == 1
    assert diameter([make_edges(alone)]) == 0
