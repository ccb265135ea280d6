"""Asymmetric decentralized federated learning: one process per client, push-sum over directed graphs."""

import sys

if sys.version_info < (3, 10):  # noqa: UP036 - whoever has an older one is told so before it stumbles over the code
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"dfl_dist: needs Python 3.10 or newer, given {version} ({sys.executable})", file=sys.stderr)
    sys.exit(2)

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dfl_dist.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ConfigError", "Result", "__version__", "open_run", "train"]
__version__ = "0.1.0"

# torch takes seconds to import: what needs it is imported where it is called.


@dataclass(frozen=True)
class Result:
    """How a run ended: its folder, the rounds it has done, the scores of the mean model."""

    folder: Path
    rounds: int
    scores: dict[str, float]
    finished: bool  # whether these were all the rounds that were asked for
    _model: "Callable[[], nn.Module] | None" = field(default=None, repr=False, compare=False)

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, one per round; None for a number that was not finite."""
        from dfl_dist.run_folder.files import read_lines

        return read_lines(self.folder / "metrics.jsonl")[: self.rounds]

    def load_model(self) -> "nn.Module":
        """The mean model as an ordinary module, on the CPU, in evaluation mode."""
        from dfl_dist.training.results import load_model

        return load_model(self.folder, self._model)


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
    from dfl_dist.training.script import train_from_script

    return train_from_script(config, model=model, data=data, on_round=on_round)


def open_run(folder: str | Path, *, model: "Callable[[], nn.Module] | None" = None) -> Result:
    """What an earlier run has reached, from its folder; `model` where the settings do not lead to its function."""
    from dfl_dist.training.results import read_result

    return read_result(Path(folder), model)
