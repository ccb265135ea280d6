"""The graph of every round of a run: drawn, read from a file, or a server's choice of clients."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dfl_dist.errors import ArgumentError
from dfl_dist.topology.graph import Graph, RoundGraph, Server, make_graph
from dfl_dist.topology.kinds import KINDS, Kind, Options

Losses = Sequence[float] | None


@dataclass(frozen=True)
class Schedule:
    """The graph of a round, given the clients' losses of the round before where it `needs_losses`."""

    graph: Callable[[int, Losses], RoundGraph]
    needs_losses: bool = False


def make_schedule(
    kind: Kind,
    num_clients: int,
    rng_of: Callable[[int], np.random.Generator],
    *,
    options: Options,
    weights: str,
    static: bool,
) -> Schedule:
    """The schedule of a kind of graph, with weights in force; `static` freezes the graph of the first round."""

    def graph(round_idx: int, losses: Losses) -> RoundGraph:
        chosen = dataclasses.replace(options, losses=losses)
        drawn = kind.draw(num_clients, round_idx, rng_of(round_idx), chosen)
        return drawn if isinstance(drawn, Graph | Server) else make_graph(drawn, weights)

    if not static:
        return Schedule(graph, needs_losses=kind.needs_losses)
    frozen = graph(0, None)
    return Schedule(lambda *_: frozen)


def weights_in_force(kind_name: str, weights: str) -> str:
    """What `auto` means for a kind of graph: metropolis where every edge goes both ways by kind.

    For a file it stays auto: its lines say themselves. A server has no weights to choose.
    """
    kind = KINDS[kind_name]
    allowed = ["auto", *kind.weights]
    if weights not in allowed:
        symmetric = ", ".join(sorted(name for name, other in KINDS.items() if other.symmetric))
        raise ArgumentError(
            "weights", weights, f"{' or '.join(allowed)}, with graph.kind {kind_name}; metropolis is for {symmetric}"
        )
    if weights != "auto" or kind.names_weights or kind.is_server:
        return weights
    return kind.weights[-1]
