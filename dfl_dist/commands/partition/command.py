"""`dfl-dist partition`: which client has how many samples of which class, without training."""

from pathlib import Path

import numpy as np

from dfl_dist.commands.options import check_picture, settings_help, split
from dfl_dist.commands.partition import plot
from dfl_dist.config.parse import parse
from dfl_dist.config.resolve import resolve
from dfl_dist.config.schema import SETTINGS, Config
from dfl_dist.config.values import ask
from dfl_dist.data.partition import counts
from dfl_dist.text import count, format_table, help_page
from dfl_dist.training.build import load_dataset, make_partition
from dfl_dist.training.screen import describe_shares

MOST_CLASSES, MOST_CLIENTS = 20, 40  # that a table of all counts has, if not asked for
MOST_ROWS = 100  # of the table that is shown instead
OPTIONS = {"plot": "a file for a picture of it"}
LARGEST = 3  # classes that its rows name
NEUTRAL = {"rank0": "client", "model.name": "digits_mlp"}  # whatever a config says of ranks and models
USEFUL = ("num_clients", "seed", *(key for key in SETTINGS if key[:5] == "data." and key != "data.augment"))


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(help_text())
        return 0
    words = split(argv, OPTIONS, flags=("all",))
    config = resolve(ask(parse([*words.settings, *words.plain]) | NEUTRAL))
    picture = Path(words.own["plot"]) if "plot" in words.own else None
    if picture:
        check_picture(picture)
    table, names = class_table(config)
    if picture:
        plot.draw(picture, table, names, title=headline(config, table))
    small = len(names) <= MOST_CLASSES and len(table) <= MOST_CLIENTS
    shown = full_table(table, names) if words.flags or small else summary_table(table, names)
    print(f"{headline(config, table)}\n{shown}\n\n{describe_shares(table)}")
    if picture:
        print(f"\npicture: {picture}")
    return 0


def help_text() -> str:
    own = {
        "--plot FILE": OPTIONS["plot"],
        "--all": f"every count, also of more than {MOST_CLIENTS} clients or {MOST_CLASSES} classes",
        "--config FILE": "a YAML file of settings",
    }
    return help_page(
        "usage: dfl-dist partition [--plot FILE] [--all] [--KEY VALUE ...]",
        "Which client has how many samples of which class: exactly as in a run with these settings.",
        own,
        "All settings of a run may be given; these matter here:",
        settings_help(USEFUL),
    )


def class_table(config: Config) -> tuple[np.ndarray, tuple[str, ...]]:
    """The clients' counts of each class, [clients, classes], and the classes' names."""
    dataset = load_dataset(config.data)
    shards = make_partition(config, dataset)
    return counts(shards, dataset.train_targets, len(dataset.classes)), dataset.classes


def headline(config: Config, table: np.ndarray) -> str:
    """What was divided, and how."""
    data = config.data
    how = {
        "dirichlet": f", alpha {data.alpha:g}",
        "shards": f", {data.classes_per_client} per client",
        "file": f" {data.file}",
    }
    samples, classes = f"{table.sum():,} training samples", table.shape[1]
    return (
        f"{data.name}, {samples} of {classes} classes, {count(config.num_clients, 'client')}, "
        f"{data.partition}{how.get(data.partition, '')}, seed {config.seed}"
    )


def full_table(table: np.ndarray, names: tuple[str, ...]) -> str:
    """One row per client, one column per class."""
    kinds = np.count_nonzero(table, axis=1)
    rows = [
        [str(client), f"{row.sum():,}", str(kinds[client]), *(f"{number:,}" if number else "·" for number in row)]
        for client, row in enumerate(table)
    ]
    total = [
        "all",
        f"{table.sum():,}",
        str(np.count_nonzero(table.sum(axis=0))),
        *map("{:,}".format, table.sum(axis=0)),
    ]
    return format_numbers(["client", "samples", "classes", *names], [*rows, total])


def summary_table(table: np.ndarray, names: tuple[str, ...]) -> str:
    """One row per client: how many samples, how many classes, and the largest of them."""
    rows = []
    for client, row in enumerate(table[:MOST_ROWS]):
        first = [label for label in np.argsort(-row, kind="stable")[:LARGEST] if row[label]]
        largest = ", ".join(f"{names[label]}: {row[label] / row.sum():.0%}" for label in first)
        rows.append([str(client), f"{row.sum():,}", str(np.count_nonzero(row)), largest])
    more = len(table) - MOST_ROWS
    note = f"… {count(more, 'more client')}: --all shows them" if more > 0 else "--all shows every count"
    return f"{format_numbers(['client', 'samples', 'classes', 'largest'], rows, text=1)}\n{note}"


def format_numbers(head: list[str], rows: list[list[str]], text: int = 0) -> str:
    """A table whose columns of numbers are aligned at the right; its last `text` columns are words."""
    numbers = len(head) - text
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(numbers)]
    aligned = [
        [*(cell.rjust(width) for cell, width in zip(row, widths, strict=False)), *row[numbers:]]
        for row in [head, *rows]
    ]
    return format_table(aligned[0], aligned[1:])
