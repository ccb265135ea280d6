"""Graphs as tests draw them and look at them."""

import numpy as np
from hypothesis import strategies as st

from dfl_dist.randomness import stream
from dfl_dist.topology.graph import Graph, Neighbors, Server, make_graph
from dfl_dist.topology.kinds import KINDS, Options

DRAWN = [name for name, kind in KINDS.items() if kind.uses not in ("file", "participation")]
SYMMETRIC = [name for name in DRAWN if KINDS[name].symmetric]


def draw(
    kind: str,
    num_clients: int,
    *,
    seed: int = 0,
    round_idx: int = 0,
    out_degree: int = 0,
    p: float = 0.5,
    losses: tuple[float, ...] | None = None,
) -> Neighbors:
    """What a kind of graph draws in a round of a run with this seed."""
    options = Options(out_degree=out_degree, p=p, losses=losses)
    drawn = KINDS[kind].draw(num_clients, round_idx, stream(seed, "graph", round_idx=round_idx), options)
    assert not isinstance(drawn, Graph | Server)
    return drawn


def matrix(graph: Graph) -> np.ndarray:
    """P: the part of its mass that the client of a column pushes to the client of a row."""
    P = np.zeros((len(graph.out), len(graph.out)))
    for sender, (receivers, shares) in enumerate(zip(graph.out, graph.shares, strict=True)):
        P[list(receivers), sender] = shares
    return P


def draw_graph(kind: str, num_clients: int, round_idx: int = 0, out_degree: int = 3) -> Graph:
    """What a kind of graph draws, with the weights that it has by itself."""
    neighbors = draw(kind, num_clients, round_idx=round_idx, out_degree=out_degree)
    return make_graph(neighbors, KINDS[kind].weights[-1])


@st.composite
def schedules(draw: st.DrawFn) -> list[Graph]:
    """A few sparse graphs, some of which come again as the same object."""
    count = draw(st.integers(1, 8))
    rows = st.lists(st.sets(st.integers(0, count - 1), max_size=2).map(sorted), min_size=count, max_size=count)
    distinct = [make_graph(neighbors) for neighbors in draw(st.lists(rows, min_size=1, max_size=5))]
    return draw(st.lists(st.sampled_from(distinct), min_size=1, max_size=10))
