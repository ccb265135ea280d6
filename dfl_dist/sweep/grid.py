"""A sweep file: settings that all runs of a grid share, and the axes whose combinations are its cells."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from dfl_dist.config.names import choose, is_import_path
from dfl_dist.config.parse import SECTIONS, as_word, check_key, known, type_value, unknown_key
from dfl_dist.config.resolve import resolve
from dfl_dist.config.schema import SETTINGS, Config
from dfl_dist.config.values import TENSORBOARD, ask, flatten, format_value
from dfl_dist.config.yaml_files import read_yaml
from dfl_dist.errors import ConfigError, one_line, refusal
from dfl_dist.models.zoo import MODELS
from dfl_dist.training.build import graph_schedule

KEYS = ("out", "ranks", "settings", "grid")
OF_THE_SWEEP = ("out", "resume")  # settings of a run that a sweep itself gives to each cell
UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")  # in the name of a folder


@dataclass(frozen=True)
class Cell:
    """One run of a grid: its name, the settings that are given to it by dotted key, and those in force."""

    name: str
    given: Mapping[str, Any]
    resolved: Config

    @property
    def arguments(self) -> list[str]:
        """The trainer's arguments, without those that name the folder."""
        words: list[str] = []
        for key, value in self.given.items():
            text = format_value(value)
            words += [f"--{key}={text}"] if text.startswith("-") else [f"--{key}", text]
        return words


@dataclass(frozen=True)
class Sweep:
    """What a sweep file asks for."""

    out: Path
    ranks: int
    cells: list[Cell]


@dataclass(frozen=True)
class Choice:
    """A value of an axis: its part of the cell's name (none where the axis has one value only), what it sets."""

    label: str
    given: Mapping[str, Any]


def read_sweep(path: Path, over: Mapping[str, Any], *, out: str | None = None, ranks: int | None = None) -> Sweep:
    """The cells of a sweep file; `over` are settings that override the file's own, but not its grid's."""
    with refused_in(str(path)):
        content = read_content(path)
        if "grid" not in content and all(key in SETTINGS or key in SECTIONS for key in content):
            raise ConfigError(f"the settings of one run, allowed: a grid of runs (dfl-dist launch --config {path})")
        for key in content:
            if key not in KEYS:
                raise refusal("key", key, f"{', '.join(KEYS)}; settings of a run go under settings", KEYS)
        folder = content.get("out", f"runs/{path.stem}") if out is None else out
        if not isinstance(folder, str) or not folder:
            raise refusal("out", folder, "a folder")
        ranks = count_ranks(content.get("ranks") if ranks is None else ranks)
        settings = read_settings(content.get("settings", {}), "settings") | dict(over)
        found = [combination for axes in read_grids(content.get("grid")) for combination in combine(axes)]
        for _, given in found:
            for key in given.keys() & over.keys():
                raise refusal(key, over[key], "settings that the grid does not set itself")
    cells = [make_cell(name, settings | given, ranks, path) for name, given in found]
    with refused_in(str(path)):
        refuse_twins(cells)
    return Sweep(Path(folder), ranks, cells)


@contextmanager
def refused_in(place: str) -> Iterator[None]:
    """Name the place that a refusal comes from."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error


def read_content(path: Path) -> dict[str, Any]:
    try:
        content = read_yaml(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {one_line(error)}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"no YAML: {one_line(error)}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"empty or no mapping, allowed: YAML with {', '.join(KEYS)}")
    return content


def count_ranks(given: object) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise refusal("ranks", "nothing" if given is None else given, "a whole number, 1 or more, here or with --ranks")
    return given


def read_settings(values: Any, place: str) -> dict[str, Any]:
    """Nested settings by dotted key, each value read as the trainer reads its arguments."""
    if not isinstance(values, Mapping):
        raise refusal(place, "nothing" if values is None else values, "settings, such as {local: {rho: 0.2}}")
    return {key: read_value(key, value) for key, value in known(flatten(values))}


def read_value(key: str, value: object) -> Any:
    """A setting's value, read as the trainer reads its arguments."""
    if key in OF_THE_SWEEP:
        raise refusal(key, value, "nothing: the sweep gives each cell its folder")
    return type_value(check_key(key), as_word(key, value))


