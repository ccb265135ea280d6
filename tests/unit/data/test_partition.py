"""Partitions: every sample once, equal sizes, reproducible; Dirichlet uneven as alpha says, shards of few classes."""

import hashlib
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dfl_dist.data.datasets import digits
from dfl_dist.data.partition import PARTITIONS, Partition, counts, load, read, save
from dfl_dist.errors import ConfigError
from dfl_dist.randomness import stream


def divide(
    name: str, targets: np.ndarray, clients: int, seed: int = 0, alpha: float = 0.3, classes_per_client: int = 2
) -> Partition:
    rng = stream(seed, "partition")
    return PARTITIONS[name](targets, clients, rng, alpha=alpha, classes_per_client=classes_per_client)


@given(
    name=st.sampled_from(sorted(PARTITIONS)),
    targets=st.lists(st.integers(0, 9), min_size=1, max_size=200),
    clients=st.integers(1, 30),
    alpha=st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 100.0]),
    classes_per_client=st.integers(1, 10),
    seed=st.integers(0, 1000),
)
def test_every_sample_once_and_sizes_equal(
    name: str, targets: list[int], clients: int, alpha: float, classes_per_client: int, seed: int
) -> None:
    clients, classes_per_client = min(clients, len(targets)), min(classes_per_client, max(targets) + 1)
    shards, again = (divide(name, np.array(targets), clients, seed, alpha, classes_per_client) for _ in range(2))
    assert [shard.tolist() for shard in shards] == [shard.tolist() for shard in again]
    assert len(shards) == clients
    assert sorted(np.concatenate(shards).tolist()) == list(range(len(targets)))
    lengths = [len(shard) for shard in shards]
    assert max(lengths) - min(lengths) <= 1


def test_more_clients_than_samples_are_refused() -> None:
    for name in PARTITIONS:
        with pytest.raises(ConfigError, match="num_clients: given 4, allowed: at most 3"):
            divide(name, np.arange(3), 4)


def unevenness(alpha: float) -> float:
    """Mean distance of the clients' class shares from those of the whole, over seeds."""
    targets = digits().train_targets
    whole = np.bincount(targets, minlength=10) / len(targets)
    distances = []
    for seed in range(5):
        for shard in divide("dirichlet", targets, 8, seed, alpha):
            distances.append(np.abs(np.bincount(targets[shard], minlength=10) / len(shard) - whole).sum() / 2)
    return float(np.mean(distances))


def test_small_alpha_is_heterogeneous_and_large_is_not() -> None:
    assert unevenness(0.05) > 0.6 > unevenness(0.3) > 0.35 > unevenness(100) > 0


def test_dirichlet_stays_what_it_was() -> None:
    """A seed gives the partition that it has always given, so that runs can be repeated with later versions."""
    targets = digits().train_targets
    found = hashlib.sha256()
    for alpha in (1e-3, 0.3, 10):
        for shard in divide("dirichlet", targets, 12, alpha=alpha):
            found.update(shard.astype("<i8").tobytes())
    assert found.hexdigest()[:16] == "ae18e129c5d46a38"


@pytest.mark.parametrize(("samples", "classes"), [(60_000, 10), (50_000, 100)])
@pytest.mark.parametrize("name", PARTITIONS)
def test_large_sets_are_divided_quickly(name: str, samples: int, classes: int) -> None:
    targets = np.random.default_rng(0).integers(classes, size=samples)
    start = time.process_time()
    assert len(divide(name, targets, 100)) == 100
    assert time.process_time() - start < 1


# Label shards.


def held(targets: np.ndarray, clients: int, classes_per_client: int, seed: int = 0) -> np.ndarray:
    """The number of classes that each client has samples of."""
    shards = divide("shards", targets, clients, seed, classes_per_client=classes_per_client)
    return np.count_nonzero(counts(shards, targets, int(targets.max()) + 1), axis=1)


