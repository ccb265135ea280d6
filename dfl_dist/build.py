"""The data set and the model of a run: built-in ones by name, one's own by import path or as functions."""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dfl_dist import config as settings
from dfl_dist.config import ConfigError, lookup, one_line, refusal
from dfl_dist.data.datasets import ARRAYS, DATASETS, Dataset
from dfl_dist.data.shard import make_shard
from dfl_dist.models import MODELS


@dataclass(frozen=True)
class Own:
    """What a script hands over itself: a model, a data set, and who is told of each round."""

    model: Callable[[], nn.Module] | None = None
    data: Callable[[], Any] | None = None
    on_round: Callable[[dict[str, Any]], None] | None = None

    def names(self) -> dict[str, str]:
        """The settings that say which functions these are."""
        given = {"model.name": self.model, "data.name": self.data}
        return {key: import_path(function) for key, function in given.items() if function is not None}


def import_path(function: Callable[..., Any]) -> str:
    """A function's name as an import path; by it a run is known again when it is resumed."""
    module, name = getattr(function, "__module__", "?"), getattr(function, "__qualname__", type(function).__name__)
    if module == "__main__" and (script := getattr(sys.modules["__main__"], "__file__", None)):
        module = Path(script).stem  # so it can be imported from the script's folder
    return f"{module}:{name}"


def load_dataset(data: "settings.Data", own: Callable[[], Any] | None = None) -> Dataset:
    """The data set that the settings name, or the one that a function of one's own returns."""
    if own is None and data.name in DATASETS:
        source = DATASETS[data.name]
        if data.augment and not source.augment:
            sets = ", ".join(name for name, other in DATASETS.items() if other.augment)
            raise refusal("data.augment", "true", f"false, with data.name {data.name} (true: {sets}, your own images)")
        try:
            dataset = source.load(Path(data.root).expanduser(), data.download)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        except OSError as error:
            raise ConfigError(f"data.root: given {data.root}, which cannot be read: {error}") from error
    else:
        dataset = take_own(data.name, own or lookup("data.name", data.name, DATASETS))  # type: ignore[arg-type]
        if data.augment and dataset.train_inputs.ndim != 4:
            shape = ["samples", *dataset.train_inputs.shape[1:]]
            raise refusal(
                "data.augment", f"true for inputs {shape}", "false, or images [samples, channels, rows, columns]"
            )
    if data.limit > len(dataset.train_targets):
        raise refusal("data.limit", data.limit, f"0 to {len(dataset.train_targets)}, the number of training samples")
    rows = slice(data.limit or None)
    return dataclasses.replace(
        dataset, train_inputs=dataset.train_inputs[rows], train_targets=dataset.train_targets[rows]
    )


def take_own(name: str, function: Callable[[], Any]) -> Dataset:
    """What a function of one's own returns, as a data set: a `Dataset`, or the four arrays in its order."""
    try:
        found = function()
    except Exception as error:  # whatever the user's function does
        raise ConfigError(f"data.name: given {name}, which fails when it is called: {one_line(error)}") from error
    given = [getattr(found, key) for key in ARRAYS] if isinstance(found, Dataset) else found
    if not isinstance(given, Sequence) or len(given) != len(ARRAYS):
        raise refusal("data.name", f"{name}, which returns a {type(found).__name__}", f"the arrays {', '.join(ARRAYS)}")
    try:
        arrays: dict[str, Any] = dict(zip(ARRAYS, map(plain_array, given), strict=True))
    except Exception as error:
        raise ConfigError(f"data.name: given {name}, whose arrays are none: {one_line(error)}") from error
    for part in ("train", "test"):
        check_part(name, part, arrays[f"{part}_inputs"], arrays[f"{part}_targets"], arrays["train_inputs"])
        arrays[f"{part}_targets"] = arrays[f"{part}_targets"].astype(np.int64)
    highest = max(int(arrays["train_targets"].max()), int(arrays["test_targets"].max()))
    if highest >= sum(len(arrays[f"{part}_targets"]) for part in ("train", "test")):
        raise refusal("data.name", f"{name}, with targets up to {highest}", "classes numbered 0, 1, 2, …")
    if not isinstance(found, Dataset):
        return Dataset(**arrays, classes=tuple(map(str, range(highest + 1))))
    if highest >= len(found.classes):
        raise refusal(
            "data.name", f"{name}, with targets up to {highest}", f"a name in classes for each, {highest + 1}"
        )
    return dataclasses.replace(found, **arrays)


