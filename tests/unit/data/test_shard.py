"""Samples on the device: normalised as the sets ask, cropped and mirrored image by image, from the client's stream."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dfl_dist.data.datasets import DATASETS
from dfl_dist.data.shard import PADDING, PLAIN, Pixels, Shard, batches, crop_and_flip, make_shard
from dfl_dist.randomness import stream

MEANS = {
    "mnist": ((0.1307,), (0.3081,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


@pytest.mark.parametrize("name", sorted(MEANS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bytes_are_scaled_and_normalised(name: str, dtype: torch.dtype) -> None:
    mean, std = MEANS[name]
    images = np.random.default_rng(0).integers(256, size=(6, len(mean), 5, 4), dtype=np.uint8)
    shard = make_shard(images, np.arange(6), Pixels(mean, std), torch.zeros(0, dtype=dtype))
    inputs, targets = shard.take(torch.tensor([4, 1, 1]))
    column = (slice(None), None, None)
    expected = (images[[4, 1, 1]] / 255 - np.array(mean)[column]) / np.array(std)[column]
    assert inputs.dtype == dtype
    np.testing.assert_allclose(inputs.numpy(), expected, rtol=0, atol=1e-6 if dtype == torch.float32 else 1e-12)
    assert targets.tolist() == [4, 1, 1]
    assert shard.inputs.dtype == torch.uint8, "kept as bytes"


def test_numbers_take_the_models_precision_and_whole_numbers_stay() -> None:
    params = torch.zeros(0, dtype=torch.float64)
    numbers = make_shard(np.ones((2, 3), dtype=np.float32), np.arange(2), PLAIN, params)
    words = make_shard(np.ones((2, 3), dtype=np.int64), np.arange(2), PLAIN, params)
    assert numbers.take(slice(1))[0].dtype == torch.float64
    assert words.take(slice(1))[0].dtype == torch.int64
    assert float(make_shard(np.full((1, 4), 255, np.uint8), np.arange(1), PLAIN, params).take(slice(1))[0][0, 0]) == 1


def by_hand(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Crop and mirror image by image, as one would write it down."""
    out = np.zeros_like(images)
    for number, (down, right, mirrored) in enumerate(
        rng.integers([2 * PADDING + 1, 2 * PADDING + 1, 2], size=(len(images), 3))
    ):
        _, height, width = images[number].shape
        padded = np.pad(images[number], ((0, 0), (PADDING, PADDING), (PADDING, PADDING)))
        crop = padded[:, down : down + height, right : right + width]
        out[number] = crop[:, :, ::-1] if mirrored else crop
    return out


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_each_image_is_moved_and_mirrored_its_own_way(dtype: type) -> None:
    images = np.random.default_rng(1).integers(1, 256, size=(200, 3, 12, 10)).astype(dtype)
    found = crop_and_flip(torch.from_numpy(images), stream(0, "augmentation", client=3, round_idx=2)).numpy()
    np.testing.assert_array_equal(found, by_hand(images, stream(0, "augmentation", client=3, round_idx=2)))
    assert len({(image[0] > 0).tobytes() for image in found}) > 30, "many different places"


def test_moves_and_mirroring_are_uniform() -> None:
    """Chi-square over 9 × 9 × 2 choices, from where one bright pixel ends up; a false alarm in a million."""
    count = 16200
    images = torch.zeros((count, 1, 19, 19), dtype=torch.uint8)
    images[:, 0, 9, 8] = 1  # beside the middle, so that mirroring shows
    images[:, 0, 9, 9] = 2
    found = crop_and_flip(images, np.random.default_rng(0))[:, 0].reshape(count, -1)
    middle, beside = (found == 2).int().argmax(1), (found == 1).int().argmax(1)
    choices = torch.stack([middle // 19, middle % 19, (beside > middle).int()], 1)
    _, seen = torch.unique(choices, dim=0, return_counts=True)
    assert len(seen) == 162
    assert float(((seen - 100.0) ** 2 / 100).sum()) < 261  # chi-square of 161 degrees of freedom at 1e-6


def test_draws_are_the_clients_own() -> None:
    images = torch.arange(5 * 64, dtype=torch.uint8).reshape(5, 1, 8, 8)
    shard = Shard(images, torch.arange(5), torch.float32)
    chosen = [np.array([0, 1]), np.array([4])]

    def draw(client: int, round_idx: int) -> list[list[float]]:
        drawn = shard.draw(iter(chosen), stream(0, "augmentation", client=client, round_idx=round_idx))
        return [inputs.flatten().tolist() for inputs, _ in drawn]

    assert draw(1, 1) == draw(1, 1)
    assert len({str(draw(client, round_idx)) for client in (0, 1) for round_idx in (0, 1)}) == 4
    plain = [inputs for inputs, _ in shard.draw(iter(chosen), None)]
    assert torch.equal(plain[0], images[:2] / 255)


def test_only_images_that_may_be_mirrored_are() -> None:
    assert [name for name, source in DATASETS.items() if source.augment] == ["cifar10", "cifar100"]


# Batches.


@given(st.integers(1, 60), st.integers(0, 70), st.integers(1, 4))
def test_epochs_cover_the_shard_each_time(size: int, batch_size: int, epochs: int) -> None:
    taken = list(batches(size, batch_size, epochs=epochs, steps=None, rng=np.random.default_rng(0)))
    width = batch_size or size
    per_epoch = -(-size // width)
    assert len(taken) == per_epoch * epochs
    for epoch in range(epochs):
        parts = taken[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert sorted(np.concatenate(parts).tolist()) == list(range(size))
        assert all(len(part) == width for part in parts[:-1]), "only the last batch of an epoch may be smaller"


def test_steps_go_on_over_reshuffled_epochs() -> None:
    taken = list(batches(10, 4, epochs=None, steps=7, rng=np.random.default_rng(0)))
    assert [len(batch) for batch in taken] == [4, 4, 2, 4, 4, 2, 4]
    assert np.concatenate(taken[:3]).tolist() != np.concatenate(taken[3:6]).tolist()
