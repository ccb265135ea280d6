"""What runs have reached as text: a table for the terminal, Markdown, LaTeX."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from dfl_dist.config import word
from dfl_dist.report.groups import Group
from dfl_dist.report.paper_table import Cell, Grid, make_grid
from dfl_dist.report.statistics import Spread, Summary, summarise
from dfl_dist.tables import byte_unit, show

NOTHING = "-"
UNFINISHED = "†"
MEANING = {
    "algorithm": "the method, and beside it the settings in which the runs differ",
    "seeds": "runs that differ in nothing but the seed: numbers are their mean ± sample standard deviation",
    "rounds": "done/asked; fewest–most where the seeds have not done the same; whether the loss diverged",
    "final": "test accuracy of the mean model after the last evaluated round",
    "best": "its highest accuracy in any evaluated round",
    "last 10": "its mean accuracy in the evaluated rounds among the last 10",
    "test loss": "of the mean model after the last evaluated round",
    "clients": "mean accuracy (lowest–highest) of the clients' own models, after the last round that evaluated them",
    "to ACC": "with --target: rounds done when an evaluation of the mean model first reached it",
    "consensus": "mean distance of the clients' models from the mean model, after the last evaluated round",
    "push weights": "lowest–highest weight w of any client in any round",
    "MB sent": "by all clients together, in all rounds",
    "seconds": "of all rounds, without evaluation and checkpoints",
    "-": "not known (yet), or not finite; (2/3): two of three seeds have it, and the number is of these",
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
    """A head, rows, and what is to be said below."""

    head: list[str]
    rows: list[list[str]]
    notes: list[str]


def terminal(groups: Sequence[Group], target: float | None) -> str:
    """The table for the screen."""
    table = tabulate(groups, target, brief=True)
    return "\n".join([show(table.head, table.rows), *table.notes])


def tabulate(groups: Sequence[Group], target: float | None, *, brief: bool) -> Table:
    """A line a group where runs differ in nothing but their seed, else a line a run; brief: ± for accuracies only."""
    summaries = [summarise(group, target) for group in groups]
    joined = any(len(one.runs) > 1 for one in summaries)
    if not joined:
        singles = [Group(group.label, group.settings, [run]) for group in groups for run in group.runs]
        summaries = [summarise(single, target) for single in singles]
    most = max((value for one in summaries for value in one.over_seeds.bytes_sent.values), default=0.0)
    lines = [
        name(one, joined=joined) | describe(one, target, brief=brief) | describe_costs(one, most, brief=brief)
        for one in summaries
    ]
    shown = [column for column in lines[0] if column != "clients" or any(line[column] != NOTHING for line in lines)]
    notes = [
        f"left out: {run.folder}, which has the settings and the seed of another"
        for one in summaries
        for run in one.left_out
    ]
    return Table(shown, [[line[column] for column in shown] for line in lines], notes)


def name(summary: Summary, *, joined: bool) -> dict[str, str]:
    """What a line is about: a run's folder, the settings in which runs differ, and how many seeds are joined."""
    folder = {} if joined else {"run": str(summary.runs[0].folder)}
    settings = {key: word(value) for key, value in summary.group.settings.items() if key != "rounds"}
    return folder | settings | ({"seeds": str(len(summary.runs))} if joined else {})


def describe(summary: Summary, target: float | None, *, brief: bool) -> dict[str, str]:
    """What the runs of a line have reached, by the names of the columns."""
    of = summary.over_seeds
    reached = number(of.rounds_to_target, ".1f" if len(of.rounds_to_target.values) > 1 else ".0f")
    return {
        "rounds": rounds(summary),
        "final": number(of.final_accuracy, ".2%"),
        "best": number(of.best_accuracy, ".2%"),
        "last 10": number(of.last_accuracy, ".2%"),
        "test loss": number(of.test_loss, ".4f", brief=brief),
        "clients": clients(summary, brief=brief),
        **({} if target is None else {f"to {100 * target:g}%": reached}),
        "consensus": number(of.consensus_distance, ".3g", brief=brief),
        "push weights": between(of.push_weight_min, of.push_weight_max, ".3g"),
    }


def describe_costs(summary: Summary, most_bytes: float, *, brief: bool) -> dict[str, str]:
    """What it took; bytes are counted in what suits the line that has sent most."""
    size, unit = byte_unit(most_bytes, smallest=1e6)
    return {
        f"{unit} sent": number(summary.over_seeds.bytes_sent, ".4g", scale=1 / size, brief=brief),
        "seconds": number(summary.over_seeds.seconds, ".1f", brief=brief),
    }


