"""What the command lines have in common: a command's own options among the settings of a run."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from dfl_dist.config.help import fill_names
from dfl_dist.config.schema import SETTINGS
from dfl_dist.errors import ConfigError, refusal


@dataclass(frozen=True)
class Words:
    """A command line: the command's own options and flags, its plain words, and the words that are settings."""

    own: dict[str, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    plain: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)


def split(argv: Sequence[str], options: Mapping[str, str], flags: Sequence[str] = ()) -> Words:
    """Tell a command's words apart; `options` take a value, and say which."""
    found, words = Words(), iter(argv)
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            found.plain.append(word)
        elif name in flags and not equals:
            found.flags.add(name)
        elif name in options:
            found.own[name] = value if equals else next(words, "")
            if not found.own[name] or found.own[name].startswith("--"):
                raise refusal(name, "nothing", options[name])
        else:
            found.settings.extend([word] if equals else [word, *islice(words, 1)])
    return found


def settings_help(keys: Sequence[str]) -> dict[str, str]:
    """Some settings of a run, as options, and what each is for."""
    return {f"--{key} V": fill_names(SETTINGS[key].help) for key in keys}


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be written, before anything is computed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("plot: needs matplotlib, which is not installed: pip install 'dfl-dist[plot]'") from error
    endings = sorted(Figure().canvas.get_supported_filetypes())
    if path.suffix.lower().removeprefix(".") not in endings:
        raise refusal("plot", path, f"a file that ends in one of .{' .'.join(endings)}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise refusal("plot", path, "a file that can be written, in a folder that exists")
