"""Graphs from a file: one JSON object per line, as topology.jsonl has them."""

import json
from pathlib import Path

from dfl_dist.errors import ArgumentError
from dfl_dist.topology.graph import WEIGHTS, Graph, make_graph

LINES = 'one JSON object per line, with lists of client numbers under "out"'


class LineError(ValueError):
    """What is wrong with a line; completes "line 3 …"."""


def read_graphs(path: Path, num_clients: int, weights: str = "auto") -> list[Graph]:
    """The graphs of a file, each with its out-neighbour lists under `out`."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError("file", f"{path}, which cannot be read: {error}", LINES) from error
    graphs = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                graphs.append(read_graph(line, num_clients, weights))
            except LineError as error:
                raise ArgumentError("file", f"{path}, whose line {number} {error}", LINES) from error
    if not graphs:
        raise ArgumentError("file", f"{path}, which holds no graph", LINES)
    return graphs


def read_graph(line: str, num_clients: int, weights: str) -> Graph:
    """A graph from its line; the weights it names count where none are asked for."""
    try:
        content = json.loads(line)
        neighbors, named = content["out"], content.get("weights", "out-degree")
        listed = type(neighbors) is list and all(type(row) is list for row in neighbors)
        inside = listed and all(type(peer) is int and 0 <= peer < num_clients for row in neighbors for peer in row)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LineError('is not a JSON object with lists under "out"') from error
    named = weights if weights != "auto" else named
    if named not in list(WEIGHTS):
        raise LineError(f"has weights {named}, allowed: {' or '.join(WEIGHTS)}")
    if not inside or len(neighbors) != num_clients:
        found = f"; it has {len(neighbors)}" if listed and len(neighbors) != num_clients else ""
        raise LineError(f"must have {num_clients} lists of client numbers 0 to {num_clients - 1} (num_clients){found}")
    try:
        return make_graph(neighbors, named)
    except ArgumentError as error:
        raise LineError(f"has weights {named} and is not symmetric, allowed: out-degree") from error
