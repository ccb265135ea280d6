"""The table of methods, to the letter."""

import pytest

from dfl_dist.algorithms.table import ALGORITHMS
from dfl_dist.topology.kinds import KINDS

ROWS = {
    "dfedsgpsm": ("random_directed", 0.1, 0.9, 5, "step", None),
    "dfedsgpsm-s": ("by_loss", 0.1, 0.9, 5, "step", None),
    "dfedsgpm": ("random_directed", 0.0, 0.9, 5, "step", None),
    "osgp": ("random_directed", 0.0, 0.0, 5, "step", None),
    "sgp": ("random_directed", 0.0, 0.0, 1, "step", None),
    "asyng": ("by_loss", 0.0, 0.0, 5, "round", None),
    "dfedsam": ("random_symmetric", 0.25, 0.0, 5, "step", None),
    "dfedavgm": ("random_symmetric", 0.0, 0.9, 5, "step", None),
    "dfedavg": ("random_symmetric", 0.0, 0.0, 5, "step", None),
    "d-psgd": ("random_symmetric", 0.0, 0.0, 1, "step", None),
    "fedavg": ("server", 0.0, 0.0, 5, "step", 0.1),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_methods_of_the_paper_are_as_it_says(name: str) -> None:
    method = ALGORITHMS[name]
    found = (method.graph, method.rho, method.momentum, method.epochs, method.gradient_at, method.participation)
    assert found == ROWS[name]


def test_every_method_has_a_kind_of_graph_that_there_is() -> None:
    for method in ALGORITHMS.values():
        kind = KINDS[method.graph]
        assert (method.participation is not None) == kind.is_server
        assert kind.uses != "file", "a method cannot bring one"