def rounds(summary: Summary) -> str:
    """Rounds done of those asked, and whether it came to nothing."""
    done = sorted({len(run.lines) for run in summary.runs})
    diverged, all_of = sum(run.diverged is not None for run in summary.runs), len(summary.runs)
    fault = f", {'' if diverged == all_of else f'{diverged} of {all_of} '}diverged" if diverged else ""
    return f"{'–'.join(map(str, dict.fromkeys((done[0], done[-1]))))}/{summary.runs[0].config.rounds}{fault}"


def clients(summary: Summary, *, brief: bool) -> str:
    """The clients' own models in one cell."""
    of = summary.over_seeds
    if of.client_accuracy_mean.mean is None:
        return NOTHING
    range_ = between(of.client_accuracy_min, of.client_accuracy_max, ".1%").removesuffix("%")
    return f"{number(of.client_accuracy_mean, '.1%', brief=brief)} ({range_})"


def number(spread: Spread, form: str, *, scale: float = 1.0, brief: bool = False) -> str:
    """The mean, and unless it is to be brief the standard deviation, of the seeds that have the number."""
    if spread.mean is None:
        return NOTHING
    text = format(scale * spread.mean, form)
    if spread.std is not None and not brief:
        text = f"{text.removesuffix('%')} ± {format(scale * spread.std, form)}"
    there = len(spread.values)
    return f"{text} ({there}/{there + spread.missing})" if spread.missing else text


def between(low: Spread, high: Spread, form: str) -> str:
    """The lowest and the highest of all seeds, once where they look the same."""
    if not low.values or not high.values:
        return NOTHING
    lowest, highest = format(min(low.values), form), format(max(high.values), form)
    return lowest if lowest == highest else f"{lowest.removesuffix('%')}–{highest}"


# Methods × data, for Markdown and for LaTeX.


def markdown(groups: Sequence[Group], target: float | None) -> str:
    """Methods × data, where that is a table, and below it the table of all numbers."""
    grid, parts = make_grid(groups), []
    if len(grid.columns) > 1:
        head = ["method", *(f"{column.data_set} {column.partition}" for column in grid.columns)]
        lines = [
            [escape_markdown(row), *(mark(cell, "**{}**", "*{}*") for cell in line)] for row, line in grid.rows.items()
        ]
        parts += [pipes([escape_markdown(name) for name in head], lines), "", caption(grid, "in italics"), ""]
    table = tabulate(groups, target, brief=False)
    parts += [pipes(table.head, [[escape_markdown(cell) for cell in row] for row in table.rows])]
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
        [escape_latex(row), *(mark(cell, r"\textbf{{{}}}", r"\underline{{{}}}", escape_latex) for cell in line)]
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


def mark(cell: Cell | None, best: str, second: str, escape: Callable[[str], str] = str) -> str:
    """A cell's accuracy in percent, the best two of a column in their forms."""
    if cell is None or cell.summary.over_seeds.final_accuracy.mean is None:
        return NOTHING
    text = escape(number(cell.summary.over_seeds.final_accuracy, ".2f", scale=100))
    return {1: best, 2: second}.get(cell.place, "{}").format(text) + escape("" if cell.complete else UNFINISHED)


def caption(grid: Grid, second: str) -> str:
    """What methods × data shows."""
    asked = {run.config.rounds for cell in grid.cells for run in cell.summary.runs}
    seeds = sorted({len(cell.summary.runs) for cell in grid.cells})
    after = f"{asked.pop()} rounds" if len(asked) == 1 else "the last round"
    over = "one seed" if seeds[-1] == 1 else f"{' to '.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} seeds"
    what = f"of {over}" if seeds[-1] == 1 else f"mean ± sample standard deviation over {over}"
    ranked = (
        f" The best of each column is in bold, the second best {second}." if any(c.place for c in grid.cells) else ""
    )
    open_ends = "" if all(cell.complete for cell in grid.cells) else f" {UNFINISHED} not all runs have done all rounds."
    return f"Test accuracy (%) of the mean model after {after}, {what}.{ranked}{open_ends}"


def pipes(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as GitHub's Markdown has it, numbers to the right."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rows))


def escape_markdown(text: str) -> str:
    """Text whose signs mean nothing in Markdown; an underscore within a word means nothing anyway."""
    return re.sub(r"([\\|*<`\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def escape_latex(text: str) -> str:
    return text.translate(LATEX)
