"""Sweep files: cells and their names, settings in force, one-line refusals before anything is run."""

from pathlib import Path
from typing import Any

import pytest

from dfl_dist.config.parse import parse
from dfl_dist.config.values import get
from dfl_dist.errors import ConfigError
from dfl_dist.sweep.grid import Sweep, read_sweep, share_of

GRID = """
ranks: 2
settings: {num_clients: 8, local: {rho: 0.2}, graph.out_degree: 2}
grid:
  algorithm: [dfedsgpsm, osgp]
  partition:
    iid: {data.partition: iid}
    dir-0.3: {data: {partition: dirichlet, alpha: 0.3}}
  seed: [0, 1]
"""


def read(tmp_path: Path, text: str, over: dict[str, Any] | None = None, **options: Any) -> Sweep:
    path = tmp_path / "g.yaml"
    path.write_text(text)
    return read_sweep(path, over or {}, **options)


def test_every_combination_is_a_cell_named_by_its_values(tmp_path: Path) -> None:
    sweep = read(tmp_path, GRID)
    assert [cell.name for cell in sweep.cells] == [
        f"{algorithm}-{partition}-seed{seed}"
        for algorithm in ("dfedsgpsm", "osgp")
        for partition in ("iid", "dir-0.3")
        for seed in (0, 1)
    ]
    assert (sweep.out, sweep.ranks) == (Path("runs/g"), 2)
    cell = sweep.cells[3]
    assert cell.name == "dfedsgpsm-dir-0.3-seed1"
    assert dict(cell.given) == {
        **{"num_clients": 8, "local.rho": 0.2, "graph.out_degree": 2, "algorithm": "dfedsgpsm"},
        **{"data.partition": "dirichlet", "data.alpha": 0.3, "seed": 1},
    }
    assert get(cell.resolved, "local.momentum") == 0.9, "the row's"
    assert get(cell.resolved, "local.rho") == 0.2, "given"


def test_more_values_and_more_axes_keep_the_names_there_are(tmp_path: Path) -> None:
    before = [cell.name for cell in read(tmp_path, GRID).cells]
    more = read(tmp_path, GRID.replace("[0, 1]", "[0, 1, 2]").replace("osgp]", "osgp, sgp]"))
    assert set(before) < {cell.name for cell in more.cells}
    longer = read(tmp_path, GRID + "  local.lr: [0.1, 0.05]\n")
    assert {cell.name for cell in longer.cells} == {f"{name}-lr{lr}" for name in before for lr in (0.1, 0.05)}


def test_a_cells_arguments_are_what_it_was_given(tmp_path: Path) -> None:
    text = "ranks: 2\nsettings: {graph.static: true, local: {momentum: null, lr: 1e-3}}\ngrid: {threads: [1, auto]}"
    for cell in read(tmp_path, text).cells:
        assert parse(cell.arguments) == dict(cell.given)
    assert cell.given == {"graph.static": True, "local.momentum": None, "local.lr": 0.001, "threads": "auto"}


def test_names_have_safe_characters_only(tmp_path: Path) -> None:
    text = "ranks: 1\ngrid: {model.name: ['a b:c/d', auto], kind: {x/../y: {num_clients: 4}}}"
    assert [cell.name for cell in read(tmp_path, text).cells] == ["a-b-c-d-x-..-y", "auto-x-..-y"]


def test_one_value_holds_for_a_whole_grid_and_is_not_in_the_names(tmp_path: Path) -> None:
    text = """
ranks: 2
settings: {num_clients: 8}
grid:
  - &rest {algorithm: [osgp, sgp], seed: [0, 1]}
  - {<<: *rest, algorithm: [dfedsgpsm], local.momentum: 0.1}
"""
    cells = {cell.name: cell.resolved.local.momentum for cell in read(tmp_path, text).cells}
    assert cells == {
        **{"osgp-seed0": 0.0, "osgp-seed1": 0.0, "sgp-seed0": 0.0, "sgp-seed1": 0.0},
        **{"dfedsgpsm-seed0": 0.1, "dfedsgpsm-seed1": 0.1},
    }


def test_the_command_line_goes_before_the_settings_but_not_before_the_grid(tmp_path: Path) -> None:
    sweep = read(tmp_path, GRID, {"local.rho": 0.3, "rounds": 7}, out="elsewhere", ranks=4)
    assert {(cell.resolved.local.rho, cell.resolved.rounds) for cell in sweep.cells} == {(0.3, 7)}
    assert (sweep.out, sweep.ranks) == (Path("elsewhere"), 4)
    with pytest.raises(ConfigError, match=r"g\.yaml: seed: given 5, allowed: settings that the grid does not set"):
        read(tmp_path, GRID, {"seed": 5})


