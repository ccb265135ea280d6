"""User-supplied data: what is refused before a run begins, and whose error it is."""

from collections.abc import Callable
from typing import Any

import numpy as np
import own_project
import pytest
import torch

from dfl_dist.data.datasets import Dataset
from dfl_dist.data.shard import Pixels
from dfl_dist.data.supplied import as_array, call_data
from dfl_dist.errors import ConfigError, UserCodeError

INPUTS = np.zeros((4, 6))
NOT_FINITE = "has NaN or infinity in it, allowed: finite numbers"


def spoilt(number: float) -> np.ndarray:
    inputs = INPUTS.copy()
    inputs[2:, 5] = number
    return inputs


def test_four_arrays_are_a_data_set() -> None:
    data = call_data("m:tensors", own_project.tensors)
    assert isinstance(data.train_inputs, np.ndarray)
    assert (data.train_targets.tolist(), data.train_targets.dtype) == ([0, 1, 0, 1], np.int64)
    assert data.classes == ("0", "1", "2"), "as many as the largest target of training and test set says"


def test_a_data_set_keeps_its_classes_and_pixels() -> None:
    pixels = Pixels((0.5,), (0.25,))
    given = Dataset(INPUTS, np.arange(4, dtype=np.uint8), INPUTS, np.arange(4), ("a", "b", "c", "d", "e"), pixels)
    data = call_data("m:load", lambda: given)
    assert (data.classes, data.pixels) == (("a", "b", "c", "d", "e"), pixels)
    assert data.train_targets.dtype == np.int64


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (own_project.three, "m, which returns a tuple, allowed: the arrays train_inputs, train_targets, test_inputs"),
        (lambda: 3, "m, which returns a int, allowed: the arrays"),
        (own_project.unequal, "m, whose test_inputs are float64 [4, 3], allowed: numbers, 4 samples of shape (6,)"),
        (own_project.scores, "m, whose train_targets are float64 [4], allowed: a row of whole numbers, 0 or more"),
        (lambda: (INPUTS, np.arange(3), INPUTS, np.arange(4)), "m, whose train_inputs are float64 [4, 6], allowed: "),
        (
            lambda: (INPUTS, -np.arange(4), INPUTS, np.arange(4)),
            "m, whose train_targets[1] is -1, allowed: whole numbers",
        ),
        (lambda: (INPUTS, np.arange(4), INPUTS[:0], np.arange(0)), "m, whose test_targets are int64 [0], allowed: "),
        (lambda: (INPUTS > 0, np.arange(4), INPUTS, np.arange(4)), "m, whose train_inputs are bool [4, 6], allowed: "),
        (lambda: (spoilt(np.nan), np.arange(4), INPUTS, np.arange(4)), f"m, whose train_inputs[2] {NOT_FINITE}"),
        (lambda: (INPUTS, np.arange(4), spoilt(-np.inf), np.arange(4)), f"m, whose test_inputs[2] {NOT_FINITE}"),
        (own_project.numbered_anyhow, "m, whose train_targets[1] is 1000000000, allowed: classes numbered 0, 1, 2, …"),
        (
            lambda: Dataset(INPUTS, np.arange(4), INPUTS, np.arange(4), ("a", "b")),
            "m, whose train_targets[3] is 3, allowed: a name in classes for each, 4",
        ),
        (lambda: ([[1], [2, 3]], [0, 1], INPUTS, np.arange(4)), "m, whose train_inputs is not an array: ValueError: "),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(function: Callable[[], Any], line: str) -> None:
    with pytest.raises(ConfigError) as error:
        call_data("m", function)
    assert str(error.value).startswith(f"data.name: given {line}")
    assert "\n" not in str(error.value)


def test_an_error_in_the_function_is_the_users() -> None:
    with pytest.raises(UserCodeError, match=r"^data\.name: m:raises failed: ValueError in own_project\.py, line \d+$"):
        call_data("m:raises", own_project.raises)


def test_a_function_that_needs_arguments_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^data\.name: given m:f, which fails when it is called: TypeError: "):
        call_data("m:f", lambda root: root)  # type: ignore[misc]


def test_arrays_are_as_torch_takes_them_and_keep_no_larger_one_alive() -> None:
    whole = np.arange(40, dtype=">f4").reshape(10, 4)
    part = as_array(whole[:2, ::2])
    assert part.base is None
    assert torch.from_numpy(part).tolist() == [[0, 2], [4, 6]]
    plain = np.ones((3, 2), dtype=np.float32)
    assert as_array(plain) is plain, "not copied without need"
