"""`dfl-dist report FOLDER ...`: what runs have reached, in tables, figures and a page."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dfl_dist.commands.options import split
from dfl_dist.errors import ConfigError, refusal
from dfl_dist.report import records, text
from dfl_dist.report.groups import Group, group_runs
from dfl_dist.report.read import find_runs, read_run
from dfl_dist.text import help_page

STDOUT = "-"
FORMATS = ("png", "svg")
TEXTS = ("markdown", "latex", "csv", "json")
OPTIONS = {
    "target": ("ACC", "an accuracy, 0.9 or 90%: also show after how many rounds it was reached"),
    "markdown": (
        "FILE|-",
        "accuracies as methods × data, where there are several partitions; then all numbers",
    ),
    "latex": ("FILE|-", "accuracies as methods × data, a table of the booktabs package; - is stdout"),
    "csv": ("FILE|-", "one row per evaluated round, rounds counted from 0, for other programs"),
    "json": ("FILE|-", "the same as a list of objects"),
    "figures": ("FOLDER", "accuracy against rounds, bytes and seconds; loss, consensus, push weights, clients"),
    "format": ("png|svg", "of the figures, or png,svg for both (default: png)"),
    "html": ("FILE", "one page with everything, for a browser"),
}


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(help_text())
        return 0
    given, names = read_words(argv)
    target = parse_accuracy("target", given["target"]) if "target" in given else None
    formats = check_files(given)
    groups = read_groups(names)
    piped = [name for name in TEXTS if given.get(name) == STDOUT]
    print("\n\n".join(make_text(name, groups, target).rstrip() for name in piped) or text.terminal(groups, target))
    try:
        written = write_files(given, groups, target, formats)
    except OSError as error:
        raise ConfigError(f"report: cannot be written: {error}") from error
    for path in written:
        print(f"written: {path}", file=sys.stderr if piped else sys.stdout)
    return 0


def help_text() -> str:
    return help_page(
        "usage: dfl-dist report FOLDER ... [--OPTION VALUE ...]",
        "What runs have reached, from their folders, or the folder they are in. Without options a table: one row per "
        "run, or one for all runs that differ in nothing but their seed.",
        {f"--{name} {shape}": meaning for name, (shape, meaning) in OPTIONS.items()},
        "The columns of the table:",
        text.MEANING,
    )


# What is asked, refused before anything is read where it cannot be.


def read_words(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options and the folders."""
    words = split(argv, {name: " ".join(meaning) for name, meaning in OPTIONS.items()})
    if words.settings:
        option = words.settings[0].partition("=")[0]
        raise refusal("option", option, f"--{', --'.join(OPTIONS)}", [f"--{key}" for key in OPTIONS])
    if not words.plain:
        raise refusal("report", "nothing", "the folders of runs, such as runs/latest")
    return words.own, words.plain


def parse_accuracy(key: str, given: str) -> float:
    """An accuracy as a share or in percent."""
    try:
        value = float(given.removesuffix("%")) / (100 if given.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise refusal(key, given, "above 0, at most 1, or so in percent, such as 90%")
    return value


def check_files(given: dict[str, str]) -> list[str]:
    """Refuse what could not be written; the formats of the figures."""
    files = {name: Path(given[name]) for name in (*TEXTS, "html") if given.get(name, STDOUT) != STDOUT}
    for name, path in files.items():
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise refusal(name, path, "a file that can be written, in a folder that exists")
        if list(files.values()).count(path) > 1:
            raise refusal(name, path, "a file for each")
    if given.get("html") == STDOUT:
        raise refusal("html", STDOUT, "a file that can be written")
    formats = list(dict.fromkeys(given.get("format", FORMATS[0]).split(",")))
    for ending in formats:
        if ending not in FORMATS:
            raise refusal("format", ending, f"{', '.join(FORMATS)} or {','.join(FORMATS)}", FORMATS)
    if "format" in given and "figures" not in given:
        raise refusal("format", given["format"], "with --figures FOLDER only")
    if "figures" in given:
        check_figures(Path(given["figures"]))
    return formats


def check_figures(folder: Path) -> None:
    """Refuse figures that could not be drawn, or not be written there."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ConfigError("figures: needs matplotlib, which is not installed: pip install 'dfl-dist[plot]'") from error
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise refusal("figures", folder, "a folder that can be written, or made")


# What is done.


def read_groups(names: Sequence[str]) -> list[Group]:
    """The runs in the folders, each once, by the name given first."""
    folders_named = [name for name in names if not Path(name).is_file()]  # a pattern may name what lies beside runs
    found = [folder for name in folders_named or names for folder in find_runs(Path(name))]
    folders = {folder.resolve(): folder for folder in reversed(found)}
    return group_runs([read_run(folder) for folder in reversed(folders.values())])


def make_text(name: str, groups: Sequence[Group], target: float | None) -> str:
    texts = {
        "markdown": lambda: text.markdown(groups, target),
        "latex": lambda: text.latex(groups),
        "csv": lambda: records.as_csv(groups),
        "json": lambda: records.as_json(groups),
    }
    return texts[name]()


def write_files(
    given: dict[str, str], groups: Sequence[Group], target: float | None, formats: Sequence[str]
) -> list[Path]:
    """Write the files that are asked for."""
    written = [Path(given[name]) for name in TEXTS if given.get(name, STDOUT) != STDOUT]
    for name in TEXTS:
        if given.get(name, STDOUT) != STDOUT:
            Path(given[name]).write_text(make_text(name, groups, target), encoding="utf-8")
    if "figures" in given:
        from dfl_dist.report.figures import draw_all

        written += draw_all(groups, Path(given["figures"]), formats)
    if "html" in given:
        from dfl_dist.report.page import write_page

        write_page(groups, Path(given["html"]), target)
        written.append(Path(given["html"]))
    return written
