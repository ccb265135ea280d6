"""Settings from the command line, YAML files and scripts; every mistake is told in one line."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser

from dfl_dist.config.help import help_text
from dfl_dist.config.schema import SETTINGS
from dfl_dist.config.shipped import find_config
from dfl_dist.config.values import TENSORBOARD, flatten, format_value
from dfl_dist.config.yaml_files import read_yaml
from dfl_dist.errors import ConfigError, nearest, one_line, refusal

SECTIONS = {key.split(".")[0] for key in SETTINGS if "." in key}
OF_TENSORBOARD = "false; what was true is now --tracker tensorboard"
WITHOUT_SETTING = {"config": "a file", TENSORBOARD: OF_TENSORBOARD}
NO_SETTINGS = {  # words that are none, and what was probably meant
    "dry_run": "--dry-run",
    **dict.fromkeys(("dry-run", "true", "false"), "--dry-run, which takes no value"),
    **dict.fromkeys(("-n", "ranks"), "dfl-dist launch -n N, or torchrun --nproc_per_node=N"),
    "version": "dfl-dist --version",
}
EXAMPLE = "YAML such as local: {rho: 0.2}"


def make_parser(key: str) -> ArgumentParser:
    """A parser that knows the type of a setting."""
    spec = SETTINGS[key]
    parser = ArgumentParser(allow_abbrev=False, exit_on_error=False, print_config=None)
    parser.add_argument(f"--{key}", type=spec.asked_type, default=spec.default)
    return parser


def parse(argv: list[str] | None = None) -> dict[str, Any]:
    """The dotted keys that the command line and its YAML files give, and their values; nothing that they leave out."""
    words = sys.argv[1:] if argv is None else argv
    if {"-h", "--help"} & set(words):
        print(help_text())
        raise SystemExit(0)
    given: dict[str, Any] = {}
    for key, value in read_words(words):
        given |= read_file(value) if key == "config" else known([(key, value)])
    return type_values(given)


def read_words(words: list[str]) -> Iterator[tuple[str, str]]:
    """The keys and values of a command line: --KEY VALUE or --KEY=VALUE."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("--"):
            raise unknown_key(word)
        key, equals, value = word.removeprefix("--").partition("=")
        if not equals:
            if key not in WITHOUT_SETTING:
                check_key(key)
            value = next(rest, "--")
            if value.startswith("--"):
                raise refusal(key, "nothing", WITHOUT_SETTING.get(key) or SETTINGS[key].allowed)
        yield key, value


def read_file(path: str) -> Iterator[tuple[str, Any]]:
    """The keys and values of a YAML file, the user's own or one that comes with the package."""
    try:
        content = read_yaml(find_config("config", path).read_text())
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
    if is_resolved(path, content):
        given = f"{path}, which has the out and resume of a run"
        raise refusal("config", given, "that run's config.yaml, or a file without the two")
    for key, value in flatten(content):
        if key in SECTIONS:
            raise refusal(key, format_value(value), "a mapping")
        yield from known([(key, value)])


def is_resolved(path: str, content: Mapping[str, Any]) -> bool:
    """Whether a file is a run's resolved.yaml, or a copy of one that was resumed: it would go on inside that run."""
    out, resume = content.get("out"), content.get("resume")
    named = Path(path).name == "resolved.yaml" or resume not in ("auto", "never")
    return out is not None and resume is not None and named


def from_script(config: Mapping[str, Any] | str | Path | None) -> dict[str, Any]:
    """Settings that a script gives: a YAML file, or a mapping, nested or with dotted keys; checked like arguments."""
    if isinstance(config, str | Path):
        return parse(["--config", str(config)])
    if not isinstance(config, Mapping | None):
        raise refusal("config", f"a {type(config).__name__}", "a mapping, nested or with dotted keys, or a YAML file")
    return type_values(dict(known(flatten(config or {}))))


def known(given: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Keys and values, refused where there is no such setting; an older key that turned something off means nothing."""
    for key, value in given:
        if key != TENSORBOARD:
            yield check_key(key), value
        elif (text := format_value(value)) not in ("false", "null"):
            raise refusal(key, text, OF_TENSORBOARD)


def check_key(key: str) -> str:
    """The key, refused where there is no such setting."""
    if key not in SETTINGS:
        raise unknown_key(key)
    return key


def unknown_key(name: str) -> ConfigError:
    """What is said of a word that is no setting, with what it may have meant."""
    meant = f"--config {name}" if name.endswith((".yaml", ".yml")) else NO_SETTINGS.get(name.partition("=")[0])
    by_ending = {key.split(".")[-1]: key for key in reversed(SETTINGS)}
    near = meant or by_ending.get(name) or nearest(name, SETTINGS) or by_ending.get(nearest(name, by_ending) or "")
    hint = f" (did you mean {near}?)" if near else ""
    return ConfigError(f"{name}: unknown key, allowed: those of --help{hint}")


def type_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of known settings, each in its setting's type."""
    return {
        key: type_null(key) if value is None else type_value(key, as_word(key, value)) for key, value in given.items()
    }


def as_word(key: str, value: object) -> str:
    """A value as it stands on the command line; in YAML and scripts the trackers may be a list."""
    if key == "tracker" and isinstance(value, list):
        return ",".join(map(str, value)) or "null"
    return format_value(value)


def type_null(key: str) -> Any:
    """A null of YAML or Python: "not given", where the setting has no default of its own."""
    if SETTINGS[key].default is not None:
        raise refusal(key, "null", SETTINGS[key].allowed)
    return None


@cache
def type_value(key: str, text: str) -> Any:
    """A setting's value from a word."""
    try:
        return make_parser(key).parse_args([f"--{key}={text}"], defaults=False)[key]
    except argparse.ArgumentError as error:
        raise refusal(key, text, SETTINGS[key].allowed, SETTINGS[key].names) from error