@given(
    class_sizes=st.lists(st.integers(0, 60), min_size=1, max_size=14).filter(any),
    clients=st.integers(1, 30),
    classes_per_client=st.integers(1, 14),
    seed=st.integers(0, 1000),
)
@example(class_sizes=[1000, 1, 1, 1, 500, 200, 100, 50, 20, 10], clients=9, classes_per_client=2, seed=0)
@example(class_sizes=[1, 1, 6, 6, 6], clients=2, classes_per_client=3, seed=0)
def test_few_clients_have_more_classes_than_asked(
    class_sizes: list[int], clients: int, classes_per_client: int, seed: int
) -> None:
    targets = np.repeat(np.arange(len(class_sizes)), class_sizes)
    classes, clients = int(targets.max()) + 1, min(clients, len(targets))
    classes_per_client = min(classes_per_client, classes)
    too_many = np.maximum(held(targets, clients, classes_per_client, seed) - classes_per_client, 0)
    assert too_many.sum() < classes
    if np.count_nonzero(class_sizes) <= clients * (classes_per_client - 1) + 1:
        assert too_many.sum() == 0


@pytest.mark.parametrize(
    ("clients", "classes_per_client", "class_size"), [(10, 1, 60), (10, 2, 60), (100, 3, 300), (5, 4, 50), (30, 1, 50)]
)
def test_classes_that_divide_evenly(clients: int, classes_per_client: int, class_size: int) -> None:
    targets = np.random.default_rng(0).permutation(np.repeat(np.arange(10), class_size))
    for seed in range(5):
        table = counts(divide("shards", targets, clients, seed, classes_per_client=classes_per_client), targets, 10)
        assert (np.count_nonzero(table, axis=1) == classes_per_client).all()
        pieces = table[table > 0]
        assert pieces.max() - pieces.min() <= 1, "all pieces are equally large"


@pytest.mark.parametrize(("clients", "classes_per_client"), [(9, 2), (16, 2), (100, 2), (5, 3), (20, 5), (20, 8)])
def test_real_classes_give_every_client_as_many_as_asked(clients: int, classes_per_client: int) -> None:
    targets = digits().train_targets
    for seed in range(3):
        assert held(targets, clients, classes_per_client, seed).tolist() == [classes_per_client] * clients


@pytest.mark.parametrize("clients", [10, 20, 100])
def test_pieces_are_about_equally_large(clients: int) -> None:
    targets = digits().train_targets
    piece = len(targets) / clients / 2
    for seed in range(3):
        table = counts(divide("shards", targets, clients, seed), targets, 10)
        assert 0.8 < np.median(table[table > 0]) / piece < 1.2
        assert table[table > 0].min() > piece / 4


@pytest.mark.parametrize(("clients", "classes_per_client"), [(99, 2), (50, 3), (33, 4)])
def test_a_hundred_very_unequal_classes(clients: int, classes_per_client: int) -> None:
    """As many classes as can be promised to fit, whatever their sizes."""
    targets = np.repeat(np.arange(100), np.random.default_rng(0).integers(1, 500, size=100))
    assert held(targets, clients, classes_per_client).max() == classes_per_client


def test_fewer_places_than_classes() -> None:
    """8 clients with 2 classes each cannot hold 10 unequal classes, nor 100 of any size."""
    assert sorted(held(digits().train_targets, 8, 2)) == [2] * 7 + [3]
    found = held(np.repeat(np.arange(100), 80), 8, 2)
    assert found.sum() <= 107, "cutting 100 classes into 8 shards takes 7 cuts"
    assert found.max() < 20, "and nobody gets far more than 100/8"


def test_all_classes_meet_and_clients_are_alike() -> None:
    """Over seeds, every two classes come together on some client, and every client gets every class."""
    targets = np.repeat(np.arange(5), 40)
    tables = [counts(divide("shards", targets, 10, seed), targets, 5) > 0 for seed in range(40)]
    together = sum((table.T.astype(int) @ table) for table in tables)
    assert (together > 0).all()
    times = sum(table.astype(int) for table in tables)  # each about 40 · 2/5 = 16, with a deviation of 3
    assert times.min() > 3
    assert times.max() < 29


