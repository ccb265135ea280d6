"""Which clients reach which over a schedule of graphs, and how soon."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from dfl_dist.topology.graph import Graph

Lists = tuple[np.ndarray, np.ndarray]  # neighbour lists: client i's are targets[starts[i] : starts[i + 1]]
SOURCES_AT_ONCE = 1024  # so that their bits, for 10,000 clients, stay in the processor's cache


@dataclass(frozen=True, eq=False)
class Edges:
    """Who pushes to whom, as arrays in the order of the sender: the edges of a graph without its self-loops."""

    num_clients: int
    senders: np.ndarray
    receivers: np.ndarray

    @cached_property
    def ahead(self) -> Lists:
        """The out-neighbours of each client."""
        return starts_of(self.senders, self.num_clients), self.receivers

    @cached_property
    def behind(self) -> Lists:
        """The in-neighbours of each client."""
        order = np.argsort(self.receivers, kind="stable")
        return starts_of(self.receivers, self.num_clients), self.senders[order]


@dataclass(frozen=True, eq=False)
class Mixing:
    """A graph as arrays with its weights: what each client keeps, and what it pushes over each edge."""

    edges: Edges
    own: np.ndarray  # [clients]
    shares: np.ndarray  # [edges]

    @cached_property
    def matrix(self) -> np.ndarray | None:
        """The weights p_{j,i}, i ≠ j, as a matrix, where there are so many edges that this is faster."""
        count, edges = self.edges.num_clients, self.edges
        if 8 * len(self.shares) < count**2:
            return None
        matrix = np.zeros((count, count))
        matrix[edges.receivers, edges.senders] = self.shares
        return matrix

    def push(self, values: np.ndarray) -> np.ndarray:
        """What each client gets of the others' values: [clients, columns]."""
        if self.matrix is not None:
            pushed: np.ndarray = self.matrix @ values
            return pushed
        senders, receivers = self.edges.senders, self.edges.receivers
        columns = [np.bincount(receivers, self.shares * column[senders], len(values)) for column in values.T]
        return np.stack(columns, axis=1)


