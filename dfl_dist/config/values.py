"""Settings as values: what was asked (a mapping by dotted key), what is in force (a Config), and their YAML files."""

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from dfl_dist.config.schema import DEFAULTS, SETTINGS, Config, check_asked
from dfl_dist.errors import ConfigError, one_line, refusal

Asked = dict[str, Any]  # every key, with the value asked for; None where nothing was given

# Keys that may differ between a run and its continuation; everything else is part of what the run is.
RESUMABLE = (
    *("rounds", "timeout_s", "backend", "device", "threads", "out", "resume", "eval", "checkpoint"),
    *("max_seconds", "stop", "report", "tracker", "data.root", "data.download"),
)
# Keys that describe a host, so that each host of a job may give its own.
OF_HOST = ("out", "resume", "data.root", "device", "threads")
TENSORBOARD = "tensorboard"  # the key of older configs, true or false, where `tracker` is now
NULL_IN_OLDER_RUNS = {"local.clip_norm": 0.0}  # what null meant in a resolved.yaml that has it


def ask(given: Mapping[str, Any], before: Mapping[str, Any] = DEFAULTS) -> Asked:
    """What is asked for by these values on top of others, checked."""
    asked = {**before, **given}
    check_asked(asked)
    return asked


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested mappings as dotted keys and values."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted key as nested mappings."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        *path, last = key.split(".")
        section = nested
        for part in path:
            section = section.setdefault(part, {})
        section[last] = value
    return nested


def get(config: Config, key: str) -> Any:
    """The value in force behind a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def make_config(values: Mapping[str, Any]) -> Config:
    """The config with these values in force, one for every dotted key."""

    def build(section: Any, nested: Mapping[str, Any]) -> Any:
        sections = {f.name: f.type for f in dataclasses.fields(section) if dataclasses.is_dataclass(f.type)}
        return section(
            **{name: build(sections[name], value) if name in sections else value for name, value in nested.items()}
        )

    config: Config = build(Config, nest(values))
    return config


def values_of(config: Config) -> dict[str, Any]:
    """All values in force by dotted key."""
    return {key: get(config, key) for key in SETTINGS}


def replace(config: Config, values: Mapping[str, Any]) -> Config:
    """The config with some dotted keys changed."""
    return make_config({**values_of(config), **values})


def format_value(value: object) -> str:
    """A value as it stands in YAML and on the command line."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def may_change(key: str) -> bool:
    """Whether a continuation may have another value of a setting than the run that it goes on with."""
    return bool({key, key.split(".")[0]} & set(RESUMABLE))


def changed_on_resume(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The keys that a continuation changes though it must not."""
    return [key for key in SETTINGS if not may_change(key) and old[key] != new[key]]


# The YAML files of a run.


def dump(values: Mapping[str, Any], *, without: tuple[str, ...] = ()) -> str:
    """Values by dotted key as YAML, nulls kept."""
    return yaml.safe_dump(nest({key: value for key, value in values.items() if key not in without}), sort_keys=False)


def load_asked(path: Path) -> Asked:
    """What a config.yaml of a run asks for."""
    with damaged(path):
        return ask(read_values(path))


def load_resolved(path: Path) -> Config:
    """The settings that were in force, from a resolved.yaml."""
    with damaged(path):
        values = DEFAULTS | read_values(path)
        older = {key: value for key, value in NULL_IN_OLDER_RUNS.items() if values[key] is None}
        return make_config(values | older)


@contextmanager
def damaged(path: Path) -> Iterator[None]:
    """Refuse a file of a run's settings that cannot be read, or has values that no setting can have."""
    try:
        yield
    except (ConfigError, OSError, UnicodeDecodeError, yaml.YAMLError, TypeError) as error:
        told = str(error) if isinstance(error, ConfigError) else one_line(error)
        raise ConfigError(f"{path}: not the settings of a run: {told}") from error


def read_values(path: Path) -> dict[str, Any]:
    """The values that a file of settings has, by dotted key."""
    content = yaml.safe_load(path.read_text())
    if not isinstance(content, dict):
        raise ConfigError("empty or no mapping")
    values = dict(flatten(content))
    if values.pop(TENSORBOARD, False):
        values.setdefault("tracker", "tensorboard")
    for key in values:
        if key not in SETTINGS:
            raise refusal("key", key, "known settings", SETTINGS)
    return values
