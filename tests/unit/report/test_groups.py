"""By what groups of runs are told apart, and in which words."""

from pathlib import Path
from typing import Any

import pytest
from run_folders import read_groups, write_run

from dfl_dist.config.schema import SETTINGS
from dfl_dist.report import names
from dfl_dist.report.names import tell_setting


def labels(folder: Path, *runs: dict[str, Any]) -> list[str]:
    return [
        group.label for group in read_groups(*(write_run(folder / str(n), [0.5], **run) for n, run in enumerate(runs)))
    ]


IID = {"data__partition": "iid"}
GROUPS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "methods, not the settings that they stand for": (
        [{"algorithm": "dfedsgpsm"}, {"algorithm": "osgp"}],
        ["DFedSGPSM", "OSGP"],
    ),
    "partitions, not an alpha that iid does not use": (
        [{}, {"data__alpha": 0.1}, IID, IID | {"data__alpha": 0.1, "seed": 1}],
        ["DFedSGPSM, Dirichlet 0.3", "DFedSGPSM, Dirichlet 0.1", "DFedSGPSM, IID"],
    ),
    "shards, by their classes": (
        [IID, {"data__partition": "shards", "data__classes_per_client": 4}],
        ["DFedSGPSM, IID", "DFedSGPSM, shards of 4 classes"],
    ),
    "a setting of one method, the default of it beside": (
        [{"local__rho": 0.2}, {}, {"algorithm": "osgp"}],
        ["DFedSGPSM, SAM radius 0.2", "DFedSGPSM, SAM radius 0.1", "OSGP"],
    ),
    "what was asked of one only": (
        [{"local__lr": 0.05}, {"algorithm": "osgp"}],
        ["DFedSGPSM, learning rate 0.05", "OSGP"],
    ),
    "each method by what it uses": (
        [
            {"graph__out_degree": 5},
            {"graph__out_degree": 2},
            {"algorithm": "fedavg", "participation": 0.25},
            {"algorithm": "fedavg", "participation": 0.5, "graph__out_degree": 2},
        ],
        [
            "DFedSGPSM, out-degree 5",
            "DFedSGPSM, out-degree 2",
            "FedAvg, participation 25 %",
            "FedAvg, participation 50 %",
        ],
    ),
    "a kind of graph without the degree that it does not use": (
        [{"graph__kind": "ring", "graph__out_degree": 2}, {"graph__out_degree": 4}],
        ["DFedSGPSM, ring graph", "DFedSGPSM, random directed graph"],
    ),
    "a schedule without the decay that it does not use": (
        [{"local__schedule": "constant", "local__lr_decay": 0.9}, {"local__lr_decay": 0.99}],
        ["DFedSGPSM, constant schedule", "DFedSGPSM, exponential schedule"],
    ),
    "what is the same in the end is one group": (
        [{"local__momentum": 0.9}, {"seed": 1}],
        ["DFedSGPSM"],
    ),
    "data sets, not the models that come with them": (
        [{"data__name": "mnist"}, {"data__name": "cifar10"}],
        ["DFedSGPSM, MNIST", "DFedSGPSM, CIFAR-10"],
    ),
    "on and off": (
        [{"local__clip_norm": 0.0}, {"local__clip_norm": 10.0}, {"graph__static": True}],
        [
            "DFedSGPSM, no clipping, changing graph",
            "DFedSGPSM, clipping at 10, changing graph",
            "DFedSGPSM, clipping at 10, static graph",
        ],
    ),
}


@pytest.mark.parametrize("told", GROUPS)
def test_groups_are_named_by_what_means_something_in_them(tmp_path: Path, told: str) -> None:
    runs, expected = GROUPS[told]
    assert labels(tmp_path, *runs) == expected


def test_runs_of_another_default_are_told_apart(tmp_path: Path) -> None:
    """Nothing was asked for in either: `clip_norm` null was 0 once."""
    older, newer = write_run(tmp_path / "older", [0.5]), write_run(tmp_path / "newer", [0.5])
    resolved = older / "resolved.yaml"
    resolved.write_text(resolved.read_text().replace("clip_norm: 10.0", "clip_norm: null"))
    assert [group.label for group in read_groups(older, newer)] == [
        "DFedSGPSM, no clipping",
        "DFedSGPSM, clipping at 10",
    ]


def test_every_setting_that_has_words_is_one() -> None:
    assert {*names.SETTINGS_IN_WORDS, *names.VALUES_IN_WORDS, *names.SHARES} <= set(SETTINGS)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("local.lr", 0.05, "learning rate 0.05"),
        ("local.lr", 1 / 3, "learning rate 0.3333333333333333"),
        ("local.momentum", 0.0, "no momentum"),
        ("overlap", 2, "overlap 2"),
        ("graph.gossip_steps", 1, "1 gossip step"),
        ("graph.gossip_steps", 3, "gossip steps 3"),
        ("rounds", 1, "1 round"),
        ("local.epochs", 1, "1 local epoch"),
        ("model.name", "cifar_cnn", "cifar_cnn"),
        ("model.init", "/runs/a/model.pt", "from model.pt"),
        ("participation", 0.1, "participation 10 %"),
        ("deterministic", True, "deterministic true"),
    ],
)
def test_a_setting_in_words(key: str, value: object, words: str) -> None:
    assert tell_setting(key, value) == words