def pairs(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """The senders and receivers of a graph, self-loops included."""
    degrees = np.fromiter(map(len, graph.out), np.int64, len(graph.out))
    receivers = np.fromiter(chain.from_iterable(graph.out), np.int32, degrees.sum())
    return np.repeat(np.arange(len(degrees), dtype=np.int32), degrees), receivers


def make_edges(graph: Graph) -> Edges:
    """The edges of a graph, for those who do not need its weights."""
    senders, receivers = pairs(graph)
    others = senders != receivers
    return Edges(len(graph.out), senders[others], receivers[others])


def make_mixing(graph: Graph) -> Mixing:
    """The edges and weights of a graph."""
    senders, receivers = pairs(graph)
    others = senders != receivers
    shares = np.fromiter(chain.from_iterable(graph.shares), np.float64, len(senders))
    own = np.zeros(len(graph.out))
    own[senders[~others]] = shares[~others]
    return Mixing(Edges(len(graph.out), senders[others], receivers[others]), own, shares[others])


def starts_of(clients: np.ndarray, num_clients: int) -> np.ndarray:
    """Where each client's entries begin among sorted ones, and where the last end."""
    return np.concatenate([[0], np.cumsum(np.bincount(clients, minlength=num_clients))])


# Who reaches whom.


def follow(lists: Lists, clients: np.ndarray) -> np.ndarray:
    """The neighbours of all these clients, one list after the other."""
    starts, targets = lists
    begins = starts[clients]
    counts = starts[clients + 1] - begins
    ends = np.cumsum(counts)
    found: np.ndarray = targets[np.repeat(begins - (ends - counts), counts) + np.arange(ends[-1])]
    return found


def reach(union: Sequence[Lists], num_clients: int, source: int) -> tuple[int, int]:
    """How many clients can be reached from one, itself counted, and how many steps the farthest of them is away."""
    seen = np.zeros(num_clients, dtype=bool)
    seen[source] = True
    place = np.empty(num_clients, dtype=np.int64)
    front, steps, count = np.array([source]), 0, 1
    while True:
        found = np.concatenate([follow(lists, front) for lists in union])
        found = found[~seen[found]]
        if not len(found):
            return count, steps
        seen[found] = True
        place[found] = numbers = np.arange(len(found))
        front = found[place[found] == numbers]  # each once
        steps, count = steps + 1, count + len(front)


def is_strongly_connected(union: Sequence[Edges]) -> bool:
    """Whether everybody reaches everybody over the edges of all these graphs together."""
    num_clients = union[0].num_clients
    ahead, behind = [edges.ahead for edges in union], [edges.behind for edges in union]
    return all(reach(lists, num_clients, 0)[0] == num_clients for lists in (ahead, behind))


def connected_within(graphs: Iterable[Graph]) -> int | None:
    """How many graphs, from the first on, it takes until their union is strongly connected; None if it never is.

    Takes no more graphs than it needs to know.
    """
    union: list[Edges] = []
    previous: Graph | None = None
    for number, graph in enumerate(graphs, start=1):
        if graph is previous:
            continue
        previous, before = graph, sum(len(edges.senders) for edges in union)
        union = [unite([*union, make_edges(graph)])]
        grown = len(union[0].senders) > before
        if (grown or number == 1) and is_strongly_connected(union):
            return number
    return None


def unite(union: Sequence[Edges]) -> Edges:
    """The edges of several graphs, each once."""
    num_clients = union[0].num_clients
    keys = [edges.senders.astype(np.int64) * num_clients + edges.receivers for edges in union]
    senders, receivers = np.divmod(np.unique(np.concatenate(keys)), num_clients)
    return Edges(num_clients, senders, receivers)


def smallest_window(rounds: Sequence[Edges]) -> int | None:
    """The smallest B such that every B graphs in a row have a strongly connected union; None if all together have not.

    A graph that comes again should be the same object: windows of the same graphs are looked at once.
    """
    known: dict[frozenset[int], bool] = {}
    window, start = 1, 0
    while start + window <= len(rounds):
        union = {id(edges): edges for edges in rounds[start : start + window]}
        key = frozenset(union)
        if key not in known:
            known[key] = is_strongly_connected(list(union.values()))
        if known[key]:
            start += 1
        else:
            window += 1  # earlier windows only grow by it, and so stay connected
    return window if window <= len(rounds) else None


def diameter(union: Sequence[Edges], sources: Sequence[int] | None = None) -> int | None:
    """The most steps that any client is away from any other over the edges of these graphs; None if out of reach.

    `sources` are the clients to start from; one is enough where all of them see the same graph.
    """
    num_clients = union[0].num_clients
    if sources is not None:
        found = [reach([edges.ahead for edges in union], num_clients, source) for source in sources]
        return max(steps for _, steps in found) if all(count == num_clients for count, _ in found) else None
    if not is_strongly_connected(union):
        return None
    layers = make_layers(unite(union))
    blocks = range(0, num_clients, SOURCES_AT_ONCE)
    return max(most_steps(layers, num_clients, range(num_clients)[start : start + SOURCES_AT_ONCE]) for start in blocks)


def make_layers(edges: Edges) -> list[tuple[np.ndarray, np.ndarray]]:
    """The edges as (receivers, senders) in layers that hold a receiver once: the first in-neighbours of all, …"""
    starts, senders = edges.behind
    receivers = np.repeat(np.arange(edges.num_clients), np.diff(starts))
    numbers = np.arange(len(senders)) - starts[receivers]
    order = np.argsort(numbers, kind="stable")
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    return list(zip(np.split(receivers[order], cuts), np.split(senders[order], cuts), strict=True))


def most_steps(layers: list[tuple[np.ndarray, np.ndarray]], num_clients: int, sources: range) -> int:
    """The most steps from any of the sources to any client, in a strongly connected graph.

    Row i of `reached` has a bit for each source that has reached client i; a step is an "or" along all edges.
    """
    reached = np.zeros((num_clients, -(-len(sources) // 64)), dtype=np.uint64)
    bits = np.arange(len(sources))
    one_each = np.uint64(1) << (bits % 64).astype(np.uint64)
    reached[list(sources), bits // 64] = one_each
    everyone = np.zeros(reached.shape[1], dtype=np.uint64)
    np.bitwise_or.at(everyone, bits // 64, one_each)
    steps = 0
    while not (reached == everyone).all():
        before, steps = reached.copy(), steps + 1
        for receivers, senders in layers:
            reached[receivers] |= before[senders]
    return steps