@pytest.mark.parametrize("of", [1, 3, 8, 20])
def test_shares_are_disjoint_and_together_everything(tmp_path: Path, of: int) -> None:
    cells = read(tmp_path, GRID).cells
    shares = [share_of(cells, number, of) for number in range(1, of + 1)]
    assert sorted(cell.name for part in shares for cell in part) == sorted(cell.name for cell in cells)
    assert [cell.name for cell in shares[-1]] == [cell.name for cell in cells[of - 1 :: of]]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "empty or no mapping, allowed: YAML with out, ranks, settings, grid"),
        ("rounds: 4\nlocal: {rho: 0.2}", "the settings of one run, allowed: a grid of runs (dfl-dist launch --config"),
        ("ranks: {", "no YAML: ParserError"),
        ("grid: {seed: [0], seed: [1]}", "no YAML: MarkedYAMLError: seed stands there twice in"),
        ("ranks: 2\ngrids: {seed: [0]}", "key: given grids, allowed: out, ranks, settings, grid"),
        ("ranks: 2\nrounds: 4\ngrid: {seed: [0]}", "key: given rounds, allowed: out, ranks, settings, grid; settings"),
        ("grid: {seed: [0]}", "ranks: given nothing, allowed: a whole number, 1 or more, here or with --ranks"),
        ("ranks: 0\ngrid: {seed: [0]}", "ranks: given 0, allowed: a whole number"),
        ("ranks: true\ngrid: {seed: [0]}", "ranks: given True, allowed: a whole number"),
        ("ranks: 2\nout: [a]\ngrid: {seed: [0]}", "out: given ['a'], allowed: a folder"),
        ("ranks: 2", "grid: given nothing, allowed: axes, such as"),
        ("ranks: 2\ngrid: []", "grid: given nothing, allowed: axes, such as"),
        ("ranks: 2\ngrid: [{seed: [0]}, 4]", "grid: given 4, allowed: axes, such as"),
        ("ranks: 2\ngrid: {seed: 0}", "grid: given no axis with several values, allowed: at least one"),
        ("ranks: 2\ngrid: {seed: []}", "grid.seed: given nothing, allowed: at least one value"),
        ("ranks: 2\ngrid: {seed: {a: 1}}", "grid.seed: given {'a': 1}, allowed: a list of values"),
        ("ranks: 2\ngrid: {seeds: [0, 1]}", "seeds: unknown key, allowed: those of --help (did you mean seed?)"),
        ("ranks: 2\ngrid: {kind: {a: 1}}", "grid.kind.a: given 1, allowed: settings, such as {local: {rho: 0.2}}"),
        ("ranks: 2\ngrid: {kind: {a: {local.rh: 1}}}", "local.rh: unknown key, allowed: those of --help (did you mean"),
        ("ranks: 2\ngrid: {local.rho: [0.1, abc]}", "local.rho: given abc, allowed: a number, 0 or more | null"),
        ("ranks: 2\ngrid: {local.rho: [[0.1]]}", "local.rho: given [0.1], allowed: a number, 0 or more | null"),
        ("ranks: 2\nsettings: 4\ngrid: {seed: [0]}", "settings: given 4, allowed: settings, such as"),
        ("ranks: 2\nsettings: {seds: 1}\ngrid: {seed: [0]}", "seds: unknown key, allowed: those of --help (did you"),
        (
            "ranks: 2\nsettings: {out: a}\ngrid: {seed: [0]}",
            "out: given a, allowed: nothing: the sweep gives each cell",
        ),
        ("ranks: 2\nsettings: {config: a}\ngrid: {seed: [0]}", "config: unknown key, allowed: those of --help"),
        ("ranks: 2\ngrid: {resume: [auto]}", "resume: given auto, allowed: nothing: the sweep gives each cell"),
        ("ranks: 2\ngrid: {seed: [0, 1, 0]}", "grid: given two cells named seed0, allowed: each once"),
        (
            "ranks: 2\ngrid: {a: {x: {seed: 0}, y: {}}}",
            "grid: given x and y, which are the same run, allowed: each once",
        ),
        (
            "ranks: 2\ngrid: {seed: [0], a: {x: {seed: 1}}}",
            "seed: given 1, allowed: one axis that sets it, and another sets it to 0",
        ),
        ("ranks: 2\ngrid: {algorithm: [osgb]}", "osgb: algorithm: given osgb, allowed: dfedsgpsm, dfedsgpsm-s,"),
        (
            "ranks: 2\ngrid: {model.name: [digits_mpl]}",
            "digits_mpl: model.name: given digits_mpl, allowed: digits_mlp,",
        ),
        ("ranks: 2\ngrid: {local.rho: [-1]}", "rho-1.0: local.rho: given -1.0, allowed: a number, 0 or more | null"),
        (
            "ranks: 2\ngrid: {graph.out_degree: [1, 2]}",
            "out_degree2: graph.out_degree: given 2, allowed: 0 to 1, below the number of clients (2)",
        ),
        (
            "ranks: 4\nsettings: {num_clients: 3}\ngrid: {seed: [0]}",
            "seed0: num_clients: given 3, allowed: 4 or more: there are 4 ranks",
        ),
        ("ranks: 2\ngrid: {graph.file: [nowhere]}", "nowhere: graph.file: given nowhere, which cannot be read"),
    ],
)
def test_a_mistake_is_one_line_with_the_files_name(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path / 'g.yaml'}: {line}")
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read: FileNotFoundError"):
        read_sweep(tmp_path / "nowhere.yaml", {})