def read_grids(given: Any) -> list[list[list[Choice]]]:
    """The axes of each grid: there may be a list of grids."""
    grids = given if isinstance(given, list) and given else [given]
    for axes in grids:
        if not isinstance(axes, Mapping) or not axes:
            raise refusal("grid", axes or "nothing", "axes, such as {algorithm: [dfedsgpsm, osgp]}, or a list of such")
    return [[read_axis(str(key), values) for key, values in axes.items()] for axes in grids]


def read_axis(key: str, values: Any) -> list[Choice]:
    """An axis: a setting with a list of values, or with the one that all of this grid have; or bundles by name."""
    place = f"grid.{key}"
    if key == TENSORBOARD:  # of an older file: refused, or without a meaning
        given = values if isinstance(values, list) else [values]
        found = [Choice("", read_settings({key: value}, place)) for value in given]
    elif key in SETTINGS and not isinstance(values, Mapping):
        if not isinstance(values, list):
            return [Choice("", read_settings({key: values}, place))]
        options = [read_value(key, value) for value in values]
        found = [Choice(label(key, value), {key: value}) for value in options]
    elif key in SETTINGS:
        raise refusal(place, values, "a list of values, or one value that all cells of this grid have")
    elif isinstance(values, Mapping):
        found = [Choice(str(name), read_settings(bundle, f"{place}.{name}")) for name, bundle in values.items()]
    else:
        bundles = "an axis that is no setting has named bundles, such as {iid: {…}, …}"
        raise ConfigError(f"{unknown_key(key)}; {bundles}")
    if not found:
        raise refusal(place, "nothing", "at least one value")
    return found


def label(key: str, value: object) -> str:
    """How a value stands in a cell's name: a word by itself, a number after what it is."""
    return value if isinstance(value, str) else key.split(".")[-1] + format_value(value)


def combine(axes: Sequence[Sequence[Choice]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and settings of every combination; the last axis changes fastest."""
    for choices in product(*axes):
        given: dict[str, Any] = {}
        for choice in choices:
            for key in given.keys() & choice.given.keys():
                raise refusal(key, choice.given[key], f"one axis that sets it, and another sets it to {given[key]}")
            given |= choice.given
        name = UNSAFE.sub("-", "-".join(choice.label for choice in choices if choice.label)).strip("-.")
        if not name:
            raise refusal("grid", "no axis with several values", "at least one, such as seed: [0, 1]")
        yield name, given


def make_cell(name: str, given: Mapping[str, Any], ranks: int, path: Path) -> Cell:
    """A cell with the settings in force, refused where the trainer would refuse them on these ranks."""
    with refused_in(f"{path}: {name}"):
        resolved = resolve(ask(given), ranks)
        if not is_import_path(resolved.model.name):
            choose("model.name", resolved.model.name, MODELS)
        graph_schedule(resolved)
    return Cell(name, given, resolved)


def refuse_twins(cells: Sequence[Cell]) -> None:
    """Refuse two cells of one name, and two that are the same run."""
    names: set[str] = set()
    runs: dict[Config, str] = {}
    for cell in cells:
        if cell.name in names:
            raise refusal("grid", f"two cells named {cell.name}", "each once")
        if cell.resolved in runs:
            raise refusal("grid", f"{runs[cell.resolved]} and {cell.name}, which are the same run", "each once")
        names.add(cell.name)
        runs[cell.resolved] = cell.name


def share_of(cells: Sequence[Cell], number: int, of: int) -> list[Cell]:
    """The cells of the `number`-th of several sweeps, counted from 1, that share a grid."""
    return list(cells[number - 1 :: of])
