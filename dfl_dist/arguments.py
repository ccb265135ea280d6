"""Settings from the command line and YAML files, every mistake told in one line."""

import argparse
import dataclasses
import difflib
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from dfl_dist.config import SETTINGS, Config, ConfigError, allowed, one_line, refusal, word


class WideHelp(argparse.HelpFormatter):
    """One line an option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=320)


def parse(argv: list[str] | None = None) -> dict[str, Any]:
    """The dotted keys that the command line and its YAML files give, and their values; nothing that they leave out."""
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
    parser.add_argument(
        "--config", action="config", help="a YAML file with any of these keys; later arguments override it"
    )
    for key, spec in SETTINGS.items():
        text = f"{spec.metadata['help']} [{allowed(spec)}] default: {'null' if spec.default is None else spec.default}"
        parser.add_argument(f"--{key}", type=spec.type, default=spec.default, help=text, metavar="V")
    words = sys.argv[1:] if argv is None else argv
    try:
        namespace = parser.parse_args(words, defaults=False)
    except argparse.ArgumentError as error:
        raise explain(error.message, words) from error
    except (UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"config: given {config_files(words)}, which cannot be read: {one_line(error)}") from error
    given = {key: value for key, value in namespace.as_flat().__dict__.items() if key != "config"}
    for key, value in given.items():
        if key not in SETTINGS:
            raise refusal(key, value, "a mapping")
    return given


def from_script(config: Config | Mapping[str, Any] | str | Path | None) -> dict[str, Any]:
    """Settings that a script gives: a YAML file, or a mapping, nested or with dotted keys; checked like arguments."""
    if isinstance(config, str | Path):
        return parse(["--config", str(config)])
    values = dataclasses.asdict(config) if isinstance(config, Config) else {} if config is None else config
    if not isinstance(values, Mapping):
        raise refusal("config", f"a {type(config).__name__}", "a mapping, nested or with dotted keys, or a YAML file")
    return parse([f"--{key}={word(value)}" for key, value in flatten(values)])


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def config_files(words: list[str]) -> str:
    """The files that --config names, for a message."""
    after = [word for before, word in pairwise(words) if before == "--config"]
    return ", ".join(after + [word.removeprefix("--config=") for word in words if word.startswith("--config=")])


def explain(message: str, words: list[str]) -> ConfigError:
    """The parser's complaint as one line: key, given, allowed, nearest name."""
    if unknown := re.match(r"(?s)(?:unrecognized arguments: |Option ')(?:--)?([^\s'=]+)", message):
        named = [key for key in SETTINGS if key.split(".")[-1] == unknown[1]]
        files = [f"--config {unknown[1]}"] if unknown[1].endswith((".yaml", ".yml")) else []
        near = files or named or difflib.get_close_matches(unknown[1], SETTINGS, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return ConfigError(f"{unknown[1]}: unknown key, allowed: those of --help{hint}")
    if bare := re.match(r"argument --(\S+): expected one argument", message):
        return refusal(bare[1], "nothing", allowed(SETTINGS[bare[1]]) if bare[1] in SETTINGS else "a file")
    if bad := re.match(r'(?s)Parser key "([^"]+)".*(?:Given|Got) value: (.*)', message):
        return refusal(bad[1], bad[2], allowed(SETTINGS[bad[1]]))
    if message.startswith("Unexpected config"):
        example = "YAML such as local: {rho: 0.2}"
        return ConfigError(f"config: given {config_files(words)}, which is empty or no mapping, allowed: {example}")
    plain = " ".join(message.split())
    if plain.startswith("Problems parsing config"):
        return ConfigError(f"config: given {config_files(words)}, which is no YAML: {plain.partition(': ')[2]}")
    return ConfigError(re.sub(r'Parser key "(.*?)"', r"\1", plain))
