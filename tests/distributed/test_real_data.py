"""Runs on images: on the real MNIST and CIFAR where they are at hand, and on tiny sets of the same formats."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tiny_sets
import torch
from launching import assert_same_clients, client_states, lines, train
from torch import nn
from torch.nn import functional

from dfl_dist.data.datasets import DATASETS, Dataset
from dfl_dist.models.zoo import mnist_2nn, resnet18_gn

MEAN, STD = 0.1307, 0.3081


def by_hand(images: np.ndarray) -> torch.Tensor:
    """MNIST as a model sees it, normalised without the trainer's help."""
    return torch.from_numpy((images.astype(np.float64) / 255 - MEAN) / STD).float()


def test_the_real_sets(real_data: Path) -> None:
    sizes = {"mnist": (60000, 10000), "cifar10": (50000, 10000), "cifar100": (50000, 10000)}
    for name, size in sizes.items():
        data = DATASETS[name].load(real_data, False)
        assert (len(data.train_inputs), len(data.test_inputs)) == size
        pixels = data.train_inputs[:20000] / 255
        np.testing.assert_allclose(pixels.mean(axis=(0, 2, 3)), data.pixels.mean, atol=2e-3)
        np.testing.assert_allclose(pixels.std(axis=(0, 2, 3)), data.pixels.std, atol=2e-3)
    mnist = DATASETS["mnist"].load(real_data, False)
    assert np.bincount(mnist.train_targets).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def plain_loop(data: Dataset, seed: int, epochs: int) -> float:
    """What anybody would write to train `mnist_2nn`: no clients, no rounds, torch's own optimiser."""
    torch.manual_seed(seed)
    inputs, targets, model = by_hand(data.train_inputs), torch.from_numpy(data.train_targets), mnist_2nn()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        optimiser.param_groups[0]["lr"] = 0.1 * 0.998**epoch
        for rows in torch.randperm(len(targets)).split(128):
            optimiser.zero_grad()
            functional.cross_entropy(model(inputs[rows]), targets[rows]).backward()
            optimiser.step()
    with torch.no_grad():
        guesses = model(by_hand(data.test_inputs)).argmax(dim=1).numpy()
    return float((guesses == data.test_targets).mean())


def test_one_client_with_everything_is_as_good_as_a_plain_loop(tmp_path: Path, real_data: Path) -> None:
    data, seeds, epochs = DATASETS["mnist"].load(real_data, False), range(3), 5
    rounds = ("--algorithm", "sgp", "--num_clients", "1", "--rounds", str(epochs), "--local.lr", "0.1")
    files = ("--data.name", "mnist", "--data.root", str(real_data), "--local.batch_size", "128", "--eval.every", "9")

    def ours(seed: int) -> float:
        out = train(1, tmp_path / str(seed), *rounds, *files, "--seed", str(seed), "--checkpoint.every", "0")
        return float(lines(out / "metrics.jsonl")[-1]["test_accuracy"])

    with ThreadPoolExecutor(max_workers=1) as other_core:
        coming = [other_core.submit(ours, seed) for seed in seeds]
        expected = [plain_loop(data, seed, epochs) for seed in seeds]
        found = [one.result() for one in coming]
    assert min(expected) > 0.96
    assert abs(np.mean(found) - np.mean(expected)) < 0.003, (found, expected)


@pytest.mark.parametrize("ranks", [3, 1])
def test_mean_model_is_scored_as_in_one_process(tmp_path: Path, real_data: Path, ranks: int) -> None:
    """The test set is split over the ranks; evaluated at once in one process, accuracy is equal and loss to 1e-6."""
    limits = ("--data.limit", "3000", "--num_clients", "6", "--rounds", "2", "--local.epochs", "1")
    out = train(ranks, tmp_path / "run", "--data.name", "mnist", "--data.root", str(real_data), *limits)
    last, data, model = lines(out / "metrics.jsonl")[-1], DATASETS["mnist"].load(real_data, False), mnist_2nn()
    model.load_state_dict(torch.load(out / "model.pt", weights_only=True))
    targets = torch.from_numpy(data.test_targets)
    with torch.no_grad():
        outputs = model(by_hand(data.test_inputs))
    assert last["test_accuracy"] == int((outputs.argmax(dim=1) == targets).sum()) / len(targets)
    assert 0.3 < last["test_accuracy"] < 1
    assert last["test_loss"] == pytest.approx(float(functional.cross_entropy(outputs.double(), targets)), abs=1e-6)