def plain_array(given: Any) -> np.ndarray:
    """An array as torch takes it, that keeps no larger one alive; a mapped file stays one."""
    array = np.asarray(given)
    array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False)) if array.ndim else array
    owner: Any = array
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        if owner.base is None:
            return array if owner is array or owner.size == array.size else array.copy()
        owner = owner.base
    return array


def check_part(name: str, part: str, inputs: np.ndarray, targets: np.ndarray, like: np.ndarray) -> None:
    """Refuse inputs and targets that cannot be, or do not go together."""
    if not (targets.ndim == 1 and targets.dtype.kind in "iu" and len(targets) and targets.min() >= 0):
        shown = f"{name}, whose {part}_targets are {targets.dtype} {list(targets.shape)}"
        raise refusal("data.name", shown, "a row of whole numbers, 0 or more, one a sample")
    fits = inputs.ndim > 0 and len(inputs) == len(targets) and inputs.shape[1:] == like.shape[1:]
    if not fits or inputs.dtype.kind not in "fiu":
        shown = f"{name}, whose {part}_inputs are {inputs.dtype} {list(inputs.shape)}"
        raise refusal("data.name", shown, f"numbers, {len(targets)} samples of shape {like.shape[1:]}")


def make_module(name: str, classes: int, own: Callable[[], nn.Module] | None = None) -> nn.Module:
    """The model that the settings name, or the one that a function of one's own returns."""
    built_in = MODELS.get(name) if own is None else None
    function = own or lookup("model.name", name, MODELS)
    try:
        module = built_in(classes) if built_in else function()  # type: ignore[call-arg]
    except Exception as error:  # whatever the user's function does
        raise ConfigError(f"model.name: given {name}, which fails when it is called: {one_line(error)}") from error
    if not isinstance(module, nn.Module):
        raise refusal(
            "model.name", f"{name}, which returns a {type(module).__name__}", "a function that returns a torch module"
        )
    return module


def check_fit(module: nn.Module, name: str, dataset: Dataset, dtype: torch.dtype) -> None:
    """Refuse a model that does not fit the data: tried on one sample, so that it is told before the run begins."""
    first = make_shard(dataset.train_inputs[:1], dataset.train_targets[:1], dataset.pixels, torch.zeros(0, dtype=dtype))
    sample, _ = first.take(slice(1))
    try:
        with torch.no_grad():
            outputs = module.eval()(sample)
        module.train()
    except Exception as error:
        shape = f"inputs of shape {['batch', *sample.shape[1:]]}"
        raise ConfigError(f"model.name: given {name}, which does not take {shape}: {one_line(error)}") from error
    classes = len(dataset.classes)
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or outputs.shape[1] < classes:
        shown = list(outputs.shape) if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
        output = f"{name}, whose output for one sample is {shown}"
        raise refusal("model.name", output, f"[1, {classes}], a score for each class")


def start_from(module: nn.Module, file: str) -> None:
    """Give a model the parameters of a state_dict."""
    try:
        module.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    except OSError as error:
        raise ConfigError(f"model.init: given {file}, which cannot be read: {error.strerror}") from error
    except Exception as error:  # no state_dict, or another model's
        raise ConfigError(f"model.init: given {file}, which does not fit the model: {one_line(error)}") from error
