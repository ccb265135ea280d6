"""Partitions: every sample once, equal sizes, reproducible; Dirichlet is as uneven as alpha says."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfl_dist.data.datasets import digits
from dfl_dist.data.partition import PARTITIONS, load, save
from dfl_dist.randomness import stream


@given(
    name=st.sampled_from(sorted(PARTITIONS)),
    targets=st.lists(st.integers(0, 9), min_size=1, max_size=200),
    clients=st.integers(1, 30),
    alpha=st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 100.0]),
    seed=st.integers(0, 1000),
)
def test_every_sample_once_and_sizes_equal(
    name: str, targets: list[int], clients: int, alpha: float, seed: int
) -> None:
    clients = min(clients, len(targets))
    labels = np.array(targets)
    shards = PARTITIONS[name](labels, clients, stream(seed, "partition"), alpha=alpha)
    again = PARTITIONS[name](labels, clients, stream(seed, "partition"), alpha=alpha)
    assert [shard.tolist() for shard in shards] == [shard.tolist() for shard in again]
    assert len(shards) == clients
    assert sorted(np.concatenate(shards).tolist()) == list(range(len(targets)))
    lengths = [len(shard) for shard in shards]
    assert max(lengths) - min(lengths) <= 1


def test_more_clients_than_samples_are_refused() -> None:
    for divide in PARTITIONS.values():
        with pytest.raises(ValueError, match="num_clients: given 4, allowed: at most 3"):
            divide(np.zeros(3, dtype=int), 4, stream(0, "partition"), alpha=1.0)


def unevenness(alpha: float) -> float:
    """Mean distance of the clients' class shares from those of the whole, over seeds."""
    targets = digits().train_targets
    whole = np.bincount(targets, minlength=10) / len(targets)
    distances = []
    for seed in range(5):
        for shard in PARTITIONS["dirichlet"](targets, 8, stream(seed, "partition"), alpha=alpha):
            distances.append(np.abs(np.bincount(targets[shard], minlength=10) / len(shard) - whole).sum() / 2)
    return float(np.mean(distances))


def test_small_alpha_is_heterogeneous_and_large_is_not() -> None:
    assert unevenness(0.05) > 0.6 > unevenness(0.3) > 0.35 > unevenness(100) > 0


def test_seeds_give_other_partitions() -> None:
    targets = digits().train_targets
    one, other = (PARTITIONS["iid"](targets, 8, stream(seed, "partition"), alpha=1.0) for seed in (0, 1))
    assert one[0].tolist() != other[0].tolist()


def test_file_has_an_array_a_client(tmp_path: Path) -> None:
    save([np.array([4, 2]), np.array([1]), np.array([0, 3])], tmp_path / "partition.npz")
    with np.load(tmp_path / "partition.npz") as arrays:
        assert sorted(arrays) == ["client_0000", "client_0001", "client_0002"]
    assert [shard.tolist() for shard in load(tmp_path / "partition.npz", range(0, 2))] == [[4, 2], [1]]


def test_digits_are_the_real_ones() -> None:
    data = digits()
    assert (data.train_inputs.shape, data.test_inputs.shape) == ((1437, 64), (360, 64))
    assert (data.train_inputs.min(), data.train_inputs.max()) == (0, 1)
    assert np.unique(data.train_inputs * 16).tolist() == list(range(17))
    everything = np.concatenate([data.train_targets, data.test_targets])
    assert np.bincount(everything).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    images = {row.tobytes() for row in np.concatenate([data.train_inputs, data.test_inputs])}
    assert len(images) == 1797, "no image stands twice, so none of the test images was trained on"
