"""The kinds of graphs, one row each: how a round's graph is drawn, and all that is known of it before it is drawn.

Every kind is a pure function of (clients, round, generator, options).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dfl_dist.topology.graph import WEIGHTS, Graph, Neighbors, Server


@dataclass(frozen=True)
class Options:
    """What a kind of graph may depend on; each takes what it needs."""

    out_degree: int = 0
    p: float = 0.0
    losses: Sequence[float] | None = None  # of the round before, by client
    graphs: Sequence[Graph] = ()  # of a file
    participation: float = 1.0  # fraction of the clients that train in a round, with a server


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
    """One client per round: 1 ahead, then 2, then 4, …, then 1 again."""
    steps = hops(num_clients) or [0]
    return circulant(num_clients, [steps[round_idx % len(steps)]])


def full(num_clients: int, round_idx: int, rng: np.random.Generator, options: Options) -> Neighbors:
    """Everybody."""
    return [range(num_clients)] * num_clients


def from_file(num_clients: int, round_idx: int, rng: np.random.Generator, options: Options) -> Graph:
    """The graphs of a file, one per round, from the first again after the last."""
    return options.graphs[round_idx % len(options.graphs)]


def server(num_clients: int, round_idx: int, rng: np.random.Generator, options: Options) -> Server:
    """No graph: a fraction of the clients, at least one, trains and is averaged by a server."""
    exact = round(options.participation * num_clients, 9)  # 0.29 of 50 is 14.5, whatever floats make of it
    count = max(1, int(exact + 0.5))
    return Server(tuple(sorted(rng.choice(num_clients, size=count, replace=False).tolist())))


@dataclass(frozen=True)
class Kind:
    """All that is known of a kind of graph by its name alone."""

    draw: Callable[[int, int, np.random.Generator, Options], Neighbors | Graph | Server]
    degree: Callable[[int, Options], float]  # out-neighbours per client to expect, itself not counted
    uses: Literal["out_degree", "p", "file", "participation"] | None = None  # the option that shapes it, if any
    symmetric: bool = False  # every edge goes both ways
    needs_losses: bool = False  # known only after the round before
    fixed: bool = False  # the same in every round
    alike: bool = False  # every client sees the same graph around itself
    weights: tuple[str, ...] = ("out-degree",)  # those it may have; of several, `auto` means the last
    names_weights: bool = False  # says itself which weights it has: a file's lines

    @property
    def is_server(self) -> bool:
        return not self.weights


def chosen_degree(num_clients: int, options: Options) -> float:
    return options.out_degree


BOTH = tuple(WEIGHTS)
KINDS = {
    "random_directed": Kind(random_directed, chosen_degree, uses="out_degree"),
    "random_symmetric": Kind(random_symmetric, chosen_degree, uses="out_degree", symmetric=True, weights=BOTH),
    "by_loss": Kind(by_loss, chosen_degree, uses="out_degree", needs_losses=True),
    "ring": Kind(ring, lambda *_: 2, symmetric=True, fixed=True, alike=True, weights=BOTH),
    "directed_ring": Kind(directed_ring, lambda *_: 1, fixed=True, alike=True),
    "grid": Kind(grid, lambda *_: 4, symmetric=True, fixed=True, alike=True, weights=BOTH),
    "exponential": Kind(exponential, lambda n, _: len(hops(n)), fixed=True, alike=True),
    "one_peer_exponential": Kind(one_peer_exponential, lambda *_: 1, alike=True),
    "erdos_renyi": Kind(erdos_renyi, lambda n, options: options.p * (n - 1), uses="p", symmetric=True, weights=BOTH),
    "full": Kind(full, lambda n, _: n - 1, symmetric=True, fixed=True, alike=True, weights=BOTH),
    "file": Kind(from_file, lambda *_: 0, uses="file", weights=BOTH, names_weights=True),
    "server": Kind(server, lambda *_: 0, uses="participation", weights=()),
}


def kinds_that_use(option: str) -> list[str]:
    """The kinds that an option shapes."""
    return [name for name, kind in KINDS.items() if kind.uses == option]
