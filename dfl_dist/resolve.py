"""The config in force: what was asked, filled from the algorithm's row and the defaults, refused where it cannot be."""

from collections.abc import Mapping
from typing import Any

from dfl_dist.config import DEFAULT_CLIENTS, Config, ConfigError, get, known, refusal, replace
from dfl_dist.schedule import FILE, SERVER


def resolve(config: Config, row: Mapping[str, Any], default_model: str, num_clients: int) -> Config:
    """The config in force: nulls filled from the algorithm's row, then from the defaults."""
    kind = FILE if config.graph.file is not None else config.graph.kind or row["graph.kind"]
    out_degree = min(3, num_clients - 1) if config.graph.out_degree is None else config.graph.out_degree
    defaults = {
        "local.step": "z" if config.overlap > 0 else "x",
        "participation": 1.0,
        "graph.out_degree": out_degree,
        **row,
        "graph.kind": kind,
    }
    if kind == "erdos_renyi":
        defaults["graph.p"] = min(1.0, out_degree / max(1, num_clients - 1))
    if kind != SERVER:
        defaults["participation"] = 1.0
    filled = {key: value for key, value in defaults.items() if get(config, key) is None}
    if config.local.steps is not None:
        filled["local.epochs"] = None
    if config.model.name == "auto":
        filled["model.name"] = default_model
    resolved = replace(config, filled | {"num_clients": num_clients})
    check_together(resolved)
    return resolved


def check_together(resolved: Config) -> None:
    """Refuse values that are right by themselves and do not go together."""
    num_clients, kind = known(resolved.num_clients), resolved.graph.kind
    if known(resolved.graph.out_degree) >= num_clients:
        allowed = f"0 to {num_clients - 1}, below the number of clients ({num_clients})"
        raise refusal("graph.out_degree", resolved.graph.out_degree, allowed)
    of_server = {"overlap": 0, "graph.gossip_steps": 1, "graph.static": False}
    only = of_server if kind == SERVER else {"participation": 1.0, "server_lr": 1.0}
    for key, value in only.items():
        if get(resolved, key) != value:
            way_out = "" if kind == SERVER else "; graph.kind server takes others"
            raise refusal(key, get(resolved, key), f"{value}, with graph.kind {kind}{way_out}")


def count_clients(config: Config, world_size: int, torchrun: bool) -> int:
    """How many clients the run has, refused where the ranks do not fit them."""
    coordinators = 1 if config.rank0 == "coordinator" else 0
    if coordinators and world_size < 2:
        raise ConfigError(
            f"rank0: given coordinator with {world_size} rank, allowed: client, or one rank more than the clients need"
        )
    hosts = world_size - coordinators
    clients = config.num_clients or (hosts if torchrun else DEFAULT_CLIENTS)
    if clients < hosts:
        raise refusal("num_clients", clients, f"{hosts} or more: there are {hosts} ranks that host clients")
    return clients
