"""What runs have reached as text: a table for the terminal, Markdown, LaTeX."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from dfl_dist.config.values import format_value
from dfl_dist.report.groups import PARTITION, Group
from dfl_dist.report.measures import MEASURES, Measure, shown_measures
from dfl_dist.report.names import partition_of
from dfl_dist.report.paper_table import Cell, Grid, make_grid
from dfl_dist.report.statistics import Spread, Summary, summarise
from dfl_dist.text import byte_unit, count, format_table

NOTHING = "-"
UNFINISHED = "†"
MEANING = {
    "algorithm": "the method, and beside it the settings in which the runs differ",
    "seeds": "runs that differ in nothing but the seed: numbers are their mean ± sample standard deviation",
    "rounds": "done/asked; fewest–most where the seeds have not done the same; what diverged or is not finished",
    **{row.column.format(unit="MB", target="ACC"): row.meaning for row in MEASURES.values() if row.column},
    NOTHING: "not known (yet), not finite, or a setting that means nothing there; (2/3): two of three seeds have it",
}
LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "±": r"$\pm$",
        UNFINISHED: r"$^\dagger$",
    }
)


# The table of all numbers, for the terminal and for Markdown.


@dataclass(frozen=True)
class Table:
    """A head, rows, and notes below."""

    head: list[str]
    rows: list[list[str]]
    notes: list[str]


def terminal(groups: Sequence[Group], target: float | None) -> str:
    """The table for the screen."""
    table = tabulate(groups, target, brief=True)
    return "\n".join([format_table(table.head, table.rows), *table.notes])


def tabulate(groups: Sequence[Group], target: float | None, *, brief: bool) -> Table:
    """One row per group where runs differ in nothing but their seed, else one per run; brief: fewer deviations."""
    summaries = [summarise(group, target) for group in groups]
    joined = any(len(summary.runs) > 1 for summary in summaries)
    if not joined:
        singles = [replace(group, runs=[run]) for group in groups for run in group.runs]
        summaries = [summarise(single, target) for single in singles]
    columns = [tell_column(name, row, summaries, target, brief=brief) for name, row in shown_measures(target).items()]
    keys = list(dict.fromkeys(key for summary in summaries for key in summary.group.settings))
    heads = [tell_runs(summary, keys, joined=joined) for summary in summaries]
    shown = [column for column in columns if column]
    notes = [
        f"left out: {run.folder}, which has the settings and the seed of another"
        for summary in summaries
        for run in summary.left_out
    ]
    rows = [[*head.values(), *cells] for head, *cells in zip(heads, *(cells for _, cells in shown), strict=True)]
    return Table([*heads[0], *(heading for heading, _ in shown)], rows, notes)


def tell_runs(summary: Summary, keys: Sequence[str], *, joined: bool) -> dict[str, str]:
    """What a row is about: a run's folder, the settings in which runs differ, the number of seeds, rounds done."""
    folder = {} if joined else {"run": str(summary.runs[0].folder)}
    settings = dict(tell_key(summary.group, key) for key in keys if key != "rounds")
    seeds = {"seeds": str(len(summary.runs))} if joined else {}
    return folder | settings | seeds | {"rounds": tell_rounds(summary)}


def tell_key(group: Group, key: str) -> tuple[str, str]:
    """The column of a setting, and what stands in it: of a partition its name, of what means nothing there a dash."""
    if key in PARTITION:
        return "partition", partition_of(group.runs[0].config.data)[0]
    return key, format_value(group.settings[key]) if key in group.settings else NOTHING


def tell_rounds(summary: Summary) -> str:
    """Rounds done of those asked, and how many runs diverged or are not finished."""
    done = sorted({len(run.lines) for run in summary.runs})
    rounds = f"{'–'.join(map(str, dict.fromkeys((done[0], done[-1]))))}/{summary.runs[0].config.rounds}"
    all_of, diverged = len(summary.runs), sum(run.diverged is not None for run in summary.runs)
    unfinished = sum(run.diverged is None and not run.is_finished for run in summary.runs)
    faults = {"diverged": diverged, "unfinished": unfinished}
    told = [word if number == all_of else f"{number} of {all_of} {word}" for word, number in faults.items() if number]
    return ", ".join([rounds, *told])


def tell_column(
    name: str, row: Measure, summaries: Sequence[Summary], target: float | None, *, brief: bool
) -> tuple[str, list[str]] | None:
    """The heading and the cells of a measure; None where it has no column, or nobody has the number."""
    size, unit = 1.0, ""
    if row.form == "bytes":  # counted in what suits the row that has sent most
        most = max((value for summary in summaries for value in summary.over_seeds[name].values), default=0.0)
        size, unit = byte_unit(most, smallest=1e6)
    heading = row.column.format(unit=unit, target=f"{100 * (target or 0):g}%")
    cells = [tell_cell(summary.over_seeds, name, scale=1 / size, brief=brief) for summary in summaries]
    missing = row.is_optional and all(cell == NOTHING for cell in cells)
    return None if missing or not row.column else (heading, cells)


