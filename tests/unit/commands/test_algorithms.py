"""`dfl-dist algorithms`: the table of methods."""

import dataclasses
import re

import pytest

from dfl_dist.algorithms.table import ALGORITHMS, Method
from dfl_dist.commands.main import main
from dfl_dist.config.resolve import METHOD_KEYS
from dfl_dist.config.schema import SETTINGS


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["algorithms"]) == 0
    head, *rows = [re.split(r"\s{2,}", line) for line in capsys.readouterr().out.splitlines()]
    assert head == ["algorithm", *METHOD_KEYS.values(), "mixing"]
    assert [row[0] for row in rows] == list(ALGORITHMS)
    found = {row[0]: row[1:] for row in rows}
    assert found["dfedsgpsm"] == ["random_directed", "0.1", "0.9", "5", "step", "-", "push-sum, out-degree weights"]
    assert found["dfedsam"] == ["random_symmetric", "0.25", "0.0", "5", "step", "-", "push-sum, metropolis weights"]
    assert found["fedavg"] == ["server", "0.0", "0.0", "5", "step", "0.1", "server average"]


def test_every_field_of_a_row_is_a_column_and_a_setting() -> None:
    assert list(METHOD_KEYS) == [field.name for field in dataclasses.fields(Method)]
    assert set(METHOD_KEYS.values()) <= set(SETTINGS)


def test_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["algorithms", "osgp"]) == 2
    assert capsys.readouterr().err == "dfl-dist: algorithms: given osgp, allowed: no arguments\n"
    assert main(["algorithms", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: dfl-dist algorithms\n")
