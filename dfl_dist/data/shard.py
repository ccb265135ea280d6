"""Samples on the training device: looked up by index, scaled and augmented there, a batch at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

PADDING = 4  # pixels on each side, before an image is cropped to its size again


@dataclass(frozen=True)
class Pixels:
    """How bytes become a model's inputs: scaled to [0, 1], then normalised channel by channel."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def scale(self, images: Tensor, dtype: torch.dtype) -> Tensor:
        """(images / 255 − mean) / std; images: [b, c, …] of bytes, with as many channels as there are means, or one."""
        shape = (-1, *[1] * (images.ndim - 2))
        mean, std = (torch.tensor(values, dtype=dtype, device=images.device) for values in (self.mean, self.std))
        return images.to(dtype).div_(255).sub_(mean.view(shape)).div_(std.view(shape))


PLAIN = Pixels()


@dataclass(frozen=True)
class Shard:
    """Samples on the training device; inputs that are bytes are images, and stay bytes until they are used."""

    inputs: Tensor
    targets: Tensor
    dtype: torch.dtype
    pixels: Pixels = PLAIN

    def __len__(self) -> int:
        return len(self.targets)

    def part(self, rows: slice) -> "Shard":
        """Some of the samples, not copied."""
        return Shard(self.inputs[rows], self.targets[rows], self.dtype, self.pixels)

    def take(self, rows: Tensor | slice, augmentation: np.random.Generator | None = None) -> tuple[Tensor, Tensor]:
        """A batch: inputs as a model wants them, and targets."""
        inputs = self.inputs[rows]
        if augmentation is not None:
            inputs = crop_and_flip(inputs, augmentation)
        if inputs.dtype == torch.uint8:
            inputs = self.pixels.scale(inputs, self.dtype)
        return inputs, self.targets[rows]

    def draw(
        self, index_batches: Iterator[np.ndarray], augmentation: np.random.Generator | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches that hold these indices."""
        for indices in index_batches:
            yield self.take(torch.from_numpy(indices).to(self.targets.device), augmentation)


def make_shard(inputs: np.ndarray, targets: np.ndarray, pixels: Pixels, model_params: Tensor) -> Shard:
    """Arrays as tensors where the model trains; numbers in its precision, bytes and whole numbers as they are."""
    device, dtype = model_params.device, model_params.dtype
    tensor = torch.from_numpy(inputs)
    tensor = tensor.to(device=device, dtype=dtype) if tensor.is_floating_point() else tensor.to(device)
    return Shard(tensor, torch.from_numpy(targets).to(device), dtype, pixels)


def crop_and_flip(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Every image moved by up to `PADDING` pixels each way, black moving in, and every second one mirrored, by chance.

    images: [b, c, h, w]. One look-up for the whole batch, with a choice for each image.
    """
    count, channels, height, width = images.shape
    draws = rng.integers([2 * PADDING + 1, 2 * PADDING + 1, 2], size=(count, 3))
    down, right, mirrored = torch.from_numpy(draws).to(images.device).T[:, :, None]
    rows = down + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device)
    columns = right + torch.where(mirrored > 0, width - 1 - columns, columns)
    padded = functional.pad(images, (PADDING,) * 4)
    image = torch.arange(count, device=images.device)[:, None, None, None]
    channel = torch.arange(channels, device=images.device)[:, None, None]
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


def batches(
    size: int, batch_size: int, *, epochs: int | None, steps: int | None, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Index batches over a shard, reshuffled each epoch, the last partial batch kept; as many as `steps` if given."""
    batch_size = batch_size or size
    per_epoch = -(-size // batch_size)
    total = steps if steps is not None else per_epoch * (epochs or 0)
    for step in range(total):
        start = step % per_epoch * batch_size
        if start == 0:
            order = rng.permutation(size)
        yield order[start : start + batch_size]