def tell_cell(over_seeds: Mapping[str, Spread], name: str, *, scale: float, brief: bool) -> str:
    """A measure in one cell, with the range that belongs to it."""
    row, spread = MEASURES[name], over_seeds[name]
    if row.high and row.is_range:
        return format_range(spread, over_seeds[row.high], row.digits)
    digits = ".0f" if row.needs_target and len(spread.values) == 1 else row.digits
    text = format_spread(spread, digits, scale=scale, brief=brief and not row.always_std)
    if spread.mean is None or not (row.low and row.high):
        return text
    return f"{text} ({format_range(over_seeds[row.low], over_seeds[row.high], row.digits).removesuffix('%')})"


def format_spread(spread: Spread, digits: str, *, scale: float = 1.0, brief: bool = False) -> str:
    """The mean, and unless it is to be brief the standard deviation, of the seeds that have the number."""
    if spread.mean is None:
        return NOTHING
    text = format(scale * spread.mean, digits)
    if spread.std is not None and not brief:
        text = f"{text.removesuffix('%')} ± {format(scale * spread.std, digits)}"
    there = len(spread.values)
    return f"{text} ({there}/{there + spread.missing})" if spread.missing else text


def format_range(low: Spread, high: Spread, digits: str) -> str:
    """The lowest and the highest of all seeds, once where they look the same."""
    if not low.values or not high.values:
        return NOTHING
    lowest, highest = format(min(low.values), digits), format(max(high.values), digits)
    return lowest if lowest == highest else f"{lowest.removesuffix('%')}–{highest}"


# Methods × data, for Markdown and for LaTeX.


def markdown(groups: Sequence[Group], target: float | None) -> str:
    """Methods × data, where that is a table, and below it the table of all numbers."""
    grid, parts = make_grid(groups), []
    if len(grid.columns) > 1:
        head = ["method", *(f"{column.data_set} {column.partition}" for column in grid.columns)]
        lines = [
            [escape_markdown(row), *(format_cell(cell, "**{}**", "*{}*") for cell in line)]
            for row, line in grid.rows.items()
        ]
        parts += [
            pipe_table([escape_markdown(heading) for heading in head], lines),
            "",
            caption(grid, "in italics"),
            "",
        ]
    table = tabulate(groups, target, brief=False)
    parts += [pipe_table(table.head, [[escape_markdown(cell) for cell in row] for row in table.rows])]
    parts += [f"\n{escape_markdown(note)}" for note in table.notes]
    return "\n".join(parts) + "\n"


def latex(groups: Sequence[Group]) -> str:
    """Methods × data as a table of the booktabs package."""
    grid = make_grid(groups)
    spans, rules, start = [], [], 2
    for data_set, columns in groupby(grid.columns, key=lambda column: column.data_set):
        width = len(list(columns))
        spans.append(rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(data_set)}}}")
        rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        start += width
    lines = [
        [escape_latex(row), *(format_cell(cell, r"\textbf{{{}}}", r"\underline{{{}}}", escape_latex) for cell in line)]
        for row, line in grid.rows.items()
    ]
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{escape_latex(caption(grid, 'underlined'))}}}",
            r"\label{tab:accuracy}",
            rf"\begin{{tabular}}{{l{'c' * len(grid.columns)}}}",
            r"\toprule",
            " & ".join(["", *spans]).strip() + r" \\",
            " ".join(rules),
            " & ".join(["Method", *(escape_latex(column.partition) for column in grid.columns)]) + r" \\",
            r"\midrule",
            *(" & ".join(line) + r" \\" for line in lines),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def format_cell(cell: Cell | None, best: str, second: str, escape: Callable[[str], str] = str) -> str:
    """A cell's accuracy in percent, the best two of a column in their forms."""
    if cell is None or cell.summary.score.mean is None:
        return NOTHING
    text = escape(format_spread(cell.summary.score, ".2f", scale=100))
    return {1: best, 2: second}.get(cell.place, "{}").format(text) + escape("" if cell.complete else UNFINISHED)


def caption(grid: Grid, second: str) -> str:
    """What methods × data shows."""
    runs = [run for cell in grid.cells for run in cell.summary.runs]
    ends = {len(run.lines) if run.is_finished else run.config.rounds for run in runs}
    seeds = sorted({len(cell.summary.runs) for cell in grid.cells})
    after = count(ends.pop(), "round") if len(ends) == 1 else "the last round"
    over = "one seed" if seeds[-1] == 1 else f"{' to '.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} seeds"
    what = f"of {over}" if seeds[-1] == 1 else f"mean ± sample standard deviation over {over}"
    ranked = (
        f" The best of each column is in bold, the second best {second}." if any(c.place for c in grid.cells) else ""
    )
    open_ends = "" if all(cell.complete for cell in grid.cells) else f" {UNFINISHED} not all runs are finished."
    return f"Test accuracy (%) of the mean model after {after}, {what}.{ranked}{open_ends}"


def pipe_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in GitHub's Markdown, numbers to the right."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rows))


def escape_markdown(text: str) -> str:
    """Text whose signs mean nothing in Markdown; an underscore within a word means nothing anyway."""
    return re.sub(r"([\\|*<`\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def escape_latex(text: str) -> str:
    return text.translate(LATEX)
