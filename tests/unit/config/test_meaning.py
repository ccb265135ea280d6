"""Which settings mean something, given the others."""

from typing import Any

import pytest

from dfl_dist.config.meaning import USED, means_something
from dfl_dist.config.resolve import resolve
from dfl_dist.config.schema import SETTINGS
from dfl_dist.config.values import ask
from dfl_dist.topology.kinds import KINDS


def meant(key: str, **given: Any) -> bool:
    return means_something(resolve(ask({name.replace("__", "."): value for name, value in given.items()})), key)


def test_every_row_is_of_a_setting() -> None:
    assert set(USED) <= set(SETTINGS)


@pytest.mark.parametrize(
    ("key", "where", "elsewhere"),
    [
        ("data.alpha", {"data__partition": "dirichlet"}, {"data__partition": "iid"}),
        ("data.classes_per_client", {"data__partition": "shards"}, {"data__partition": "dirichlet"}),
        ("data.file", {"data__partition": "file", "data__file": "p.npz"}, {"data__partition": "iid"}),
        ("local.epochs", {}, {"local__steps": 3}),
        ("local.steps", {"local__steps": 3}, {}),
        ("local.lr_decay", {}, {"local__schedule": "constant"}),
        ("local.lr_decay", {}, {"local__schedule": "cosine"}),
        ("local.step", {}, {"algorithm": "fedavg"}),
        ("local.step", {"algorithm": "dfedavg", "overlap": 1}, {"algorithm": "dfedavg"}),
        ("graph.out_degree", {"graph__kind": "random_directed"}, {"graph__kind": "ring"}),
        ("graph.out_degree", {"graph__kind": "by_loss"}, {"algorithm": "fedavg"}),
        ("graph.p", {"graph__kind": "erdos_renyi"}, {"graph__kind": "full"}),
        ("graph.static", {"graph__kind": "random_directed"}, {"graph__kind": "exponential"}),
        ("graph.gossip_steps", {}, {"algorithm": "fedavg"}),
        ("graph.weights", {"graph__kind": "ring"}, {"algorithm": "fedavg"}),
        ("overlap", {}, {"algorithm": "fedavg"}),
        ("participation", {"algorithm": "fedavg"}, {}),
        ("server_lr", {"algorithm": "fedavg"}, {}),
    ],
)
def test_a_setting_means_something_where_it_is_used(key: str, where: dict[str, Any], elsewhere: dict[str, Any]) -> None:
    assert meant(key, **where)
    assert not meant(key, **elsewhere)


@pytest.mark.parametrize("kind", KINDS)
def test_what_shapes_a_kind_of_graph_means_something_with_it(kind: str) -> None:
    """The option that the kind's own row names."""
    uses = KINDS[kind].uses
    if uses is not None and uses != "file":
        assert meant("participation" if uses == "participation" else f"graph.{uses}", graph__kind=kind)
    assert meant("local.lr", graph__kind=kind) if uses != "file" else True
