"""The numbers of each round as events for TensorBoard, an extra."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dfl_dist.errors import ConfigError
from dfl_dist.run_folder.files import read_lines

NOT_SHOWN = ("round",)


def check_installed() -> None:
    """Refuse the setting where the extra is missing."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "tensorboard: given true, which needs a package that is not installed: pip install 'dfl-dist[tensorboard]'"
        ) from error


def open_events(folder: Path, rounds_done: int) -> Callable[[Mapping[str, Any]], None]:
    """What takes the line of a round; the last one that a run goes on from is told anew, and later ones are hidden."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"), purge_step=max(0, rounds_done - 1))

    def show(line: Mapping[str, Any]) -> None:
        for key, value in line.items():
            if key not in NOT_SHOWN and value is not None:
                writer.add_scalar(key, value, line["round"])
        writer.flush()

    for line in read_lines(folder / "metrics.jsonl")[-1:]:
        show(line)
    return show