@pytest.mark.parametrize("classes_per_client", [0, 11, 20])
def test_more_classes_per_client_than_there_are_is_refused(classes_per_client: int) -> None:
    complaint = f"data.classes_per_client: given {classes_per_client}, allowed: 1 to 10, the number of classes"
    with pytest.raises(ConfigError, match=f"^{complaint}$"):
        divide("shards", digits().train_targets, 8, classes_per_client=classes_per_client)


# What they have in common.


def test_counts_are_clients_by_classes() -> None:
    table = counts([np.array([0, 3]), np.array([1, 2, 4])], np.array([0, 2, 2, 0, 1]), 4)
    assert table.tolist() == [[2, 0, 0, 0], [0, 1, 2, 0]]


def test_seeds_give_other_partitions() -> None:
    targets = digits().train_targets
    for name in PARTITIONS:
        one, other = (divide(name, targets, 8, seed) for seed in (0, 1))
        assert one[0].tolist() != other[0].tolist()


def test_file_has_one_array_per_client(tmp_path: Path) -> None:
    save([np.array([4, 2]), np.array([1]), np.array([0, 3])], tmp_path / "partition.npz")
    with np.load(tmp_path / "partition.npz") as arrays:
        assert sorted(arrays) == ["client_0000", "client_0001", "client_0002"]
    assert [shard.tolist() for shard in load(tmp_path / "partition.npz", range(0, 2))] == [[4, 2], [1]]


def write_arrays(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_a_division_of_ones_own_may_have_any_sizes(tmp_path: Path) -> None:
    path = write_arrays(tmp_path / "own.npz", client_0001=[7], client_0000=np.array([3, 1, 2], np.uint8))
    assert [shard.tolist() for shard in read(path, 2, 8)] == [[3, 1, 2], [7]]
    assert all(shard.dtype == np.int64 for shard in read(path, 2, 8))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({}, "which has no arrays, allowed: client_0000 to client_0001, with num_clients 2"),
        ({"client_0000": [0]}, "which has 1 array (client_0000), allowed: client_0000 to client_0001"),
        (
            {f"client_000{i}": [i] for i in range(3)},
            "which has 3 arrays (client_0000 to client_0002), allowed: client_0000 to client_0001",
        ),
        ({"client_0000": [0], "b": [1]}, "which has 2 arrays (b to client_0000), allowed: client_0000 to client_0001"),
        ({"client_0000": [0], "client_0001": []}, "whose client_0001 is float64 of shape [0], allowed: a list"),
        ({"client_0000": [0], "client_0001": [1.0]}, "whose client_0001 is float64 of shape [1], allowed: a list"),
        ({"client_0000": [[0]], "client_0001": [1]}, "whose client_0000 is int64 of shape [1, 1], allowed: a list"),
        ({"client_0000": [0], "client_0001": [8]}, "whose client_0001 has 8, allowed: 0 to 7"),
        ({"client_0000": [-1], "client_0001": [1]}, "whose client_0000 has -1, allowed: 0 to 7"),
        (
            {"client_0000": [0, 3], "client_0001": [3]},
            "which has sample 3 more than once (client_0000 and client_0001)",
        ),
        ({"client_0000": [0], "client_0001": [3, 3]}, "which has sample 3 more than once (client_0001)"),
        ({"client_0000": np.array([None]), "client_0001": [3]}, "which cannot be read (ValueError: "),
    ],
)
def test_a_wrong_division_is_refused_in_one_line(arrays: dict[str, object], said: str, tmp_path: Path) -> None:
    path = write_arrays(tmp_path / "own.npz", **arrays)
    with pytest.raises(ConfigError) as error:
        read(path, 2, 8)
    assert str(error.value).startswith(f"data.file: given {path}, {said}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [None, b"", b"no arrays\n", b"PK\x03\x04 torn"])
def test_a_file_that_is_no_division_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"own.npz, which cannot be read \(.*\), allowed: a partition.npz, one array"):
        read(path, 2, 8)


def test_a_single_array_is_no_division(tmp_path: Path) -> None:
    np.save(tmp_path / "own.npy", np.arange(8))
    with pytest.raises(ConfigError, match=r"which cannot be read .*, allowed: a partition.npz, one array per client"):
        read(tmp_path / "own.npy", 2, 8)
