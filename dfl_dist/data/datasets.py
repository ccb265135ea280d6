"""Data sets by name, as arrays ready for a model."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

import numpy as np

DIGITS_TRAIN = 1437  # the rest of the 1,797 images is the test set


@dataclass(frozen=True)
class Dataset:
    """Inputs as float32 in the model's shape, targets as int64."""

    train_inputs: np.ndarray
    train_targets: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray


def digits() -> Dataset:
    """The embedded 8×8 handwritten digits, pixels scaled to [0, 1] (see ATTRIBUTION.md)."""
    with resources.files(__package__).joinpath("digits.npz").open("rb") as file, np.load(file) as arrays:
        inputs, targets = arrays["images"].astype(np.float32) / 16, arrays["labels"].astype(np.int64)
    return Dataset(inputs[:DIGITS_TRAIN], targets[:DIGITS_TRAIN], inputs[DIGITS_TRAIN:], targets[DIGITS_TRAIN:])


@dataclass(frozen=True)
class Source:
    """How a data set is loaded, and the model that `model.name: auto` means for it."""

    load: Callable[[], Dataset]
    model: str


DATASETS: dict[str, Source] = {
    "digits": Source(digits, "digits_mlp"),
}
