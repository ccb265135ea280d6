"""Every method is a row: its local rule, its graph, its mixing. A new method is a new row, not a new code path."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Method:
    """What a method stands for wherever the user asks for nothing else; the graph's kind decides how it mixes."""

    graph: str
    rho: float
    momentum: float
    epochs: int
    gradient_at: Literal["step", "round"] = "step"
    participation: float | None = None  # of the clients that train in a round, with a server


ALGORITHMS = {
    "dfedsgpsm": Method("random_directed", rho=0.1, momentum=0.9, epochs=5),
    "dfedsgpsm-s": Method("by_loss", rho=0.1, momentum=0.9, epochs=5),
    "dfedsgpm": Method("random_directed", rho=0.0, momentum=0.9, epochs=5),
    "osgp": Method("random_directed", rho=0.0, momentum=0.0, epochs=5),
    "sgp": Method("random_directed", rho=0.0, momentum=0.0, epochs=1),
    "asyng": Method("by_loss", rho=0.0, momentum=0.0, epochs=5, gradient_at="round"),
    "dfedsam": Method("random_symmetric", rho=0.25, momentum=0.0, epochs=5),
    "dfedavgm": Method("random_symmetric", rho=0.0, momentum=0.9, epochs=5),
    "dfedavg": Method("random_symmetric", rho=0.0, momentum=0.0, epochs=5),
    "d-psgd": Method("random_symmetric", rho=0.0, momentum=0.0, epochs=1),
    "fedavg": Method("server", rho=0.0, momentum=0.0, epochs=5, participation=0.1),
}
