"""Which settings mean something, given the others: a row for every setting that not all runs use."""

from collections.abc import Callable, Mapping

from dfl_dist.config.schema import Config
from dfl_dist.topology.kinds import KINDS, Kind

Use = Callable[[Config], bool]


def kind_of(config: Config) -> Kind:
    return KINDS[config.graph.kind]


def has_graph(config: Config) -> bool:
    """Whether clients push to each other."""
    return not kind_of(config).is_server


def weights_change(config: Config) -> bool:
    """Whether a client's w ever differs from 1: not with doubly stochastic weights, unless models are in flight."""
    return has_graph(config) and (config.graph.weights != "metropolis" or config.overlap > 0)


# A setting without a row means something in every run.
USED: Mapping[str, Use] = {
    "data.alpha": lambda config: config.data.partition == "dirichlet",
    "data.classes_per_client": lambda config: config.data.partition == "shards",
    "data.file": lambda config: config.data.partition == "file",
    "local.epochs": lambda config: config.local.steps is None,
    "local.steps": lambda config: config.local.steps is not None,
    "local.lr_decay": lambda config: config.local.schedule == "exponential",
    "local.step": weights_change,
    "graph.out_degree": lambda config: kind_of(config).uses in ("out_degree", "p"),  # p, not given, follows from it
    "graph.p": lambda config: kind_of(config).uses == "p",
    "graph.file": lambda config: kind_of(config).uses == "file",
    "graph.static": lambda config: has_graph(config) and not kind_of(config).fixed,
    "graph.weights": has_graph,
    "graph.gossip_steps": has_graph,
    "overlap": has_graph,
    "participation": lambda config: kind_of(config).uses == "participation",
    "server_lr": lambda config: kind_of(config).is_server,
}


def means_something(config: Config, key: str) -> bool:
    """Whether a setting changes anything in a run with these settings."""
    return key not in USED or USED[key](config)
