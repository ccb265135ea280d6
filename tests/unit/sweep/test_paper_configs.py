"""The grids of the paper: every cell of every file, with the settings in force."""

from functools import cache
from pathlib import Path

import pytest

from dfl_dist.config.schema import Config
from dfl_dist.config.values import get
from dfl_dist.sweep.grid import Cell, read_sweep

PAPER = Path(__file__).parents[3] / "configs" / "paper"
FILES = sorted(path.name for path in PAPER.glob("*.yaml"))
TEN = {  # the methods of the main tables
    *("dfedsgpsm", "dfedsgpsm-s", "osgp", "sgp", "asyng", "dfedsam", "dfedavgm", "dfedavg", "d-psgd", "fedavg"),
}
WITH_MOMENTUM = {"dfedsgpsm", "dfedsgpsm-s", "dfedsgpm", "dfedavgm"}
RHO = {"dfedsgpsm": 0.1, "dfedsgpsm-s": 0.1, "dfedsam": 0.25}
PARTITIONS = {("dirichlet", 0.3), ("dirichlet", 0.6), ("iid", 0.3)}
SEEDS = {0, 1, 2}


@cache
def cells(file: str) -> list[Cell]:
    return read_sweep(PAPER / file, {}).cells


def values(file: str, *keys: str) -> set[tuple[object, ...]]:
    return {tuple(get(cell.resolved, key) for key in keys) for cell in cells(file)}


def what_all_share(config: Config) -> dict[str, object]:
    keys = ("num_clients", "local.batch_size", "local.lr", "local.lr_decay", "local.clip_norm", "local.step", "overlap")
    return {key: get(config, key) for key in keys}


def test_there_is_a_file_for_each_table_and_figure() -> None:
    ablations = ["ablation_alpha.yaml", "ablation_participation.yaml", "ablation_rho.yaml"]
    assert [*ablations, "cifar10.yaml", "cifar100.yaml", "mnist.yaml", "modules.yaml"] == FILES


@pytest.mark.parametrize("file", FILES)
def test_what_holds_for_every_cell(file: str) -> None:
    assert cells(file)
    for cell in cells(file):
        config = cell.resolved
        assert what_all_share(config) == {
            **{"num_clients": 100, "local.batch_size": 128, "local.lr": 0.1, "local.lr_decay": 0.998},
            **{"local.clip_norm": 10, "local.step": "x", "overlap": 0},
        }, cell.name
        assert config.rounds == (300 if config.data.name == "mnist" else 500), cell.name
        assert config.data.augment == config.data.name.startswith("cifar"), cell.name
        assert config.local.epochs == (1 if config.algorithm in ("sgp", "d-psgd") else 5), cell.name
        if file != "ablation_rho.yaml":
            assert config.local.rho == RHO.get(config.algorithm, 0.0), cell.name
        if file != "ablation_alpha.yaml":
            momentum = 0.1 if config.data.name == "cifar100" else 0.9
            assert config.local.momentum == (momentum if config.algorithm in WITH_MOMENTUM else 0.0), cell.name
        if file != "ablation_participation.yaml":
            assert config.graph.out_degree == 10, cell.name
            assert config.participation == (0.1 if config.algorithm == "fedavg" else 1.0), cell.name
        symmetric = config.algorithm in ("dfedsam", "dfedavgm", "dfedavg", "d-psgd")
        weights = "metropolis" if symmetric else "auto" if config.algorithm == "fedavg" else "out-degree"
        assert config.graph.weights == weights, cell.name


@pytest.mark.parametrize(
    ("data", "models", "more"),
    [
        ("mnist", {"mnist_2nn"}, {"dfedsgpm"}),
        ("cifar10", {"cifar_cnn", "resnet18_gn"}, set()),
        ("cifar100", {"cifar_cnn", "resnet18_gn"}, set()),
    ],
)
def test_a_main_table_has_every_combination(data: str, models: set[str], more: set[str]) -> None:
    found = values(f"{data}.yaml", "data.name", "algorithm", "model.name", "data.partition", "data.alpha", "seed")
    assert found == {
        (data, algorithm, model, *partition, seed)
        for algorithm in {*TEN, *more}
        for model in models
        for partition in PARTITIONS
        for seed in SEEDS
    }
    assert len(cells(f"{data}.yaml")) == len(found)


@pytest.mark.parametrize(
    ("file", "key", "expected"),
    [
        ("ablation_alpha.yaml", "local.momentum", {0.1, 0.3, 0.5, 0.7, 0.9}),
        ("ablation_rho.yaml", "local.rho", {0.1, 0.15, 0.2, 0.25, 0.3}),
    ],
)
def test_an_ablation_of_dfedsgpsm(file: str, key: str, expected: set[float]) -> None:
    assert values(file, "algorithm", key, "seed") == {
        ("dfedsgpsm", value, seed) for value in expected for seed in SEEDS
    }


def test_participation_is_out_neighbours_or_those_that_train_under_a_server() -> None:
    found = values("ablation_participation.yaml", "algorithm", "graph.out_degree", "participation")
    decentralized = {"dfedavgm", "dfedsam", "osgp", "dfedsgpsm", "dfedsgpsm-s"}
    pushes = {(algorithm, degree, 1.0) for algorithm in decentralized for degree in (10, 20, 30, 50)}
    assert {row for row in found if row[0] != "fedavg"} == pushes
    assert {row[2] for row in found if row[0] == "fedavg"} == {0.1, 0.2, 0.3, 0.5}


def test_the_ladder_of_modules_in_its_order() -> None:
    order = dict.fromkeys(cell.resolved.algorithm for cell in cells("modules.yaml"))
    assert list(order) == ["osgp", "dfedsgpm", "dfedsgpsm", "dfedsgpsm-s"]


def test_no_two_files_share_a_folder_and_the_readme_counts_right() -> None:
    assert len({read_sweep(PAPER / file, {}).out for file in FILES}) == len(FILES)
    lines = (PAPER / "README.md").read_text().splitlines()
    counts = {line.split("`")[1]: int(line.split("|")[-2]) for line in lines if line.startswith("| `")}
    assert counts == {file: len(cells(file)) for file in FILES}
