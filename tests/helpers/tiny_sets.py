"""Tiny data sets in the very file formats of the real ones, for machines that do not have those."""

import gzip
import hashlib
import pickle
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dfl_dist.data.datasets import FASHION

TRAIN, TEST = 120, 40
NAMES = ("mnist", "fashion_mnist", "cifar10", "cifar100")
FOLDERS = {"mnist": "MNIST/raw", "fashion_mnist": "FashionMNIST/raw"}
FINE = tuple(f"kind {label}" for label in range(100))


def make(name: str, root: Path) -> dict[str, np.ndarray]:
    """Write a tiny set below a torchvision root; what is in it: train_inputs [n, c, h, w], train_targets, test_…"""
    rng = np.random.default_rng([NAMES.index(name), 7])
    shape, classes = ((1, 28, 28), 10) if "mnist" in name else ((3, 32, 32), 100 if name == "cifar100" else 10)
    arrays = {}
    for part, count in (("train", TRAIN), ("test", TEST)):
        arrays[f"{part}_inputs"] = rng.integers(256, size=(count, *shape), dtype=np.uint8)
        arrays[f"{part}_targets"] = rng.permutation(np.arange(count) % classes)
    write = {"cifar10": write_cifar10, "cifar100": write_cifar100}.get(name, write_idx)
    folder = root / FOLDERS.get(name, "cifar-10-batches-py" if name == "cifar10" else "cifar-100-python")
    folder.mkdir(parents=True)
    write(folder, arrays)
    return arrays


def write_idx(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    for part, stem in (("train", "train"), ("test", "t10k")):
        images, labels = arrays[f"{part}_inputs"][:, 0], arrays[f"{part}_targets"].astype(np.uint8)
        contents = {
            f"{stem}-images-idx3-ubyte": struct.pack(">IIII", 2051, *images.shape) + images.tobytes(),
            f"{stem}-labels-idx1-ubyte": struct.pack(">II", 2049, len(labels)) + labels.tobytes(),
        }
        for name, content in contents.items():
            (folder / name).write_bytes(content)
            (folder / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))


def write_cifar10(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    rows, labels = arrays["train_inputs"].reshape(TRAIN, -1), arrays["train_targets"].tolist()
    for number in range(5):
        part = slice(number * TRAIN // 5, (number + 1) * TRAIN // 5)
        dump(folder / f"data_batch_{number + 1}", {"data": rows[part], "labels": labels[part]})
    dump(
        folder / "test_batch",
        {"data": arrays["test_inputs"].reshape(TEST, -1), "labels": arrays["test_targets"].tolist()},
    )
    dump(folder / "batches.meta", {"label_names": list(FASHION)})


def write_cifar100(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    for part in ("train", "test"):
        rows, labels = arrays[f"{part}_inputs"], arrays[f"{part}_targets"].tolist()
        dump(folder / part, {"data": rows.reshape(len(rows), -1), "fine_labels": labels})
    dump(folder / "meta", {"fine_label_names": list(FINE)})


def dump(path: Path, content: dict[str, object]) -> None:
    path.write_bytes(pickle.dumps(content))


def accept(root: Path, put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let torchvision, which knows the checksums of the real CIFAR files, take these instead; `put` sets attributes."""
    from dfl_dist.data.vision import torchvision

    for kind in (torchvision.datasets.CIFAR10, torchvision.datasets.CIFAR100):
        folder = root / kind.base_folder
        for listed in ("train_list", "test_list"):
            put(kind, listed, [[name, checksum(folder / name)] for name, _ in getattr(kind, listed)])
        put(kind, "meta", kind.meta | {"md5": checksum(folder / kind.meta["filename"])})


def checksum(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest() if path.exists() else ""


def main(arguments: list[str]) -> int:
    """The trainer on a tiny set: --data.root must come first."""
    from dfl_dist.training.main import main as train

    accept(Path(arguments[arguments.index("--data.root") + 1]))
    return train(arguments)


if __name__ == "__main__":
    for wanted in NAMES:
        make(wanted, Path(sys.argv[1]))
