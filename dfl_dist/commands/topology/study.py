"""What is found out of one graph for `dfl-dist topology`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dfl_dist.config.resolve import resolve
from dfl_dist.config.schema import Config
from dfl_dist.config.values import ask, replace
from dfl_dist.data.datasets import DATASETS
from dfl_dist.errors import refusal
from dfl_dist.topology.averaging import Averaging, average
from dfl_dist.topology.connectivity import Mixing, diameter, make_mixing, smallest_window
from dfl_dist.topology.kinds import KINDS, Options
from dfl_dist.topology.schedule import Schedule
from dfl_dist.training.build import load_dataset, make_module

NEUTRAL = {"rank0": "client", "participation": None, "server_lr": 1.0}  # whatever a config says of ranks and servers
COLUMNS = 8  # numbers that each client starts the averaging with
MOST_EDGES = 5_000_000  # in a round
MOST_EDGES_KEPT = 50_000_000  # in all rounds together, of graphs that change


@dataclass(frozen=True)
class Study:
    """What is known of one graph."""

    config: Config
    weights: str
    rounds: list[Mixing]
    window: int | None
    diameter: int | None
    averaging: Averaging

    @property
    def edges_per_round(self) -> float:
        return float(np.mean([len(mixing.shares) for mixing in self.rounds]))


def study_settings(given: Mapping[str, Any], kind_name: str | None = None) -> Config:
    """The settings in force, as in a run, with one kind of graph; refused where there is none, or too much of it."""
    values = {**given, **NEUTRAL}
    if kind_name is not None:
        reads_file = kind_name in KINDS and KINDS[kind_name].uses == "file"
        values |= {"graph.kind": kind_name, "graph.file": given.get("graph.file") if reads_file else None}
    config = resolve(ask(values))
    name, kind, rounds = config.graph.kind, KINDS[config.graph.kind], config.rounds
    if kind.is_server:
        graphs = ", ".join(name for name, kind in KINDS.items() if not kind.is_server)
        raise refusal("graph.kind", name, f"{graphs}: a server has no graph")
    if kind.fixed:
        config = replace(config, {"graph.static": True})  # drawn once
    edges = expected_edges(config)
    if edges > MOST_EDGES:
        given_edges = f"{name} of {config.num_clients} clients, {edges:,} edges per round"
        raise refusal("graph.kind", given_edges, f"at most {MOST_EDGES:,}")
    if not config.graph.static and edges * rounds > MOST_EDGES_KEPT:
        raise refusal("rounds", f"{rounds} of {name}, {edges:,} edges each", f"at most {MOST_EDGES_KEPT // edges}")
    return config


def expected_edges(config: Config) -> int:
    """About how many edges a round has, before any is drawn; 0 for a file, which is small enough to be read."""
    options = Options(out_degree=config.graph.out_degree, p=config.graph.p or 0.0)
    return int(config.num_clients * KINDS[config.graph.kind].degree(config.num_clients, options))


def count_parameters(config: Config) -> int:
    """The size of the model that the settings name."""
    source = DATASETS.get(config.data.name)
    classes = source.classes if source else len(load_dataset(config.data).classes)
    module = make_module(config.model.name, classes)
    return sum(parameter.numel() for parameter in module.parameters())


def make_study(config: Config, schedule: Schedule) -> Study:
    """Draw the graphs of all rounds and find out about them."""
    arrays = lru_cache(maxsize=16)(make_mixing)  # the graph of a period is made once, and known again as the same
    rounds, weights = [], set()
    for round_idx in range(config.rounds):
        graph: Any = schedule.graph(round_idx, None)
        weights.add(graph.weights)
        rounds.append(arrays(graph))
    window = smallest_window([mixing.edges for mixing in rounds])
    farthest = None
    if window is not None:
        union = list(dict.fromkeys(mixing.edges for mixing in rounds[:window]))
        farthest = diameter(union, sources=[0] if KINDS[config.graph.kind].alike else None)
    start = np.random.default_rng(config.seed).normal(size=(config.num_clients, COLUMNS))
    found = average(rounds, start, gossip_steps=config.graph.gossip_steps, overlap=config.overlap)
    return Study(config, "/".join(sorted(weights)), rounds, window, farthest, found)
