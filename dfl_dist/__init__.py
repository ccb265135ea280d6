"""Asymmetric decentralized federated learning: one process per client, push-sum over directed graphs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dfl_dist.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ConfigError", "Result", "__version__", "train"]
__version__ = "0.1.0"


@dataclass(frozen=True)
class Result:
    """How a run ended: its folder, the rounds it has done, the scores of the mean model."""

    folder: Path
    rounds: int
    scores: dict[str, float]
    finished: bool  # whether these were all the rounds that were asked for


def train(
    config: "Mapping[str, Any] | str | Path | None" = None,
    *,
    model: "Callable[[], nn.Module] | None" = None,
    data: Callable[[], Any] | None = None,
    on_round: Callable[[dict[str, Any]], None] | None = None,
) -> Result:
    """Train from a script, on every rank: `config` is a mapping, nested or with dotted keys, or a YAML file.

    `model` returns a module, `data` the arrays train_inputs, train_targets, test_inputs, test_targets; rank 0 calls
    `on_round` with the metrics of each round. A user's mistake is a ConfigError, on all ranks.
    """
    from dfl_dist.training.main import train_from_script  # torch is imported with it, not before

    return train_from_script(config, model=model, data=data, on_round=on_round)
