"""One random stream for each (seed, purpose, client, round), so that nothing depends on who drew before."""

import zlib

import numpy as np

PURPOSES = ("init", "partition", "graph", "batches", "augmentation", "dropout")


def stream(seed: int, purpose: str, *, client: int = 0, round_idx: int = 0) -> np.random.Generator:
    """The generator of one purpose of one client in one round."""
    assert purpose in PURPOSES, purpose
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), client, round_idx])


def torch_seed(generator: np.random.Generator) -> int:
    """A seed for torch's generator, which has no streams of its own."""
    return int(generator.integers(2**63))
