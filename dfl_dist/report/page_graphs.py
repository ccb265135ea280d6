"""The graph and the push weights of every round, packed for a page."""

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dfl_dist.algorithms.ledger import Ledger
from dfl_dist.errors import ArgumentError
from dfl_dist.report.read import Run
from dfl_dist.topology.graph import WEIGHTS, RoundGraph, Server, make_graph

MOST_CLIENTS = 1000  # the graph of more is neither drawn nor worth its bytes
TOLERANCE = 1e-6  # relative; what is recorded and what follows from the graphs differ by rounding only


def pack_graphs(run: Run, most_chars: int) -> dict[str, Any]:
    """What a page needs to draw the rounds of a run, in about `most_chars` characters; `trouble` says why not all.

    `graphs` are those that differ, `steps` says which of them was that of each round in `rounds`. A graph is, for
    each client in turn, the number of its out-neighbours and these, itself left out; with a server, those that trained.
    """
    lines = run.graphs()
    num_clients = run.config.num_clients
    if num_clients > MOST_CLIENTS:
        return {"trouble": f"Graphs are drawn for up to {MOST_CLIENTS:,} clients; this run has {num_clients:,}."}
    graphs = read_graphs(lines, num_clients)
    if not graphs:
        return {"trouble": "topology.jsonl is missing or holds no round yet."}
    weights = push_weights(run, graphs)
    distinct = {graph: number for number, graph in enumerate(dict.fromkeys(graphs))}
    packed = [pack_numbers(list_neighbors(graph), "<u2") for graph in distinct]
    order = [distinct[graph] for graph in graphs]
    chosen = choose_rounds(order, [len(text) for text in packed], 16 * num_clients // 3, most_chars)
    if not chosen:
        return {
            "trouble": "The graphs are too large to be shown beside this many runs; a page of this run alone has them."
        }
    used = {number: place for place, number in enumerate(dict.fromkeys(order[index] for index in chosen))}
    return {
        "clients": num_clients,
        "server": isinstance(graphs[0], Server),
        "weighting": graphs[0].weights,
        "recorded": len(graphs),
        "rounds": chosen,
        "steps": [used[order[index]] for index in chosen],
        "graphs": [packed[number] for number in used],
        "push_weights": pack_numbers((weight for index in chosen for weight in weights[index]), "<f4"),
        "trouble": find_trouble(run, lines, weights),
    }


def read_graphs(lines: Iterable[Mapping[str, Any]], num_clients: int) -> list[RoundGraph]:
    """The graphs of rounds 0, 1, … as far as the lines are sound; equal ones are one object and know their shares."""
    graphs: list[RoundGraph] = []
    seen: dict[RoundGraph, RoundGraph] = {}
    for line in lines:
        graph = read_graph(line, num_clients)
        if graph is None or line["round"] != len(graphs):
            break
        graphs.append(seen.setdefault(graph, graph))
    return graphs


def read_graph(line: Mapping[str, Any], num_clients: int) -> RoundGraph | None:
    """The graph of a line of topology.jsonl; None where the line makes no sense."""
    try:
        rows = [line["clients"]] if line["out"] is None else line["out"]
        if not all(type(peer) is int and 0 <= peer < num_clients for row in rows for peer in row):
            return None
        if line["out"] is None:
            return Server(tuple(rows[0]))
        known = len(rows) == num_clients and line["weights"] in WEIGHTS
        return make_graph(rows, line["weights"]) if known else None
    except (KeyError, TypeError, ArgumentError):
        return None


def push_weights(run: Run, graphs: Sequence[RoundGraph]) -> list[list[float]]:
    """Every client's w after each round: it follows from the graphs alone."""
    config = run.config
    ledger = Ledger([1.0] * config.num_clients, [], overlap=config.overlap, gossip_steps=config.graph.gossip_steps)
    found = []
    for round_idx, graph in enumerate(graphs):
        ledger.w = ledger.expect(graph, drained=round_idx + 1 == config.rounds)
        found.append(ledger.w)
    return found


def find_trouble(run: Run, lines: Sequence[Any], weights: Sequence[Sequence[float]]) -> str | None:
    """What a reader should know before trusting the picture."""
    if len(weights) < len(lines):
        return f"topology.jsonl is damaged after round {len(weights)}; later rounds are not shown."
    for line, expected in zip(run.lines, weights, strict=False):
        recorded = [line.get("push_weight_min"), line.get("push_weight_max")]
        pairs = zip(recorded, (min(expected), max(expected)), strict=True)
        if any(type(one) is float and not math.isclose(one, other, rel_tol=TOLERANCE) for one, other in pairs):
            return (
                f"From round {line['round'] + 1} on the push weights that were recorded differ from those shown here, "
                "which follow from the graphs alone."
            )
    return None


def list_neighbors(graph: RoundGraph) -> list[int]:
    """A graph as one list of numbers: for each row its length, then its clients."""
    rows = (
        [graph.clients]
        if isinstance(graph, Server)
        else [[peer for peer in row if peer != client] for client, row in enumerate(graph.out)]
    )
    return [number for row in rows for number in (len(row), *row)]


def pack_numbers(numbers: Iterable[float], form: str) -> str:
    """Numbers as text that a browser turns into a typed array."""
    return base64.b64encode(np.array(list(numbers), dtype=form).tobytes()).decode()


def evenly(count: int, most: int) -> list[int]:
    """At most `most` of 0 … count − 1, evenly chosen, with the first and the last if there may be two."""
    if most >= count:
        return list(range(count))
    return sorted({round(place * (count - 1) / max(1, most - 1)) for place in range(most)})


def choose_rounds(order: Sequence[int], sizes: Sequence[int], each: int, most_chars: int) -> list[int]:
    """As many rounds, evenly chosen, as fit; `each` comes with every round, a graph's size counts once."""
    most = len(order)
    while most:
        chosen = evenly(len(order), most)
        if sum(sizes[number] for number in {order[index] for index in chosen}) + each * len(chosen) <= most_chars:
            return chosen
        most = most * 9 // 10
    return []
