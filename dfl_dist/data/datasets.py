"""Data sets by name, as arrays."""

import socket
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from dfl_dist.data.cache import cached
from dfl_dist.data.shard import PLAIN, Pixels
from dfl_dist.errors import ConfigError, one_line

DIGITS_TRAIN = 1437  # the rest of the 1,797 images is the test set
STALLED_S = 60.0  # a download that gives nothing for so long has failed
FASHION = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
ARRAYS = ("train_inputs", "train_targets", "test_inputs", "test_targets")
TEN = tuple(map(str, range(10)))


@dataclass(frozen=True)
class Dataset:
    """Inputs in the model's shape, one sample per row; bytes are images, scaled by `pixels`. Targets: int64."""

    train_inputs: np.ndarray
    train_targets: np.ndarray
    test_inputs: np.ndarray
    test_targets: np.ndarray
    classes: tuple[str, ...] = TEN
    pixels: Pixels = PLAIN

    @cached_property
    def digest(self) -> str:
        """Tells data sets apart: every sample and label, and how they are normalised."""
        mark = zlib.crc32(repr((self.classes, self.pixels)).encode())
        for name in ARRAYS:
            array = np.ascontiguousarray(getattr(self, name))
            mark = zlib.crc32(repr((name, array.shape, array.dtype)).encode(), mark)
            mark = zlib.crc32(array.reshape(-1).view(np.uint8).data, mark)
        return f"{mark:08x}"


@dataclass(frozen=True)
class Source:
    """How a data set is loaded, the model that `model.name: auto` means for it, and whether images may be mirrored."""

    load: Callable[[Path, bool], Dataset]  # from a root folder, downloaded if it is not there and may be
    model: str
    classes: int = 10
    augment: bool = False


def digits(root: Path = Path(), download: bool = False) -> Dataset:
    """The embedded 8×8 handwritten digits, pixels scaled to [0, 1] (see ATTRIBUTION.md)."""
    with resources.files(__package__).joinpath("digits.npz").open("rb") as file, np.load(file) as arrays:
        inputs, targets = arrays["images"].astype(np.float32) / 16, arrays["labels"].astype(np.int64)
    return Dataset(inputs[:DIGITS_TRAIN], targets[:DIGITS_TRAIN], inputs[DIGITS_TRAIN:], targets[DIGITS_TRAIN:])


def from_torchvision(
    name: str, kind: str, raw: str, *, mean: tuple[float, ...], std: tuple[float, ...], classes: tuple[str, ...] = ()
) -> Callable[[Path, bool], Dataset]:
    """The loader of a torchvision set: its class there, the folder that it has in a root, how it is normalised."""

    def load(root: Path, download: bool) -> Dataset:
        def make() -> Mapping[str, np.ndarray]:
            return decode(name, kind, root, root / raw, download=download)

        arrays = cached(name, root, root / raw, (*ARRAYS, "classes"), make)
        names = tuple(map(str, arrays.pop("classes")))
        return Dataset(**arrays, classes=classes or names, pixels=Pixels(mean, std))

    return load


def decode(name: str, kind: str, root: Path, raw: Path, *, download: bool) -> Mapping[str, np.ndarray]:
    """The arrays of a torchvision set, images as bytes [n, channels, height, width]."""
    from dfl_dist.data.vision import torchvision

    parts: dict[str, Any] = {}
    with stalling(STALLED_S):
        for part in ("train", "test"):
            try:
                parts[part] = getattr(torchvision.datasets, kind)(str(root), train=part == "train", download=download)
            except Exception as error:  # torchvision's own, of the network, of the disk, of a damaged file
                reason = one_line(error)
                if download:
                    raise ConfigError(f"data.download: {name} cannot be had in {raw}: {reason}") from error
                if isinstance(error, PermissionError):
                    raise ConfigError(f"data.root: given {root}, whose {name} cannot be read: {error}") from error
                way_out = f"a folder that has it, or --data.download true to fetch it to {root}"
                raise ConfigError(
                    f"data.root: given {root}, which has no whole {name} in {raw}, allowed: {way_out} ({reason})"
                ) from error
    arrays = {"classes": np.array([str(label) for label in parts["train"].classes])}
    for part, found in parts.items():
        images = np.asarray(found.data)
        planes = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
        arrays[f"{part}_inputs"] = np.ascontiguousarray(planes)
        arrays[f"{part}_targets"] = np.asarray(found.targets, dtype=np.int64)
    return arrays


@contextmanager
def stalling(seconds: float) -> Iterator[None]:
    """Let nothing wait longer than this for bytes from the network; torchvision itself would wait for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


DATASETS: dict[str, Source] = {
    "digits": Source(digits, "digits_mlp"),
    "mnist": Source(
        from_torchvision("mnist", "MNIST", "MNIST/raw", mean=(0.1307,), std=(0.3081,), classes=TEN), "mnist_2nn"
    ),
    "fashion_mnist": Source(
        from_torchvision(
            "fashion_mnist", "FashionMNIST", "FashionMNIST/raw", mean=(0.2860,), std=(0.3530,), classes=FASHION
        ),
        "mnist_2nn",
    ),
    "cifar10": Source(
        from_torchvision(
            "cifar10", "CIFAR10", "cifar-10-batches-py", mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)
        ),
        "cifar_cnn",
        augment=True,
    ),
    "cifar100": Source(
        from_torchvision(
            "cifar100", "CIFAR100", "cifar-100-python", mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762)
        ),
        "cifar_cnn",
        classes=100,
        augment=True,
    ),
}
