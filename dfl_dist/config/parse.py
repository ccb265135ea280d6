"""Settings from the command line, YAML files and scripts; every mistake is told in one line."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser

from dfl_dist.config.schema import SETTINGS, Setting
from dfl_dist.config.values import flatten, format_value
from dfl_dist.errors import ConfigError, nearest, one_line, refusal

SECTIONS = {key.split(".")[0] for key in SETTINGS if "." in key}
EXAMPLE = "YAML such as local: {rho: 0.2}"


class WideHelp(argparse.HelpFormatter):
    """One line per option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=320)


def make_parser(keys: Iterable[str], *, for_help: bool = False) -> ArgumentParser:
    """A parser that knows the types of some settings; for help also what they are for."""
    parser = ArgumentParser(
        prog="dfl_dist.train",
        usage="torchrun --nproc_per_node=N -m dfl_dist.train [--config FILE] [--KEY VALUE ...]",
        description="Train one model across many clients that have no server (DFedSGPSM and its family).",
        epilog="A null takes the algorithm's value where its row has one. In YAML keys are nested: local: {rho: 0.2}.",
        formatter_class=WideHelp,
        allow_abbrev=False,
        exit_on_error=False,
        print_config=None,
    )
    parser.add_argument("--config", help="a YAML file with any of these keys; later arguments override it")
    for key in keys:
        spec = SETTINGS[key]
        text = help_line(spec) if for_help else None
        parser.add_argument(f"--{key}", type=spec.asked_type, default=spec.default, help=text, metavar="V")
    return parser


def help_line(spec: Setting) -> str:
    default = "null" if spec.default is None else spec.default
    return f"{fill_names(spec.help)} [{spec.allowed}] default: {default}"


def fill_names(text: str) -> str:
    """A help line with the names of built-in data sets and models filled in, which takes torch."""
    from dfl_dist.data.datasets import DATASETS
    from dfl_dist.models.zoo import MODELS

    return text.replace("{data_sets}", ", ".join(DATASETS)).replace("{models}", ", ".join(MODELS))


def parse(argv: list[str] | None = None) -> dict[str, Any]:
    """The dotted keys that the command line and its YAML files give, and their values; nothing that they leave out."""
    words = sys.argv[1:] if argv is None else argv
    if {"-h", "--help"} & set(words):
        make_parser(SETTINGS, for_help=True).print_help()
        raise SystemExit(0)
    given: dict[str, Any] = {}
    for key, value in read_words(words):
        if key == "config":
            given |= read_file(Path(value))
        else:
            given[check_key(key)] = value
    return type_values(given)


def read_words(words: list[str]) -> Iterator[tuple[str, str]]:
    """The keys and values of a command line: --KEY VALUE or --KEY=VALUE."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("--"):
            raise unknown_key(word)
        key, equals, value = word.removeprefix("--").partition("=")
        if not equals:
            if key != "config":
                check_key(key)
            value = next(rest, "--")
            if value.startswith("--"):
                raise refusal(key, "nothing", SETTINGS[key].allowed if key in SETTINGS else "a file")
        yield key, value


def read_file(path: Path) -> Iterator[tuple[str, Any]]:
    """The keys and values of a YAML file."""
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config: given {path}, which cannot be read: {one_line(error)}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"config: given {path}, which is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or not content:
        raise ConfigError(f"config: given {path}, which is empty or no mapping, allowed: {EXAMPLE}")
    if "grid" in content:
        raise ConfigError(
            f"config: given {path}, which is a grid of runs, allowed: one run's settings (dfl-dist sweep {path})"
        )
    for key, value in flatten(content):
        if key in SECTIONS:
            raise refusal(key, format_value(value), "a mapping")
        yield check_key(key), value


def from_script(config: Mapping[str, Any] | str | Path | None) -> dict[str, Any]:
    """Settings that a script gives: a YAML file, or a mapping, nested or with dotted keys; checked like arguments."""
    if isinstance(config, str | Path):
        return parse(["--config", str(config)])
    if not isinstance(config, Mapping | None):
        raise refusal("config", f"a {type(config).__name__}", "a mapping, nested or with dotted keys, or a YAML file")
    return type_values({check_key(key): value for key, value in flatten(config or {})})


def check_key(key: str) -> str:
    """The key, refused where there is no such setting."""
    if key not in SETTINGS:
        raise unknown_key(key)
    return key


def unknown_key(name: str) -> ConfigError:
    """What is said of a word that is no setting, with what it may have meant."""
    same_ending = [key for key in SETTINGS if key.split(".")[-1] == name]
    file = [f"--config {name}"] if name.endswith((".yaml", ".yml")) else []
    near = next(iter([*file, *same_ending]), None) or nearest(name, SETTINGS)
    hint = f" (did you mean {near}?)" if near else ""
    return ConfigError(f"{name}: unknown key, allowed: those of --help{hint}")


def type_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of known settings, each in its setting's type."""
    return {
        key: type_null(key) if value is None else type_value(key, format_value(value)) for key, value in given.items()
    }


def type_null(key: str) -> Any:
    """A null of YAML or Python: "not given", where the setting has no default of its own."""
    if SETTINGS[key].default is not None:
        raise refusal(key, "null", SETTINGS[key].allowed)
    return None


@cache
def type_value(key: str, text: str) -> Any:
    """A setting's value from a word."""
    try:
        return make_parser([key]).parse_args([f"--{key}={text}"], defaults=False)[key]
    except argparse.ArgumentError as error:
        raise refusal(key, text, SETTINGS[key].allowed) from error
