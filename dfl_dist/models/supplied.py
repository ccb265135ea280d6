"""User-supplied models, checked before a run begins."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dfl_dist.errors import ArgumentError, fail_as_user, one_line

MODULE = "a function without arguments that returns a torch module"
NO_INSTANCE = "a function that returns a module, such as lambda: copy.deepcopy(net), which starts as net is now"


def call_model(name: str, function: Callable[[], Any]) -> nn.Module:
    """What a user-supplied function of this name returns."""
    if isinstance(function, nn.Module):  # which can be called too
        raise ArgumentError("model", f"{name}, an instance of {type(function).__name__}", NO_INSTANCE)
    try:
        module = function()
    except Exception as error:  # whatever the user's function does
        fail_as_user(f"model.name: {name}")
        raise ArgumentError("model", f"{name}, which fails when it is called", MODULE, because=error) from error
    if not isinstance(module, nn.Module):
        raise ArgumentError("model", f"{name}, which returns a {type(module).__name__}", MODULE)
    return module


def check_fit(module: nn.Module, name: str, sample: Tensor, classes: int, why: str = "") -> None:
    """Refuse a model that does not fit the data: tried on one sample, so that it is told before the run begins.

    `why` there are so many classes.
    """
    try:
        with torch.no_grad():
            outputs = module.eval()(sample)
        module.train()
    except Exception as error:
        fail_as_user(f"model.name: {name}")
        shape = ["batch", *sample.shape[1:]]
        given = f"{name}, which does not take inputs of shape {shape}"
        raise ArgumentError("model", given, "a model that takes them", because=error) from error
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or outputs.shape[1] < classes:
        shown = list(outputs.shape) if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
        given = f"{name}, whose output for one sample is {shown}"
        raise ArgumentError("model", given, f"[1, {classes}], a score for each class{why and f': {why}'}")


def load_parameters(module: nn.Module, file: str) -> None:
    """Give a model the parameters of a state_dict."""
    try:
        module.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    except OSError as error:
        given = f"{file}, which cannot be read: {error.strerror}"
        raise ArgumentError("file", given, "a state_dict of this model") from error
    except Exception as error:  # no state_dict, or another model's
        given = f"{file}, which does not fit the model: {one_line(error)}"
        raise ArgumentError("file", given, "a state_dict of this model") from error
