"""The tables of a page that compares groups: methods × partitions, and all numbers of every group."""

from collections.abc import Sequence
from typing import Any

from dfl_dist.report.groups import Group
from dfl_dist.report.measures import MEASURES, RANKED_BY, Measure, shown_measures
from dfl_dist.report.paper_table import Cell, Grid, column_of
from dfl_dist.report.statistics import Summary, summarise
from dfl_dist.report.text import NOTHING, caption, tell_column


def gather_grid(grid: Grid) -> dict[str, Any]:
    """Methods × partitions: the columns, one row of cells per method, and what they show."""
    return {
        "columns": [{"data_set": column.data_set, "partition": column.words} for column in grid.columns],
        "rows": [{"label": row, "cells": [gather_cell(cell) for cell in cells]} for row, cells in grid.rows.items()],
        "caption": caption(grid, "in italics"),
    }


def gather_cell(cell: Cell | None) -> dict[str, Any] | None:
    """The accuracy of a method on a partition; None where there are no runs."""
    if cell is None:
        return None
    score = cell.summary.score
    return {
        "mean": score.mean,
        "std": score.std,
        "seeds": len(cell.summary.runs),
        "missing": score.missing,
        "place": cell.place,
        "complete": cell.complete,
        "diverged": score.mean is None and is_diverged(cell.summary),
    }


def place_group(group: Group, grid: Grid) -> dict[str, int]:
    """Where a group stands among the methods, which its colour follows from, and among the partitions."""
    return {"row": list(grid.rows).index(group.row), "column": grid.columns.index(column_of(group))}


# All numbers.


def page_measures(target: float | None) -> dict[str, Measure]:
    """The measures in the order of the page: what needs a target comes last."""
    return dict(sorted(shown_measures(target).items(), key=lambda item: item[1].needs_target))


def fill_in(label: str, target: float | None) -> str:
    return label if target is None else label.format(target=f"{100 * target:g} %")


def compare_groups(groups: Sequence[Group], target: float | None) -> tuple[list[str], list[dict[str, Any]]]:
    """The headings of the columns of numbers, and each group's row: its name, seeds, rounds, numbers."""
    summaries = [summarise(group, target) for group in groups]
    found = {name: tell_column(name, row, summaries, target, brief=True) for name, row in page_measures(target).items()}
    shown = {name: column for name, column in found.items() if column}
    headings = [tell_heading(name, heading, target) for name, (heading, _) in shown.items()]
    rows = [
        describe_group(summary)
        | {"scores": [gather_score(summary, name, cells[place]) for name, (_, cells) in shown.items()]}
        for place, summary in enumerate(summaries)
    ]
    return headings, rows


def tell_heading(name: str, short: str, target: float | None) -> str:
    """A column's name in full, with its unit; a short one where that says the unit, or that it is a range."""
    row = MEASURES[name]
    if row.is_range or row.form == "bytes":
        return short
    return fill_in(row.label, target) + {"percent": ",\N{NO-BREAK SPACE}%", "seconds": ",\N{NO-BREAK SPACE}s"}.get(
        row.form, ""
    )


def describe_group(summary: Summary) -> dict[str, Any]:
    """What a group is: its names, over how many seeds, how many rounds were done."""
    rounds = sorted({len(run.lines) for run in summary.runs})
    return {
        "label": summary.group.label,
        "name": summary.group.row,
        "seeds": len(summary.runs),
        "left_out": [str(run.folder) for run in summary.left_out],
        "rounds": "–".join(map(str, dict.fromkeys((rounds[0], rounds[-1])))),
        "finished": summary.finished,
    }


def gather_score(summary: Summary, name: str, text: str) -> dict[str, Any]:
    """A number over seeds, as text, and to sort and to draw by."""
    spread = summary.over_seeds[name]
    diverged = name == RANKED_BY and spread.mean is None and is_diverged(summary)
    return {
        "text": "diverged" if diverged else "–" if text == NOTHING else text.replace("%", ""),
        "mean": spread.mean,
        "std": spread.std,
        "missing": spread.missing,
        "values": spread.values,
    }


def is_diverged(summary: Summary) -> bool:
    return any(run.diverged is not None for run in summary.runs)
