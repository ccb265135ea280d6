"""The layout of the paper's tables: methods as rows, data sets and their partitions as columns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dfl_dist.report.groups import Group
from dfl_dist.report.names import data_set_name, partition_in_words, partition_of
from dfl_dist.report.statistics import Summary, summarise


@dataclass(frozen=True)
class Column:
    """A data set and how it is divided, and what sorts the columns of a data set."""

    data_set: str
    partition: str
    words: str  # the partition where there is room
    order: tuple[bool, str, float, str]


@dataclass(frozen=True)
class Cell:
    """The runs of a method on a partition, and its place in the column: 1 is the best, equals share it; 0 is none."""

    summary: Summary
    place: int

    @property
    def complete(self) -> bool:
        return self.summary.finished and not self.summary.score.missing


@dataclass(frozen=True)
class Grid:
    """One row of cells per method, None where there are no runs."""

    columns: list[Column]
    rows: dict[str, list[Cell | None]]

    @property
    def cells(self) -> list[Cell]:
        return [cell for line in self.rows.values() for cell in line if cell]


def make_grid(groups: Sequence[Group]) -> Grid:
    """Lay groups out; those that differ only in what their partition does not use, such as alpha, share a cell."""
    found: dict[Column, dict[str, list[Group]]] = {}
    for group in groups:
        found.setdefault(column_of(group), {}).setdefault(group.row, []).append(group)
    data_sets = list(dict.fromkeys(column.data_set for column in found))
    columns = sorted(found, key=lambda column: (data_sets.index(column.data_set), column.order))
    filled = {
        column: rank_rows({row: summarise(join_groups(same), None) for row, same in found[column].items()})
        for column in found
    }
    rows = dict.fromkeys(group.row for group in groups)
    return Grid(columns, {row: [filled[column].get(row) for column in columns] for row in rows})


def column_of(group: Group) -> Column:
    """Where a group's data put it: Dir-0.3 before Dir-0.6, IID last."""
    data = group.runs[0].config.data
    name, detail = partition_of(data)
    order = (data.partition == "iid", data.partition, detail, data.file or "")  # which tells apart what is named alike
    return Column(data_set_name(group.runs[0]), name, partition_in_words(data), order)


def join_groups(groups: Sequence[Group]) -> Group:
    runs = sorted((run for group in groups for run in group.runs), key=lambda run: run.config.seed)
    return replace(groups[0], runs=runs)


def rank_rows(summaries: dict[str, Summary]) -> dict[str, Cell]:
    """The cells of a column; what looks equal in the table, to 0.01 %, is equal, and a single row is no best."""
    means = {row: summary.score.mean for row, summary in summaries.items()}
    shown = {row: round(100 * mean, 2) for row, mean in means.items() if mean is not None}
    order = sorted(set(shown.values()), reverse=True)
    return {
        row: Cell(summary, order.index(shown[row]) + 1 if len(shown) > 1 and row in shown else 0)
        for row, summary in summaries.items()
    }
