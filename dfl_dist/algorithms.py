"""Every method is a row: the values it gives to config keys that the user left null."""

from typing import Any


def row(
    kind: str, *, rho: float, momentum: float, epochs: int, gradient_at: str = "step", **more: Any
) -> dict[str, Any]:
    local = {"rho": rho, "momentum": momentum, "epochs": epochs, "gradient_at": gradient_at}
    return {"graph.kind": kind, **{f"local.{key}": value for key, value in local.items()}, **more}


ALGORITHMS: dict[str, dict[str, Any]] = {
    "dfedsgpsm": row("random_directed", rho=0.1, momentum=0.9, epochs=5),
    "dfedsgpsm-s": row("by_loss", rho=0.1, momentum=0.9, epochs=5),
    "dfedsgpm": row("random_directed", rho=0.0, momentum=0.9, epochs=5),
    "osgp": row("random_directed", rho=0.0, momentum=0.0, epochs=5),
    "sgp": row("random_directed", rho=0.0, momentum=0.0, epochs=1),
    "asyng": row("by_loss", rho=0.0, momentum=0.0, epochs=5, gradient_at="round"),
    "dfedsam": row("random_symmetric", rho=0.25, momentum=0.0, epochs=5),
    "dfedavgm": row("random_symmetric", rho=0.0, momentum=0.9, epochs=5),
    "dfedavg": row("random_symmetric", rho=0.0, momentum=0.0, epochs=5),
    "d-psgd": row("random_symmetric", rho=0.0, momentum=0.0, epochs=1),
    "fedavg": row("server", rho=0.0, momentum=0.0, epochs=5, participation=0.1),
}
