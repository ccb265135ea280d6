"""Kinds of graphs: degrees, reproducible seeds, the structure of each, fair random choices, and what its row says."""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import combinations, permutations
from typing import Any

import networkx as nx
import numpy as np
import pytest
from chi_square import FALSE_ALARM, p_value, uniform_p_value
from graphs import DRAWN, draw, matrix
from hypothesis import example, given
from hypothesis import strategies as st

from dfl_dist.randomness import stream
from dfl_dist.topology.graph import Graph, Neighbors, RoundGraph, Server, is_symmetric, make_graph
from dfl_dist.topology.kinds import KINDS, Options

RANDOM = ("random_directed", "random_symmetric", "by_loss", "erdos_renyi")


def others(neighbors: Neighbors) -> list[set[int]]:
    """The out-neighbours of each client, without itself."""
    return [set(row) - {client} for client, row in enumerate(make_graph(neighbors).out)]


def test_the_chi_square_knows_its_distribution() -> None:
    assert p_value({0: 60, 1: 40}, {0: 50, 1: 50}, 1) == pytest.approx(0.0455, abs=1e-4), "two standard deviations"
    assert p_value({0: 100, 1: 100, 2: 100}, {0: 100, 1: 100, 2: 100}, 2) == 1
    assert p_value({0: 120, 1: 100, 2: 80}, {0: 100, 1: 100, 2: 100}, 2) == pytest.approx(math.exp(-4))


# What every kind has in common.


