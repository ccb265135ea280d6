"""Who pushes to whom in a round, and with which weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from dfl_dist.errors import ArgumentError

Neighbors = Sequence[Sequence[int]]  # the out-neighbours of each client; naming itself is allowed and changes nothing


@dataclass(frozen=True)
class Graph:
    """A directed graph: the sorted out-neighbours of each client, itself included, and how its mass is shared."""

    out: tuple[tuple[int, ...], ...]
    weights: str = "out-degree"

    @property
    def clients(self) -> Sequence[int]:
        """Those that train in the round: all."""
        return range(len(self.out))

    @cached_property
    def shares(self) -> tuple[tuple[float, ...], ...]:
        """The weights p_{j,i} of each client i, one for each j of out[i]: they sum to 1."""
        return WEIGHTS[self.weights](self.out)

    def share(self, sender: int, receiver: int) -> float:
        """The part of its mass that a client pushes to an out-neighbour, or keeps."""
        return self.shares[sender][self.out[sender].index(receiver)]

    @cached_property
    def in_neighbors(self) -> tuple[tuple[tuple[int, float], ...], ...]:
        """The in-neighbours of each client, itself left out, in order, and the weights they use for it."""
        found: list[list[tuple[int, float]]] = [[] for _ in self.out]
        for sender, (receivers, shares) in enumerate(zip(self.out, self.shares, strict=True)):
            for receiver, share in zip(receivers, shares, strict=True):
                if receiver != sender:
                    found[receiver].append((sender, share))
        return tuple(map(tuple, found))

    def split(self, w: Sequence[float]) -> tuple[list[float], list[float]]:
        """What each client keeps of its w in an exchange, and what the others push to it."""
        kept = [self.share(client, client) * weight for client, weight in enumerate(w)]
        return kept, [sum(share * w[sender] for sender, share in parts) for parts in self.in_neighbors]

    def record(self) -> dict[str, Any]:
        """What topology.jsonl says of it."""
        return {"out": self.out, "weights": self.weights}


@dataclass(frozen=True)
class Server:
    """A round without a graph: some clients train, and a server averages them."""

    clients: tuple[int, ...]
    weights: str = "server"

    def split(self, w: Sequence[float]) -> tuple[list[float], list[float]]:
        """Nothing is pushed: every client keeps its w."""
        return list(w), [0.0] * len(w)

    def record(self) -> dict[str, Any]:
        return {"out": None, "clients": self.clients, "weights": self.weights}


RoundGraph = Graph | Server


# Weights: how much of its mass a client pushes to each of its out-neighbours.


def out_degree_weights(out: Neighbors) -> tuple[tuple[float, ...], ...]:
    """p_{j,i} = 1/|N_out_i|, the same for all, itself included: every column of P sums to 1."""
    return tuple((1.0 / len(row),) * len(row) for row in out)


def metropolis_weights(out: Neighbors) -> tuple[tuple[float, ...], ...]:
    """p_{j,i} = 1/(1 + max(d_i, d_j)) for neighbours, the rest for itself: rows of P sum to 1 as well."""
    degrees = [len(row) - 1 for row in out]
    shares = []
    for client, (row, degree) in enumerate(zip(out, degrees, strict=True)):
        found = [1.0 / (1 + max(degree, degrees[peer])) for peer in row]
        own = row.index(client)
        found[own] = 0.0
        found[own] = 1.0 - sum(found)
        shares.append(tuple(found))
    return tuple(shares)


WEIGHTS: dict[str, Callable[[Neighbors], tuple[tuple[float, ...], ...]]] = {
    "out-degree": out_degree_weights,
    "metropolis": metropolis_weights,
}


def make_graph(neighbors: Neighbors, weights: str = "out-degree") -> Graph:
    """A graph from out-neighbour lists; self-loops are added, order does not matter."""
    out = tuple(tuple(sorted({client, *map(int, row)})) for client, row in enumerate(neighbors))
    if weights == "metropolis" and not is_symmetric(out):
        raise ArgumentError("weights", "metropolis on a directed graph", "out-degree")
    return Graph(out, weights)


def is_symmetric(out: Neighbors) -> bool:
    """Whether every edge goes both ways."""
    senders = np.repeat(np.arange(len(out)), [len(row) for row in out])
    receivers = np.fromiter(chain.from_iterable(out), np.int64, len(senders))
    there, back = senders * len(out) + receivers, receivers * len(out) + senders
    return np.array_equal(np.unique(there), np.unique(back))
