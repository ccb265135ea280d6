"""The graph of every round of a run: drawn, read from a file, or a server's choice of clients."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dfl_dist.topology import KINDS, SYMMETRIC, WEIGHTS, Graph, Options, RoundGraph, Server, make_graph

Losses = Sequence[float] | None
FILE, SERVER = "file", "server"
NAMES = (*KINDS, FILE, SERVER)


@dataclass(frozen=True)
class Schedule:
    """The graph of a round, given the clients' losses of the round before where it `needs_losses`."""

    graph: Callable[[int, Losses], RoundGraph]
    needs_losses: bool = False


def make_schedule(
    kind: str,
    num_clients: int,
    rng_of: Callable[[int], np.random.Generator],
    *,
    options: Options,
    weights: str,
    static: bool,
    file: str | None,
    participation: float,
) -> Schedule:
    """The schedule of a kind of graph; `static` freezes the graph of round 0."""
    if kind == SERVER:
        schedule = Schedule(lambda round_idx, _: draw_clients(num_clients, rng_of(round_idx), participation))
    elif kind == FILE:
        assert file is not None
        graphs = read_graphs(Path(file), num_clients, weights)
        schedule = Schedule(lambda round_idx, _: graphs[round_idx % len(graphs)])
    else:
        draw, in_force = KINDS[kind], weights_in_force(kind, weights)

        def graph(round_idx: int, losses: Losses) -> Graph:
            chosen = dataclasses.replace(options, losses=losses)
            return make_graph(draw(num_clients, round_idx, rng_of(round_idx), chosen), in_force)

        schedule = Schedule(graph, needs_losses=needs_losses(kind, static=static))
    if not static:
        return schedule
    frozen = schedule.graph(0, None)
    return Schedule(lambda *_: frozen)


def needs_losses(kind: str, *, static: bool) -> bool:
    """Whether the next graph can be known only after a round."""
    return kind == "by_loss" and not static


def weights_in_force(kind: str, weights: str) -> str:
    """What `auto` means for a kind of graph: metropolis where every edge goes both ways by kind.

    For a file it stays auto: its lines say themselves. A server has no weights to choose.
    """
    if kind in (FILE, SERVER):
        allowed = ["auto", *WEIGHTS] if kind == FILE else ["auto"]
    else:
        allowed = ["auto", "out-degree", *(["metropolis"] if kind in SYMMETRIC else [])]
    if weights not in allowed:
        raise ValueError(
            f"graph.weights: given {weights}, allowed: {' or '.join(allowed)}, with graph.kind {kind}; "
            f"metropolis is for {', '.join(sorted(SYMMETRIC))}"
        )
    if weights != "auto" or kind in (FILE, SERVER):
        return weights
    return "metropolis" if kind in SYMMETRIC else "out-degree"


def draw_clients(num_clients: int, rng: np.random.Generator, participation: float) -> Server:
    """The clients that train in a round of a server: a fraction of all, at least one."""
    count = max(1, int(round(participation * num_clients, 9) + 0.5))  # 0.29 of 50 is 14.5, whatever floats make of it
    return Server(tuple(sorted(rng.choice(num_clients, size=count, replace=False).tolist())))


def read_graphs(path: Path, num_clients: int, weights: str = "auto") -> list[Graph]:
    """Graphs from a file with a JSON object a line, each with the out-neighbour lists under `out`."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"graph.file: given {path}, which cannot be read: {error}") from error
    graphs = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                graphs.append(read_graph(line, num_clients, weights))
            except ValueError as error:
                raise ValueError(f"graph.file: {path}:{number} {error}") from error
    if not graphs:
        raise ValueError(f"graph.file: given {path}, which holds no graph, allowed: a line of JSON a round")
    return graphs


def read_graph(line: str, num_clients: int, weights: str) -> Graph:
    """A graph from its line; the weights it names count where none are asked for."""
    try:
        content = json.loads(line)
        neighbors, named = content["out"], content.get("weights", "out-degree")
        listed = type(neighbors) is list and all(type(row) is list for row in neighbors)
        inside = listed and all(type(peer) is int and 0 <= peer < num_clients for row in neighbors for peer in row)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError('is not a JSON object with lists under "out"') from error
    named = weights if weights != "auto" else named
    if named not in list(WEIGHTS):
        raise ValueError(f"has weights {named}, allowed: {' or '.join(WEIGHTS)}")
    if not inside or len(neighbors) != num_clients:
        found = f"; it has {len(neighbors)}" if listed and len(neighbors) != num_clients else ""
        raise ValueError(f"must have {num_clients} lists of client numbers 0 to {num_clients - 1} (num_clients){found}")
    try:
        return make_graph(neighbors, named)
    except ValueError as error:
        raise ValueError(f"has weights {named} and is not symmetric, allowed: out-degree") from error
