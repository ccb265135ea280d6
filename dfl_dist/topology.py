"""Who pushes to whom in each round, and with which weight: pure functions of (clients, round, generator)."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Graph:
    """A directed graph: the sorted out-neighbours of each client, itself included."""

    out: tuple[tuple[int, ...], ...]
    weights: str = "out-degree"

    @property
    def num_clients(self) -> int:
        return len(self.out)

    def share(self, sender: int) -> float:
        """The weight p_{j,sender} = 1/|N_out| that each out-neighbour j gets."""
        return 1.0 / len(self.out[sender])

    @cached_property
    def in_neighbors(self) -> tuple[tuple[int, ...], ...]:
        """The sorted in-neighbours of each client, itself included."""
        found: list[list[int]] = [[] for _ in self.out]
        for sender, receivers in enumerate(self.out):
            for receiver in receivers:
                found[receiver].append(sender)
        return tuple(tuple(senders) for senders in found)


@dataclass(frozen=True)
class Schedule:
    """The graph of each round, and the most edges any of them has (self-loops counted)."""

    graph: Callable[[int], Graph]
    max_edges: int


def from_neighbors(neighbors: Sequence[Sequence[int]]) -> Graph:
    """A graph from out-neighbour lists; self-loops are added, order does not matter."""
    return Graph(tuple(tuple(sorted({client, *map(int, row)})) for client, row in enumerate(neighbors)))


def random_directed(num_clients: int, rng: np.random.Generator, *, out_degree: int) -> Graph:
    """Every client picks `out_degree` others, uniformly and without replacement."""
    neighbors = []
    for client in range(num_clients):
        picks = rng.choice(num_clients - 1, size=out_degree, replace=False)
        neighbors.append((picks + (picks >= client)).tolist())
    return from_neighbors(neighbors)


def read_graphs(path: Path, num_clients: int) -> list[Graph]:
    """Graphs from a file with a JSON object a line, each with the out-neighbour lists under `out`."""
    graphs = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"graph.file: given {path}, which cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            graph = json.loads(line)
            neighbors, weights = graph["out"], graph.get("weights", "out-degree")
            listed = type(neighbors) is list and all(type(row) is list for row in neighbors)
            inside = listed and all(type(peer) is int and 0 <= peer < num_clients for row in neighbors for peer in row)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f'graph.file: {path}:{number} is not a JSON object with lists under "out"') from error
        if weights != "out-degree":
            raise ValueError(f"graph.file: {path}:{number} has weights {weights}, allowed: out-degree")
        if not inside or len(neighbors) != num_clients:
            raise ValueError(
                f"graph.file: {path}:{number} must have {num_clients} lists of client numbers 0 to {num_clients - 1}"
            )
        graphs.append(from_neighbors(neighbors))
    if not graphs:
        raise ValueError(f"graph.file: given {path}, which holds no graph, allowed: a line of JSON a round")
    return graphs


def random_directed_schedule(
    num_clients: int, rng_of: Callable[[int], np.random.Generator], *, out_degree: int, file: str | None
) -> Schedule:
    def graph(round_idx: int) -> Graph:
        return random_directed(num_clients, rng_of(round_idx), out_degree=out_degree)

    return Schedule(graph, num_clients * (out_degree + 1))


def file_schedule(
    num_clients: int, rng_of: Callable[[int], np.random.Generator], *, out_degree: int, file: str | None
) -> Schedule:
    assert file is not None
    graphs = read_graphs(Path(file), num_clients)
    return Schedule(
        lambda round_idx: graphs[round_idx % len(graphs)], max(sum(map(len, graph.out)) for graph in graphs)
    )


# Each makes a schedule from (num_clients, round -> generator) and the graph settings.
SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "random_directed": random_directed_schedule,
    "file": file_schedule,
}
