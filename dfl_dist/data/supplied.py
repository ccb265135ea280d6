"""User-supplied data, checked before a run begins."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dfl_dist.data.datasets import ARRAYS, Dataset
from dfl_dist.errors import fail_as_user, refusal

RETURNS = f"the arrays {', '.join(ARRAYS)}"


def call_data(name: str, function: Callable[[], Any]) -> Dataset:
    """What a user-supplied function returns, as a data set: a `Dataset`, or the four arrays in its order."""
    try:
        found = function()
    except Exception as error:  # whatever the user's function does
        fail_as_user(f"data.name: {name}")
        raise refusal("data.name", f"{name}, which fails when it is called", RETURNS, because=error) from error
    arrays = read_arrays(name, found)
    highest, place = find_highest(arrays["train_targets"], arrays["test_targets"])
    shown = f"{name}, whose {place} is {highest}"
    if highest >= sum(len(arrays[f"{part}_targets"]) for part in ("train", "test")):
        raise refusal("data.name", shown, "classes numbered 0, 1, 2, …")
    if not isinstance(found, Dataset):
        return Dataset(**arrays, classes=tuple(map(str, range(highest + 1))))
    if highest >= len(found.classes):
        raise refusal("data.name", shown, f"a name in classes for each, {highest + 1}")
    return dataclasses.replace(found, **arrays)


def find_highest(train_targets: np.ndarray, test_targets: np.ndarray) -> tuple[int, str]:
    """The highest target, and where it is."""
    parts = {"train_targets": train_targets, "test_targets": test_targets}
    part = max(parts, key=lambda one: int(parts[one].max()))
    row = int(parts[part].argmax())
    return int(parts[part][row]), f"{part}[{row}]"


def read_arrays(name: str, found: Any) -> dict[str, Any]:
    """The four arrays by name, refused where they cannot be used."""
    given = [getattr(found, key) for key in ARRAYS] if isinstance(found, Dataset) else found
    if not isinstance(given, Sequence) or len(given) != len(ARRAYS):
        raise refusal("data.name", f"{name}, which returns a {type(found).__name__}", RETURNS)
    arrays: dict[str, Any] = {}
    for key, values in zip(ARRAYS, given, strict=True):
        try:
            arrays[key] = as_array(values)
        except Exception as error:  # whatever an object does that is to become an array
            raise refusal("data.name", f"{name}, whose {key} is not an array", RETURNS, because=error) from error
    for part in ("train", "test"):
        check_part(name, part, arrays[f"{part}_inputs"], arrays[f"{part}_targets"], arrays["train_inputs"])
        arrays[f"{part}_targets"] = arrays[f"{part}_targets"].astype(np.int64)
    return arrays


def as_array(given: Any) -> np.ndarray:
    """An array as torch takes it, which keeps no larger one alive; a mapped file stays one."""
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
    if not (targets.ndim == 1 and targets.dtype.kind in "iu" and len(targets)):
        shown = f"{name}, whose {part}_targets are {targets.dtype} {list(targets.shape)}"
        raise refusal("data.name", shown, "a row of whole numbers, 0 or more, one per sample")
    if targets.min() < 0:
        row = int(np.argmax(targets < 0))
        raise refusal("data.name", f"{name}, whose {part}_targets[{row}] is {targets[row]}", "whole numbers, 0 or more")
    fits = inputs.ndim > 0 and len(inputs) == len(targets) and inputs.shape[1:] == like.shape[1:]
    if not fits or inputs.dtype.kind not in "fiu":
        shown = f"{name}, whose {part}_inputs are {inputs.dtype} {list(inputs.shape)}"
        raise refusal("data.name", shown, f"numbers, {len(targets)} samples of shape {like.shape[1:]}")
    if not is_finite(inputs):
        row = next(row for row, sample in enumerate(inputs) if not is_finite(sample))
        raise refusal("data.name", f"{name}, whose {part}_inputs[{row}] has NaN or infinity in it", "finite numbers")


def is_finite(numbers: np.ndarray) -> bool:
    """Whether there is neither NaN nor infinity in it; takes no memory."""
    if numbers.dtype.kind != "f" or not numbers.size:
        return True
    return bool(np.isfinite(numbers.min()) and np.isfinite(numbers.max()))
