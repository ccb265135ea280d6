"""How many cells run at a time."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from dfl_dist.config.schema import Config
from dfl_dist.errors import refusal
from dfl_dist.sweep.grid import Cell
from dfl_dist.training.layout import lay_out

AUTO = "auto"


def count_jobs(given: str, cells: Sequence[Cell], ranks: int) -> int:
    """How many of these cells, each on so many ranks, run at a time: as many as asked for, or as fit this host."""
    if given != AUTO and not re.fullmatch(r"[1-9]\d*", given):
        raise refusal("jobs", given, f"a whole number, 1 or more, or {AUTO}")
    configs = [cell.resolved for cell in cells]
    wanted = jobs_that_fit(configs, ranks, usable_cores(), gpu=has_gpu()) if given == AUTO else int(given)
    return max(1, min(wanted, len(cells)))


def jobs_that_fit(configs: Iterable[Config], ranks: int, cores: int, *, gpu: bool) -> int:
    """As many cells as there are cores for, by the one that needs most; one at a time where they share GPUs."""
    fit = cores
    for config in configs:
        fit = min(fit, 1 if gpu and config.device != "cpu" else cores // cores_kept_busy(config, ranks, cores))
    return max(1, fit)


def cores_kept_busy(config: Config, ranks: int, cores: int) -> int:
    """How many cores a run computes on: the threads of its ranks that host clients; all where threads are fitted."""
    layout = lay_out(config.num_clients, ranks, coordinator=config.rank0 == "coordinator")
    return cores if config.threads == "auto" else len(layout.client_ranks) * config.threads


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def has_gpu(devices: Path = Path("/dev")) -> bool:
    """Whether this host has a GPU that may be used, found without asking its driver: ranks are forked from here."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1")
    return not hidden and any(any(devices.glob(name)) for name in ("nvidia[0-9]*", "kfd"))