def fewer_test_images(real_data: Path, root: Path, count: int) -> Path:
    """The real CIFAR-100 with only the first of its test images: all of them take a ResNet minutes on two cores."""
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for path in (real_data / "cifar-100-python").iterdir():
        if path.name != "test":
            (folder / path.name).symlink_to(path)
    with (real_data / "cifar-100-python" / "test").open("rb") as file:
        content = pickle.load(file, encoding="latin1")
    with (folder / "test").open("wb") as file:
        pickle.dump({key: value[:count] for key, value in content.items() if key != "batch_label"}, file)
    return root


@pytest.mark.timeout(600)
def test_cifar100_with_resnet_takes_a_round(tmp_path: Path, real_data: Path) -> None:
    root = fewer_test_images(real_data, tmp_path / "root", 1000)
    names = ("--data.name", "cifar100", "--data.root", str(root), "--model.name", "resnet18_gn")
    short = ("--num_clients", "2", "--rounds", "1", "--local.epochs", "1", "--data.limit", "32")
    out = train(
        2, tmp_path / "run", *names, *short, "--data.augment", "true", "--checkpoint.keep", "0", target="tiny_sets:main"
    )
    before, after = (client_states(out, rounds) for rounds in (0, 1))
    assert len(after) == 2
    assert all(not torch.equal(old["x"], new["x"]) for old, new in zip(before, after, strict=True))
    line = lines(out / "metrics.jsonl")[0]
    assert 3 < line["train_loss"] < 7, "about log(100) before anything is learnt"
    assert 0 <= line["test_accuracy"] < 0.1
    resnet18_gn(100).load_state_dict(torch.load(out / "model.pt", weights_only=True))


def test_training_sees_normalised_images(tmp_path: Path) -> None:
    """With lr 0 the loss of a round is that of the initial model on the images normalised by hand."""
    written = tiny_sets.make("mnist", tmp_path / "root")
    still = ("--num_clients", "1", "--rounds", "1", "--local.lr", "0", "--local.epochs", "1", "--local.batch_size", "0")
    out = train(1, tmp_path / "run", "--data.name", "mnist", "--data.root", str(tmp_path / "root"), *still)
    model: nn.Module = mnist_2nn()
    model.load_state_dict(torch.load(out / "model.pt", weights_only=True))
    targets = torch.from_numpy(written["train_targets"])
    with torch.no_grad():
        loss = float(functional.cross_entropy(model(by_hand(written["train_inputs"])).double(), targets))
    assert lines(out / "metrics.jsonl")[0]["train_loss"] == pytest.approx(loss, abs=1e-6)


def test_augmented_runs_are_bit_identical_on_any_layout(tmp_path: Path) -> None:
    root = tmp_path / "root"
    tiny_sets.make("cifar10", root)
    settings = ("--data.root", str(root), "--data.name", "cifar10", "--num_clients", "4", "--rounds", "2")
    settings += ("--local.epochs", "1", "--checkpoint.every", "2", "--local.lr", "0.05")
    augmented = [
        train(ranks, tmp_path / f"{ranks}", *settings, "--data.augment", "true", target="tiny_sets:main")
        for ranks in (1, 2)
    ]
    plain = train(2, tmp_path / "plain", *settings, target="tiny_sets:main")
    assert_same_clients(*augmented, 2)
    assert not torch.equal(client_states(plain, 2)[0]["x"], client_states(augmented[0], 2)[0]["x"])
