"""Data sets: what is in the files arrives as it is, decoded once and shared; what is missing is told in one line."""

import os
from pathlib import Path

import numpy as np
import pytest
import tiny_sets
import torch

from dfl_dist.config.resolve import resolve
from dfl_dist.config.schema import Data
from dfl_dist.config.values import ask
from dfl_dist.data import cache, datasets
from dfl_dist.data.datasets import DATASETS, FASHION, digits
from dfl_dist.errors import ConfigError
from dfl_dist.training.build import load_dataset
from dfl_dist.training.main import main

CLASSES = {"mnist": tuple("0123456789"), "fashion_mnist": FASHION, "cifar10": FASHION, "cifar100": tiny_sets.FINE}


def settings(name: str, root: Path | str, limit: int = 0) -> Data:
    return resolve(ask({"data.name": name, "data.root": str(root), "data.limit": limit})).data


@pytest.mark.parametrize("name", tiny_sets.NAMES)
def test_arrays_are_those_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    written = tiny_sets.make(name, tmp_path)
    tiny_sets.accept(tmp_path, monkeypatch.setattr)
    data = DATASETS[name].load(tmp_path, False)
    for key, array in written.items():
        np.testing.assert_array_equal(getattr(data, key), array)
    assert (data.train_inputs.dtype, data.train_targets.dtype) == (np.uint8, np.int64)
    assert data.classes == CLASSES[name]
    assert len(data.classes) == DATASETS[name].classes
    means = 3 if name.startswith("cifar") else 1
    assert (len(data.pixels.mean), len(data.pixels.std)) == (means, means)


def test_decoded_once_then_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = tiny_sets.make("mnist", tmp_path)
    first = DATASETS["mnist"].load(tmp_path, False)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("decoded twice")

    with monkeypatch.context() as patch:
        patch.setattr(datasets, "decode", never)
        second = DATASETS["mnist"].load(tmp_path, False)
    for data in (first, second):
        assert isinstance(data.train_inputs, np.memmap)
        np.testing.assert_array_equal(data.train_inputs, written["train_inputs"])
    second.train_inputs[0] = 0
    np.testing.assert_array_equal(first.train_inputs, written["train_inputs"], "what one writes, no other sees")
    torch.from_numpy(second.test_inputs)  # would warn of an array that must not be written


def test_other_files_are_decoded_anew(tmp_path: Path) -> None:
    tiny_sets.make("mnist", tmp_path)
    before = DATASETS["mnist"].load(tmp_path, False).train_targets.copy()
    labels = tmp_path / "MNIST/raw/train-labels-idx1-ubyte"
    content = bytearray(labels.read_bytes())
    content[-1] = (content[-1] + 1) % 10
    labels.write_bytes(bytes(content))
    os.utime(labels, ns=(1, 1))
    after = DATASETS["mnist"].load(tmp_path, False).train_targets
    assert np.flatnonzero(before != after).tolist() == [tiny_sets.TRAIN - 1]


def test_a_root_that_cannot_be_written_leaves_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, home = tmp_path / "root", tmp_path / "home"
    written = tiny_sets.make("mnist", root)
    (root / ".dfl_dist").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    data = DATASETS["mnist"].load(root, False)
    np.testing.assert_array_equal(data.test_inputs, written["test_inputs"])
    assert [path.name.rpartition("-")[0] for path in (home / "dfl_dist").iterdir()] == ["mnist"]
    (home / "dfl_dist").rename(home / "elsewhere")
    (home / "dfl_dist").write_text("no folder either")
    with pytest.raises(ConfigError, match=r"data.root: given .*, whose decoded mnist can be kept nowhere"):
        load_dataset(settings("mnist", root))


def test_who_comes_second_takes_what_is_there(tmp_path: Path) -> None:
    for numbers in (3, 9):
        assert cache.keep({"a": np.arange(numbers)}, tmp_path / "set-1")["a"].tolist() == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["set-1"], "nothing half written is left"


@pytest.mark.parametrize("how", ["torn", "empty", "gone"])
def test_a_damaged_copy_is_made_anew(tmp_path: Path, how: str) -> None:
    written = tiny_sets.make("mnist", tmp_path)
    DATASETS["mnist"].load(tmp_path, False)
    (copy,) = (tmp_path / ".dfl_dist").glob("*/train_inputs.npy")
    if how == "gone":
        copy.unlink()
    else:
        copy.write_bytes(copy.read_bytes()[: 90 if how == "torn" else 0])
    np.testing.assert_array_equal(DATASETS["mnist"].load(tmp_path, False).train_inputs, written["train_inputs"])
    assert copy.exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["--data.name", "mnist"],
            "data.root: given data, which has no whole mnist in data/MNIST/raw, allowed: a folder that has it, or "
            "--data.download true to fetch it to data",
        ),
        (
            ["--data.name", "mnits"],
            "data.name: given mnits, allowed: digits, mnist, fashion_mnist, cifar10, cifar100 or",
        ),
        (["--data.limit", "1438"], "data.limit: given 1438, allowed: 0 to 1437, the number of training samples"),
        (["--data.augment", "true"], "data.augment: given true, allowed: false, with data.name digits (true: cifar10,"),
        (
            ["--data.partition", "shards", "--data.classes_per_client", "11"],
            "data.classes_per_client: given 11, allowed: 1 to 10",
        ),
    ],
)
def test_mistakes_cost_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_damaged_set_is_no_whole_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_sets.make("cifar10", tmp_path)
    tiny_sets.accept(tmp_path, monkeypatch.setattr)
    with (tmp_path / "cifar-10-batches-py" / "data_batch_3").open("ab") as file:
        file.write(b"torn")
    with pytest.raises(ConfigError, match="which has no whole cifar10 in"):
        load_dataset(settings("cifar10", tmp_path))


def test_a_root_below_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_sets.make("mnist", tmp_path / "home" / "sets")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert len(load_dataset(settings("mnist", "~/sets")).test_targets) == tiny_sets.TEST
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert (tmp_path / "home" / "sets" / ".dfl_dist").is_dir()


def test_limit_takes_the_first_samples(tmp_path: Path) -> None:
    written = tiny_sets.make("mnist", tmp_path)
    data = load_dataset(settings("mnist", tmp_path, limit=50))
    np.testing.assert_array_equal(data.train_inputs, written["train_inputs"][:50])
    assert len(data.train_targets) == 50
    assert len(data.test_targets) == tiny_sets.TEST


def test_digits_are_the_real_ones() -> None:
    data = digits()
    assert (data.train_inputs.shape, data.test_inputs.shape) == ((1437, 64), (360, 64))
    assert (data.train_inputs.min(), data.train_inputs.max()) == (0, 1)
    assert np.unique(data.train_inputs * 16).tolist() == list(range(17))
    everything = np.concatenate([data.train_targets, data.test_targets])
    assert np.bincount(everything).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    images = {row.tobytes() for row in np.concatenate([data.train_inputs, data.test_inputs])}
    assert len(images) == 1797, "no image stands twice, so none of the test images was trained on"
