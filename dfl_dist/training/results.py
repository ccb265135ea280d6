"""What a run has reached, read from its folder: a `Result`, and the mean model as an ordinary module."""

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from dfl_dist import Result
from dfl_dist.config.values import load_resolved
from dfl_dist.errors import ConfigError, one_line, refusal
from dfl_dist.report.read import check_format
from dfl_dist.run_folder.files import read_json, read_lines
from dfl_dist.run_folder.folder import is_finished, is_run
from dfl_dist.run_folder.metrics import METRICS
from dfl_dist.training.build import make_module

NO_RUN = "the folder of a run, such as runs/latest"
WITH_MODEL = "dfl_dist.open_run(folder, model=…)"


def read_result(folder: Path, model: Callable[[], nn.Module] | None = None) -> Result:
    """How a run stands; of each score the newest value."""
    if not is_run(folder):
        raise refusal("folder", folder, NO_RUN)
    check_format("folder", folder)
    folder = folder.resolve()
    lines, scores = read_lines(folder / "metrics.jsonl"), dict[str, float]()
    for line in lines:
        for key, metric in METRICS.items():
            if metric.rounds != "every" and key in line:
                scores[key] = math.nan if line[key] is None else line[key]
    rounds = load_resolved(folder / "resolved.yaml").rounds
    return Result(folder, len(lines), scores, is_finished(folder, rounds), model)


def load_model(folder: Path, model: Callable[[], nn.Module] | None) -> nn.Module:
    """The mean model of a run that has ended, on the CPU and in the precision that it was trained in."""
    config = load_resolved(folder / "resolved.yaml")
    classes = read_json(folder / "classes.json").get("classes", [])
    try:
        module = make_module(config.model.name, len(classes), model).to("cpu", getattr(torch, config.dtype))
    except ConfigError as error:
        if model is not None:
            raise
        raise ConfigError(f"{error}; or the run's function itself: {WITH_MODEL}") from error
    try:
        module.load_state_dict(torch.load(folder / "model.pt", map_location="cpu", weights_only=True))
    except FileNotFoundError as error:
        raise refusal("folder", f"{folder}, which has no model.pt", "a run that has ended") from error
    except RuntimeError as error:
        given = f"{config.model.name}, which is not the model of {folder}: {one_line(error)}"
        raise refusal("model", given, "the function that the run had") from error
    return module.eval()