@pytest.mark.parametrize("kind", DRAWN)
def test_every_kind_is_well_formed_at_every_size(kind: str) -> None:
    for num_clients in (*range(1, 18), 31, 32, 33):
        for k in sorted({0, 1, 2, num_clients // 2, num_clients - 1} & set(range(num_clients))):
            case = f"{num_clients} clients, out-degree {k}"
            losses = tuple(stream(k, "init").normal(size=num_clients)) if k % 2 else None
            drawn = [draw(kind, num_clients, round_idx=k, out_degree=k, losses=losses) for _ in range(2)]
            graph, again = (make_graph(neighbors) for neighbors in drawn)
            assert graph == again, f"a seed and a round give one graph: {case}"
            assert len(graph.out) == len(graph.clients) == num_clients
            for client, row in enumerate(graph.out):
                assert client in row, case
                assert list(row) == sorted(set(row)), case
                assert 0 <= row[0] <= row[-1] < num_clients, case
            P = matrix(graph)
            assert (P > 0).sum() == sum(map(len, graph.out))
            np.testing.assert_allclose(P.sum(axis=0), 1, rtol=1e-14, err_msg=case)
            for client, parts in enumerate(graph.in_neighbors):
                others_there = [sender for sender in np.flatnonzero(P[client]).tolist() if sender != client]
                assert parts == tuple((sender, P[client, sender]) for sender in others_there), case


@pytest.mark.parametrize("kind", RANDOM)
def test_random_graphs_change_every_round_and_with_the_seed(kind: str) -> None:
    losses = tuple(np.linspace(0, 1, 12))
    runs = [
        [make_graph(draw(kind, 12, seed=seed, round_idx=t, out_degree=3, losses=losses)) for t in range(20)]
        for seed in range(2)
    ]
    assert len({*runs[0], *runs[1]}) == 40


# What the row of a kind says of it.


def round_graph(kind: str, num_clients: int, *, seed: int = 0, round_idx: int = 0, **options: Any) -> RoundGraph:
    """The graph that any kind draws, from a file of two random graphs too; some of its options may be others."""
    file = [make_graph(draw("random_directed", num_clients, seed=number, out_degree=2)) for number in range(2)]
    usual = Options(out_degree=3, p=0.4, participation=0.4, graphs=file)
    rng = stream(seed, "graph", round_idx=round_idx)
    drawn = KINDS[kind].draw(num_clients, round_idx, rng, dataclasses.replace(usual, **options))
    return drawn if isinstance(drawn, Graph | Server) else make_graph(drawn)


def rounds_of(kind: str, num_clients: int, rounds: int, **options: Any) -> list[RoundGraph]:
    return [round_graph(kind, num_clients, round_idx=round_idx, **options) for round_idx in range(rounds)]


@pytest.mark.parametrize("kind", KINDS)
def test_edges_go_both_ways_exactly_where_the_row_says_symmetric(kind: str) -> None:
    graphs = [graph for num_clients in (5, 12, 16) for graph in rounds_of(kind, num_clients, 3)]
    both_ways = [isinstance(graph, Graph) and is_symmetric(graph.out) for graph in graphs]
    assert all(both_ways) if KINDS[kind].symmetric else not all(both_ways)


@pytest.mark.parametrize("kind", KINDS)
def test_every_round_has_the_same_graph_exactly_where_the_row_says_fixed(kind: str) -> None:
    for num_clients in (5, 12, 16):
        found = {graph for seed in range(2) for graph in rounds_of(kind, num_clients, 4, seed=seed)}
        assert (len(found) == 1) == KINDS[kind].fixed


def distances(graph: Graph, client: int) -> tuple[list[int], list[int]]:
    """How far the others are from a client, and it from them."""
    edges = [(sender, receiver) for sender, row in enumerate(graph.out) for receiver in row]
    union: nx.DiGraph[int] = nx.DiGraph(edges)
    ahead, behind = (nx.single_source_shortest_path_length(way, client) for way in (union, union.reverse()))
    return sorted(ahead.values()), sorted(behind.values())


@pytest.mark.parametrize("kind", KINDS)
def test_every_client_sees_the_same_exactly_where_the_row_says_alike(kind: str) -> None:
    alike = []
    for graph in (graph for num_clients in (5, 6, 12, 16) for graph in rounds_of(kind, num_clients, 2)):
        views = [distances(graph, client) for client in graph.clients] if isinstance(graph, Graph) else []
        alike.append(bool(views) and all(view == views[0] for view in views))
    assert all(alike) if KINDS[kind].alike else not all(alike)


@pytest.mark.parametrize("kind", DRAWN)
def test_clients_have_as_many_neighbours_as_the_row_says(kind: str) -> None:
    rounds, p = 40, 0.4
    for num_clients in (12, 16):
        graphs = [others(draw(kind, num_clients, round_idx=t, out_degree=3, p=p)) for t in range(rounds)]
        found = np.mean([len(row) for graph in graphs for row in graph])
        expected = KINDS[kind].degree(num_clients, Options(out_degree=3, p=p))
        deviation = math.sqrt(2 * p * (1 - p) * (num_clients - 1) / num_clients / rounds)
        assert found == pytest.approx(expected, abs=4.4 * deviation if KINDS[kind].uses == "p" else 1e-12)
    if KINDS[kind].uses != "p":
        for num_clients in range(1, 12):
            k = min(3, num_clients - 1)
            most = KINDS[kind].degree(num_clients, Options(out_degree=k))
            assert all(len(row) <= most for row in others(draw(kind, num_clients, out_degree=k)))


OTHER_OPTIONS: dict[str, dict[str, Any]] = {
    "out_degree": {"out_degree": 2},
    "p": {"p": 0.8},
    "participation": {"participation": 0.8},
    "file": {"graphs": [make_graph([[1], [2], [3], [4], [5], [6], [7], [0]])]},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_depends_on_the_option_that_its_row_names_alone(kind: str) -> None:
    before = rounds_of(kind, 8, 3)
    shaped_by = [name for name, options in OTHER_OPTIONS.items() if rounds_of(kind, 8, 3, **options) != before]
    uses = KINDS[kind].uses
    assert shaped_by == ([uses] if uses else [])
    with_losses = rounds_of(kind, 8, 3, losses=[0.0, 9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0])
    assert (with_losses != before) == KINDS[kind].needs_losses


@pytest.mark.parametrize("kind", KINDS)
def test_metropolis_weights_are_allowed_exactly_where_they_can_be(kind: str) -> None:
    row = KINDS[kind]
    assert ("metropolis" in row.weights) == (row.symmetric or row.names_weights)
    assert row.is_server == isinstance(round_graph(kind, 5), Server)


# The structure of the kinds that are not random.


@pytest.mark.parametrize(
    ("kind", "num_clients", "expected"),
    [
        ("ring", 1, [set()]),
        ("ring", 2, [{1}, {0}]),
        ("ring", 5, [{4, 1}, {0, 2}, {1, 3}, {2, 4}, {3, 0}]),
        ("directed_ring", 1, [set()]),
        ("directed_ring", 4, [{1}, {2}, {3}, {0}]),
        ("grid", 1, [set()]),
        ("grid", 4, [{1, 2}, {0, 3}, {0, 3}, {1, 2}]),
        ("grid", 6, [{1, 2, 3}, {0, 2, 4}, {0, 1, 5}, {4, 5, 0}, {3, 5, 1}, {3, 4, 2}]),
        ("exponential", 1, [set()]),
        ("exponential", 2, [{1}, {0}]),
        ("exponential", 8, [{(i + 1) % 8, (i + 2) % 8, (i + 4) % 8} for i in range(8)]),
        ("exponential", 6, [{(i + 1) % 6, (i + 2) % 6, (i + 4) % 6} for i in range(6)]),
        ("exponential", 9, [{(i + 1) % 9, (i + 2) % 9, (i + 4) % 9, (i + 8) % 9} for i in range(9)]),
        ("full", 1, [set()]),
        ("full", 3, [{1, 2}, {0, 2}, {0, 1}]),
    ],
)
def test_small_graphs_by_hand(kind: str, num_clients: int, expected: list[set[int]]) -> None:
    for round_idx in (0, 1, 7):
        assert others(draw(kind, num_clients, seed=round_idx, round_idx=round_idx)) == expected


def test_grid_is_a_torus_as_square_as_can_be() -> None:
    twelve = others(draw("grid", 12))  # 0 1 2 3 | 4 5 6 7 | 8 9 10 11
    assert [twelve[0], twelve[5], twelve[11]] == [{1, 3, 4, 8}, {4, 6, 1, 9}, {10, 8, 7, 3}]
    assert {len(row) for num_clients in (9, 12, 16, 30) for row in others(draw("grid", num_clients))} == {4}
    for prime in (2, 3, 5, 7, 13, 37):
        assert others(draw("grid", prime)) == others(draw("ring", prime))


@pytest.mark.parametrize(("num_clients", "hops"), [(1, [0, 0]), (2, [1, 1]), (6, [1, 2, 4, 1]), (8, [1, 2, 4, 1, 2])])
def test_one_peer_exponential_takes_the_hops_in_turn(num_clients: int, hops: list[int]) -> None:
    for round_idx, hop in enumerate(hops):
        expected = [{(client + hop) % num_clients} - {client} for client in range(num_clients)]
        assert others(draw("one_peer_exponential", num_clients, round_idx=round_idx)) == expected


def test_one_peer_exponential_averages_exactly_in_a_period() -> None:
    P = [matrix(make_graph(draw("one_peer_exponential", 8, round_idx=t))) for t in range(3)]
    assert (P[2] @ P[1] @ P[0] == 1 / 8).all()


# Random kinds: degrees, and every choice as likely as it should be.


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    num_clients = draw(st.integers(1, 40))
    return num_clients, draw(st.integers(0, num_clients - 1))


@pytest.mark.parametrize("kind", ["random_directed", "by_loss"])
@given(sizes(), st.integers(0, 2**32), st.booleans())
def test_directed_kinds_have_the_out_degree_exactly(kind: str, size: tuple[int, int], seed: int, known: bool) -> None:
    num_clients, out_degree = size
    losses = tuple(np.random.default_rng(seed).exponential(size=num_clients)) if known else None
    neighbors = draw(kind, num_clients, seed=seed, out_degree=out_degree, losses=losses)
    assert {len(row) for row in neighbors} == {out_degree}
    assert {len(row) for row in others(neighbors)} == {out_degree}, "distinct, and never itself"


@pytest.mark.parametrize(
    ("kind", "losses"),
    [
        ("random_directed", None),
        ("by_loss", None),  # round 0
        ("by_loss", (2.5,) * 6),
        ("by_loss", (0.0, 1e-300, -1e-300, 0.0, 2e-300, 1e-17)),
    ],
)
@pytest.mark.parametrize("out_degree", [1, 2, 3, 4])  # up to 2 of 5 random_directed draws again who comes twice
def test_every_set_of_neighbours_is_as_likely(kind: str, out_degree: int, losses: tuple[float, ...] | None) -> None:
    rounds = 1000
    drawn = Counter[tuple[int, frozenset[int]]]()
    for t in range(rounds):
        rows = others(draw(kind, 6, round_idx=t, out_degree=out_degree, losses=losses))
        drawn.update((client, frozenset(row)) for client, row in enumerate(rows))
    sets = {i: [*map(frozenset, combinations(sorted(set(range(6)) - {i}), out_degree))] for i in range(6)}
    expected = {(client, chosen): rounds / len(sets[client]) for client in sets for chosen in sets[client]}
    assert p_value(drawn, expected, sum(len(choices) - 1 for choices in sets.values())) > FALSE_ALARM


def test_random_symmetric_is_regular() -> None:
    for num_clients in range(1, 31):
        for k in range(num_clients):
            for seed in range(3):
                neighbors = draw("random_symmetric", num_clients, seed=seed, out_degree=k)
                assert is_symmetric(neighbors), f"{num_clients} clients, degree {k}"
                rows = others(neighbors)
                assert [len(row) for row in neighbors] == [len(row) for row in rows], "no loops, no doubles"
                odd = num_clients * k % 2
                degrees = sorted(map(len, rows))
                assert degrees == [k - 1] * odd + [k] * (num_clients - odd), f"{num_clients} clients, degree {k}"


@pytest.mark.parametrize(("num_clients", "k"), [(8, 3), (8, 5), (7, 3), (7, 5), (9, 2)])
def test_random_symmetric_joins_every_pair_as_likely(num_clients: int, k: int) -> None:
    edges, short = [], []
    choose = np.random.default_rng(1)
    for t in range(2000):
        rows = others(draw("random_symmetric", num_clients, round_idx=t, out_degree=k))
        pairs = [(i, j) for i, row in enumerate(rows) for j in sorted(row) if i < j]
        edges.append(pairs[choose.integers(len(pairs))])  # one of each graph: those of one graph depend on each other
        short += [client for client, row in enumerate(rows) if len(row) < k]
    assert uniform_p_value(edges, combinations(range(num_clients), 2)) > FALSE_ALARM
    if num_clients * k % 2:
        assert uniform_p_value(short, range(num_clients)) > FALSE_ALARM, "who has one neighbour less"


@pytest.mark.parametrize("k", [1, 4])
def test_random_symmetric_makes_every_matching_as_likely(k: int) -> None:
    """Six clients can be paired in 15 ways, and the graphs with 4 neighbours each are what those leave out."""
    graphs = [make_graph(draw("random_symmetric", 6, round_idx=t, out_degree=k)).out for t in range(2000)]
    assert len(set(graphs)) == 15
    assert uniform_p_value(graphs, set(graphs)) > FALSE_ALARM


def test_erdos_renyi_joins_nobody_or_everybody_at_the_ends() -> None:
    for num_clients in range(1, 20):
        assert others(draw("erdos_renyi", num_clients, p=0.0)) == [set()] * num_clients
        assert others(draw("erdos_renyi", num_clients, p=1.0)) == others(draw("full", num_clients))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_erdos_renyi_joins_every_pair_with_probability_p(p: float) -> None:
    rounds, pairs = 1000, list(combinations(range(9), 2))
    joined = Counter[tuple[int, int]]()
    sizes = []
    for t in range(rounds):
        rows = others(draw("erdos_renyi", 9, round_idx=t, p=p))
        found = [(i, j) for i, j in pairs if j in rows[i]]
        joined.update(found)
        sizes.append(len(found))
    variance = p * (1 - p) * len(pairs)
    z = (np.mean(sizes) - p * len(pairs)) / math.sqrt(variance / rounds)
    assert abs(z) < 4.4, "above 4.4 happens once in 90,000"
    z = (np.var(sizes) / variance - 1) / math.sqrt(2 / rounds)
    assert abs(z) < 4.4, "as many more or less as independent edges have"
    outcomes = {(pair, True): joined[pair] for pair in pairs} | {(pair, False): rounds - joined[pair] for pair in pairs}
    expected = {(pair, there): rounds * (p if there else 1 - p) for pair, there in outcomes}
    assert p_value(outcomes, expected, len(pairs)) > FALSE_ALARM


def test_erdos_renyi_edge_count_of_a_large_graph() -> None:
    count, p = 400 * 399 / 2, 0.03
    edges = sum(map(len, others(draw("erdos_renyi", 400, p=p)))) / 2
    assert abs(edges - p * count) < 4.4 * math.sqrt(p * (1 - p) * count)


# Neighbour selection by loss: p(i→j) ∝ exp(|f_i − f_j|), without replacement.

LOSSES = [
    (0.0, 0.0, 0.0, 1.5, 1.5),
    (0.3, 1.0, 2.0, 2.4, 0.9),
    (-1.0, 0.5, 0.6, 1.2, -0.2),
    (1e6, 1e6 + 1, 1e6 + 1.5, 1e6 - 0.5, 1e6 + 0.25),
]
DRAWS = 2500
Formula = Callable[[float], float]  # of f_j − f_i


def right(difference: float) -> float:
    return math.exp(abs(difference))


WRONG: dict[str, Formula] = {
    "the most alike": lambda difference: math.exp(-abs(difference)),
    "uniform": lambda difference: 1.0,
    "the largest loss": math.exp,
    "steeper": lambda difference: math.exp(1.5 * abs(difference)),
    "not exponential": lambda difference: 1 + abs(difference),
}


@cache
def selections(losses: tuple[float, ...], out_degree: int) -> Counter[tuple[int, ...]]:
    """How often each client, named first, picked whom, in the order of the picks."""
    rounds = (draw("by_loss", len(losses), round_idx=t, out_degree=out_degree, losses=losses) for t in range(1, DRAWS))
    return Counter((client, *row) for neighbors in rounds for client, row in enumerate(neighbors))


def selection_p_value(picks: Counter[tuple[int, ...]], losses: tuple[float, ...], nth: int, formula: Formula) -> float:
    """How likely the nth picks are by chance, given the picks before, if the formula gives their probabilities."""
    before, counts = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    for chosen, times in picks.items():
        before[chosen[:nth]] += times
        counts[chosen[: nth + 1]] += times
    expected: dict[tuple[int, ...], float] = {}
    for taken in permutations(range(len(losses)), nth):
        rest = {j: formula(losses[j] - losses[taken[0]]) for j in range(len(losses)) if j not in taken}
        expected |= {(*taken, j): before[taken] * weight / sum(rest.values()) for j, weight in rest.items()}
    return p_value(counts, expected, len(expected) - math.perm(len(losses), nth))


@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize(("out_degree", "nth"), [(1, 1), (3, 1), (3, 2)])
def test_selection_follows_the_formula(losses: tuple[float, ...], out_degree: int, nth: int) -> None:
    assert selection_p_value(selections(losses, out_degree), losses, nth, right) > FALSE_ALARM


@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize(("out_degree", "nth"), [(1, 1), (3, 1), (3, 2)])
@pytest.mark.parametrize("name", WRONG)
def test_selection_would_notice_a_wrong_formula(
    name: str, losses: tuple[float, ...], out_degree: int, nth: int
) -> None:
    assert selection_p_value(selections(losses, out_degree), losses, nth, WRONG[name]) < FALSE_ALARM


SIZES = [0.0, 1e-300, 5e-324, 1e-17, 1.0, 700.0, 1e4, 1e17, 1e300, 8e307]


@given(
    st.lists(st.sampled_from(SIZES + [-size for size in SIZES]) | st.floats(-8e307, 8e307), min_size=1, max_size=12),
    st.integers(0, 12),
    st.integers(0, 2**32),
)
@example([1e300, -1e300, 1e300], 2, 0)
@example([0.0, 0.0, 0.0], 1, 0)
def test_selection_stands_losses_of_any_size(losses: list[float], out_degree: int, seed: int) -> None:
    out_degree = min(out_degree, len(losses) - 1)
    neighbors = draw("by_loss", len(losses), seed=seed, round_idx=1, out_degree=out_degree, losses=tuple(losses))
    assert {len(row) for row in others(neighbors)} == {out_degree}
    for client, picks in enumerate(neighbors):
        differences = np.abs(np.array(losses) - losses[client])
        left = [differences[j] for j in range(len(losses)) if j != client and j not in picks]
        assert all(differences[j] + 60 >= max(left, default=0.0) for j in picks), "exp(-60) is never picked"


@pytest.mark.parametrize("size", [1e16, 1e20, 1e300])
def test_selection_among_equally_far_losses_is_uniform(size: float) -> None:
    losses = (0.0, size, size, size, size)
    first = [draw("by_loss", 5, round_idx=t, out_degree=1, losses=losses)[0][0] for t in range(1, 1000)]
    assert uniform_p_value(first, range(1, 5)) > FALSE_ALARM


@pytest.mark.parametrize("diverged", [(math.nan, 0.0), (math.inf, 0.0), (1.7e308, -1.7e308)])
def test_selection_stands_clients_that_diverged(diverged: tuple[float, float]) -> None:
    """The run ends for it, but a graph may be drawn before rank 0 knows."""
    for seed in range(5):
        neighbors = draw("by_loss", 5, seed=seed, out_degree=2, losses=(1.0, *diverged, 2.0, 3.0))
        assert {len(row) for row in others(neighbors)} == {2}
