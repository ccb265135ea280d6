"""Who pushes to whom in each round, and with which weight: pure functions of (clients, round, generator, options)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

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
    def arriving(self) -> tuple[tuple[tuple[int, float], ...], ...]:
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
        return kept, [sum(share * w[sender] for sender, share in parts) for parts in self.arriving]

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
        raise ValueError("graph.weights: given metropolis on a directed graph, allowed: out-degree")
    return Graph(out, weights)


def is_symmetric(out: Neighbors) -> bool:
    """Whether every edge goes both ways."""
    senders = np.repeat(np.arange(len(out)), [len(row) for row in out])
    receivers = np.fromiter(chain.from_iterable(out), np.int64, len(senders))
    there, back = senders * len(out) + receivers, receivers * len(out) + senders
    return np.array_equal(np.unique(there), np.unique(back))


# The kinds of graphs.


@dataclass(frozen=True)
class Options:
    """What a kind of graph may depend on; each takes what it needs."""

    out_degree: int = 0
    p: float = 0.0
    losses: Sequence[float] | None = None  # of the round before, by client


def random_directed(num_clients: int, round_idx: int, rng: np.random.Generator, options: Options) -> Neighbors:
    """Every client picks `out_degree` others, uniformly and without replacement."""
    k, others = options.out_degree, num_clients - 1
    if k == 0:
        return [[] for _ in range(num_clients)]
    if k * k <= others:  # draw with replacement, and again those who drew somebody twice
        picks = np.sort(rng.integers(others, size=(num_clients, k)), axis=1)
        while len(twice := np.flatnonzero((np.diff(picks, axis=1) == 0).any(axis=1))):
            picks[twice] = np.sort(rng.integers(others, size=(len(twice), k)), axis=1)
    else:
        picks = np.stack([rng.choice(others, size=k, replace=False) for _ in range(num_clients)])
    neighbors: Neighbors = (picks + (picks >= np.arange(num_clients)[:, None])).tolist()
    return neighbors


def by_loss(num_clients: int, round_idx: int, rng: np.random.Generator, options: Options) -> Neighbors:
    """Client i picks `out_degree` others without replacement, with probability p(i→j) ∝ exp(|f_i − f_j|).

    The largest of log p + Gumbel noise are such a pick, and stay finite for losses of any size. Without losses, in
    round 0, the pick is uniform.
    """
    if options.losses is None:
        return random_directed(num_clients, round_idx, rng, options)
    losses = np.clip(np.nan_to_num(options.losses, nan=np.inf), -8e307, 8e307)  # their differences are numbers too
    neighbors = []
    for client in range(num_clients):
        noise = rng.gumbel(size=num_clients)
        scores = np.abs(losses[client] - losses) + noise
        scores[client] = -np.inf
        order = np.lexsort((-noise, -scores))  # the noise decides where rounding made scores equal
        neighbors.append(order[: options.out_degree].tolist())
    return neighbors


def random_symmetric(num_clients: int, round_idx: int, rng: np.random.Generator, options: Options) -> Neighbors:
    """A random graph in which all have `out_degree` neighbours; where that cannot be, one client has one less."""
    k, n = options.out_degree, num_clients
    degrees = np.full(n, k)
    if n * k % 2:
        degrees[rng.integers(n)] -= 1
    if 2 * k < n:
        return random_simple_graph(degrees, rng)
    absent = random_simple_graph(n - 1 - degrees, rng)  # a dense graph is what a sparse one leaves out
    return [sorted(set(range(n)) - {client, *row}) for client, row in enumerate(absent)]


def random_simple_graph(degrees: np.ndarray, rng: np.random.Generator) -> list[list[int]]:
    """A random undirected graph with these degrees: half-edges paired at random, loops and doubles switched away."""
    ends = np.repeat(np.arange(len(degrees)), degrees)
    while True:
        pairs = [(int(a), int(b)) for a, b in rng.permutation(ends).reshape(-1, 2)]
        if switch_to_simple(pairs, rng):
            neighbors: list[list[int]] = [[] for _ in degrees]
            for a, b in pairs:
                neighbors[a].append(b)
                neighbors[b].append(a)
            return neighbors


def switch_to_simple(pairs: list[tuple[int, int]], rng: np.random.Generator) -> bool:
    """Exchange ends between a bad pair (a loop, or one of two equal pairs) and a random other, until none is bad.

    Every switch leaves one bad pair less; False when a pair finds no partner in many tries, which few small graphs do.
    """
    seen: set[frozenset[int]] = set()
    bad = []
    for index, pair in enumerate(pairs):
        if pair[0] == pair[1] or frozenset(pair) in seen:
            bad.append(index)
        else:
            seen.add(frozenset(pair))
    waiting = set(bad)
    for index in bad:
        for _ in range(20 * len(pairs)):
            partner = int(rng.integers(len(pairs)))
            (a, b), (c, d) = pairs[index], pairs[partner]
            first, second = frozenset((a, c)), frozenset((b, d))
            simple = partner not in waiting and len(first) == len(second) == 2 and first != second
            if simple and first not in seen and second not in seen:
                seen.remove(frozenset((c, d)))
                seen |= {first, second}
                pairs[index], pairs[partner] = (a, c), (b, d)
                waiting.remove(index)
                break
        else:
            return False
    return True


def erdos_renyi(num_clients: int, round_idx: int, rng: np.random.Generator, options: Options) -> Neighbors:
    """Every two clients are neighbours with probability `p`."""
    count = num_clients * (num_clients - 1) // 2
    chosen = rng.choice(max(count, 1), size=rng.binomial(count, options.p), replace=False)
    neighbors: list[list[int]] = [[] for _ in range(num_clients)]
    for number in map(int, chosen):  # the pairs (1,0), (2,0), (2,1), (3,0), … are numbered 0, 1, 2, 3, …
        high = (1 + math.isqrt(1 + 8 * number)) // 2
        low = number - high * (high - 1) // 2
        neighbors[high].append(low)
        neighbors[low].append(high)
    return neighbors


def circulant(num_clients: int, steps: Sequence[int]) -> Neighbors:
    """Client i pushes to i + s, modulo the number of clients, for each step s."""
    return [[(client + step) % num_clients for step in steps] for client in range(num_clients)]


def ring(num_clients: int, round_idx: int, rng: np.random.Generator, options: Options) -> Neighbors:
    """The client before and the client after, in a circle."""
    return circulant(num_clients, (1, -1))


def directed_ring(num_clients: int, round_idx: int, rng: np.random.Generator, options: Options) -> Neighbors:
    """The client after, in a circle."""
    return circulant(num_clients, (1,))


def grid(num_clients: int, round_idx: int, rng: np.random.Generator, options: Options) -> Neighbors:
    """The four neighbours on a torus as square as can be; a prime number of clients makes a ring."""
    rows = next(rows for rows in range(math.isqrt(num_clients), 0, -1) if num_clients % rows == 0)
    columns = num_clients // rows
    neighbors = []
    for client in range(num_clients):
        row, column = divmod(client, columns)
        beside = [row * columns + (column + step) % columns for step in (1, -1)]
        above = [(row + step) % rows * columns + column for step in (1, -1)]
        neighbors.append(beside + above)
    return neighbors


def hops(num_clients: int) -> list[int]:
    """1, 2, 4, … below the number of clients."""
    return [2**power for power in range((num_clients - 1).bit_length())]


def exponential(num_clients: int, round_idx: int, rng: np.random.Generator, options: Options) -> Neighbors:
    """The clients 1, 2, 4, … ahead."""
    return circulant(num_clients, hops(num_clients))


def one_peer_exponential(num_clients: int, round_idx: int, rng: np.random.Generator, options: Options) -> Neighbors:
    """One client a round: 1 ahead, then 2, then 4, …, then 1 again."""
    steps = hops(num_clients) or [0]
    return circulant(num_clients, [steps[round_idx % len(steps)]])


def full(num_clients: int, round_idx: int, rng: np.random.Generator, options: Options) -> Neighbors:
    """Everybody."""
    return [range(num_clients)] * num_clients


KINDS: dict[str, Callable[[int, int, np.random.Generator, Options], Neighbors]] = {
    "random_directed": random_directed,
    "random_symmetric": random_symmetric,
    "by_loss": by_loss,
    "ring": ring,
    "directed_ring": directed_ring,
    "grid": grid,
    "exponential": exponential,
    "one_peer_exponential": one_peer_exponential,
    "erdos_renyi": erdos_renyi,
    "full": full,
}
SYMMETRIC = frozenset({"random_symmetric", "ring", "grid", "erdos_renyi", "full"})  # every edge goes both ways
