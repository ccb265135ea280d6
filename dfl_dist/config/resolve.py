"""The settings in force: what was asked, filled in from the algorithm's row and the defaults, and checked together."""

from collections.abc import Mapping
from typing import Any

from dfl_dist.algorithms.table import ALGORITHMS, Method
from dfl_dist.config.names import choose, is_import_path
from dfl_dist.config.schema import DEFAULT_CLIENTS, DEFAULTS, Config
from dfl_dist.config.values import Asked, make_config
from dfl_dist.data.datasets import DATASETS
from dfl_dist.errors import ConfigError, refusal, refused_as
from dfl_dist.models.zoo import MODELS
from dfl_dist.topology.kinds import KINDS, Kind, kinds_that_use
from dfl_dist.topology.schedule import weights_in_force

CLIP_NORM = 10.0  # the paper does not say so, but its numbers diverge without it
METHOD_KEYS = {  # the setting that each field of a method's row gives a value to
    "graph": "graph.kind",
    "rho": "local.rho",
    "momentum": "local.momentum",
    "epochs": "local.epochs",
    "gradient_at": "local.gradient_at",
    "participation": "participation",
}

FOLLOWS = {  # what the value in force of a setting follows from where it is not the one that was asked for
    "num_clients": "ranks",
    "model.name": "data set",
    "graph.kind": "graph.file",
    "graph.weights": "graph.kind",
    "out": "next free",
    "backend": "this host",
    "device": "this host",
    "threads": "this host",
}


def settings_of(method: Method) -> dict[str, Any]:
    """The settings that a method stands for, by key; None where it has no say."""
    return {key: getattr(method, field) for field, key in METHOD_KEYS.items()}


def resolve(asked: Asked, ranks: int | None = None) -> Config:
    """The config in force on this number of ranks; None is one process without torchrun.

    Nulls are filled from the algorithm's row, then from the defaults.
    """
    method = choose("algorithm", asked["algorithm"], ALGORITHMS)
    num_clients = count_clients(asked, ranks)
    kind_name = asked["graph.kind"] or ("file" if asked["graph.file"] is not None else method.graph)
    kind = choose("graph.kind", kind_name, KINDS)
    filled = fill_in(asked, method, kind, num_clients) | {"graph.kind": kind_name, "num_clients": num_clients}
    filled["model.name"] = model_of(asked)
    with refused_as(weights="graph.weights"):
        filled["graph.weights"] = weights_in_force(kind_name, asked["graph.weights"])
    values = {**asked, **filled}
    check_together(values, kind)
    return make_config(values)


def origin(key: str, value: object, given: Mapping[str, Any], config: Config) -> str:
    """Where the value in force of a setting comes from, where no run goes on: a word or two for people."""
    if given.get(key) is not None and given[key] == value:
        return "asked"
    if given.get(key) is None and settings_of(ALGORITHMS[config.algorithm]).get(key) == value is not None:
        return "algorithm"
    return FOLLOWS.get(key, "default") if value != DEFAULTS[key] else "default"


def fill_in(asked: Asked, method: Method, kind: Kind, num_clients: int) -> dict[str, Any]:
    """Values for what is not given."""
    out_degree = min(3, num_clients - 1) if asked["graph.out_degree"] is None else asked["graph.out_degree"]
    defaults = settings_of(method) | {
        "local.epochs": method.epochs if asked["local.steps"] is None else None,
        "local.step": "z" if asked["overlap"] > 0 else "x",
        "local.clip_norm": CLIP_NORM,
        "participation": (method.participation or 1.0) if kind.is_server else 1.0,
        "graph.out_degree": out_degree,
    }
    if kind.uses == "p":
        defaults["graph.p"] = min(1.0, out_degree / max(1, num_clients - 1))
    return {key: value for key, value in defaults.items() if asked[key] is None}


def check_together(values: Mapping[str, Any], kind: Kind) -> None:
    """Refuse values that are right by themselves and do not go together."""
    num_clients, name = values["num_clients"], values["graph.kind"]
    if values["graph.out_degree"] >= num_clients:
        allowed = f"0 to {num_clients - 1}, below the number of clients ({num_clients})"
        raise refusal("graph.out_degree", values["graph.out_degree"], allowed)
    of_server = {"overlap": 0, "graph.gossip_steps": 1, "graph.static": False}
    only = of_server if kind.is_server else {"participation": 1.0, "server_lr": 1.0}
    way_out = "" if kind.is_server else f"; graph.kind {' or '.join(kinds_that_use('participation'))} takes others"
    for key, value in only.items():
        if values[key] != value:
            raise refusal(key, values[key], f"{value}, with graph.kind {name}{way_out}")


def model_of(asked: Asked) -> str:
    """The model in force; with user-supplied data, `auto` means none."""
    name, model = asked["data.name"], asked["model.name"]
    if name not in DATASETS and not is_import_path(name):
        raise refusal("data.name", name, ", ".join(DATASETS) + " or package.module:function", DATASETS)
    if model != "auto":
        return str(model)
    if name not in DATASETS:
        raise refusal("model.name", "auto", f"{', '.join(MODELS)} or package.module:function, with data.name {name}")
    return DATASETS[name].model


def count_clients(asked: Asked, ranks: int | None) -> int:
    """How many clients the run has, refused where the ranks do not fit them."""
    coordinators = 1 if asked["rank0"] == "coordinator" else 0
    if coordinators and (ranks or 1) < 2:
        raise ConfigError(
            "rank0: given coordinator with 1 rank, allowed: client, or one rank more than the clients need"
        )
    hosts = (ranks or 1) - coordinators
    clients: int = asked["num_clients"] or (hosts if ranks else DEFAULT_CLIENTS)
    if clients < hosts:
        raise refusal("num_clients", clients, f"{hosts} or more: there are {hosts} ranks that host clients")
    return clients
