"""Dividing the training set over the clients: every sample is used once, sizes differ by at most one."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

Partition = list[np.ndarray]


def shard_sizes(num_samples: int, num_clients: int) -> list[int]:
    """As equal as they can be; the first ones get one more."""
    if num_clients > num_samples:
        raise ValueError(
            f"num_clients: given {num_clients}, allowed: at most {num_samples}, the number of training samples"
        )
    return [num_samples // num_clients + (client < num_samples % num_clients) for client in range(num_clients)]


def iid(targets: np.ndarray, num_clients: int, rng: np.random.Generator, *, alpha: float) -> Partition:
    """A random division, whatever the classes."""
    sizes = shard_sizes(len(targets), num_clients)
    return np.split(rng.permutation(len(targets)), np.cumsum(sizes)[:-1])


def dirichlet(targets: np.ndarray, num_clients: int, rng: np.random.Generator, *, alpha: float) -> Partition:
    """Each client wants classes in proportions drawn from Dirichlet(alpha).

    The places of all clients are filled in random order, each with a sample of a class that its client wants and that
    is still there; when none is left, of any class in proportion to what remains. So no client is favoured for its
    number, and it never stalls.
    """
    num_classes = int(targets.max()) + 1
    sizes = shard_sizes(len(targets), num_clients)
    wanted = rng.dirichlet(np.full(num_classes, alpha), size=num_clients)
    pools = [rng.permutation(np.flatnonzero(targets == label)) for label in range(num_classes)]
    left = np.array([len(pool) for pool in pools])
    shards: list[list[int]] = [[] for _ in range(num_clients)]
    places = rng.permutation(np.repeat(np.arange(num_clients), sizes))
    for client, draw in zip(places, rng.random(len(places)), strict=True):
        chances = np.where(left > 0, wanted[client], 0.0)
        if not chances.sum() > 0:
            chances = left.astype(float)
        bounds = np.cumsum(chances)
        label = int(np.searchsorted(bounds, draw * bounds[-1], side="right"))
        label = min(label, int(np.flatnonzero(chances)[-1]))  # draw * total may round up to the total
        left[label] -= 1
        shards[client].append(int(pools[label][left[label]]))
    return [np.array(shard, dtype=np.int64) for shard in shards]


PARTITIONS: dict[str, Callable[..., Partition]] = {
    "iid": iid,
    "dirichlet": dirichlet,
}


def save(shards: Partition, path: Path) -> None:
    """Write each client's indices as `client_0000`, `client_0001`, …"""
    arrays = {f"client_{client:04d}": shard for client, shard in enumerate(shards)}
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def load(path: Path, clients: range) -> Partition:
    """The indices of some clients."""
    with np.load(path) as arrays:
        return [arrays[f"client_{client:04d}"] for client in clients]
