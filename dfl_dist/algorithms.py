"""Every method is a row: the values it gives to config keys that the user left null."""

from typing import Any

ALGORITHMS: dict[str, dict[str, Any]] = {
    "dfedsgpsm": {"local.rho": 0.1, "local.momentum": 0.9, "local.epochs": 5, "graph.kind": "random_directed"},
    "dfedsgpm": {"local.rho": 0.0, "local.momentum": 0.9, "local.epochs": 5, "graph.kind": "random_directed"},
    "osgp": {"local.rho": 0.0, "local.momentum": 0.0, "local.epochs": 5, "graph.kind": "random_directed"},
    "sgp": {"local.rho": 0.0, "local.momentum": 0.0, "local.epochs": 1, "graph.kind": "random_directed"},
}
