"""Models by name: each a function that returns a module."""

from collections.abc import Callable

from torch import nn


def digits_mlp() -> nn.Module:
    """64-200-200-10, for the embedded digits."""
    return nn.Sequential(nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "digits_mlp": digits_mlp,
}
