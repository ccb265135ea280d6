"""What runs have reached as figures: means over seeds, with bands of ± one standard deviation."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dfl_dist.report.groups import Group
from dfl_dist.report.paper_table import column_of
from dfl_dist.report.plots import (
    GREY,
    Band,
    Lines,
    band_of,
    draw_band,
    draw_lines,
    finish,
    heights_in,
    note,
    shape_of,
)
from dfl_dist.report.statistics import mean_curve, one_per_seed
from dfl_dist.report.style import COLORS, Look, looks
from dfl_dist.run_folder.metrics import CURVES

if TYPE_CHECKING:  # it is an extra, and slow to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST_LINE = 40  # characters in a legend
MOST_BESIDE = 4  # small plots in a row
DPI = 130
BANDS = {curve.name: band for key, curve in CURVES.items() if curve.figures and (band := band_of(key))}
LINES = {
    f"{curve.name}-{axis}" if len(curve.figures) > 1 else curve.name: Lines(key, axis, shape_of(key))
    for key, curve in CURVES.items()
    for axis in curve.figures
    if not curve.high
}
PANELS = list(dict.fromkeys(curve.chart for curve in CURVES.values() if curve.figures))  # of the overview


def draw_all(groups: Sequence[Group], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write every figure that the runs have data for; where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {name: lines_figure(groups, what) for name, what in LINES.items()}
    made |= {name: bands_figure(groups, what) for name, what in BANDS.items()}
    figures = [(folder / f"{name}.{ending}", figure) for name, figure in made.items() if figure for ending in formats]
    for path, figure in figures:
        figure.savefig(path)
    return [path for path, _ in figures]


def draw_overview(groups: Sequence[Group], path: Path) -> None:
    """Write one picture with a panel for each chart of a run's page."""
    rows = -(-len(PANELS) // 2)
    figure = new_figure(10, 3.2 * rows, groups)
    panels = figure.subplots(rows, 2, squeeze=False).ravel().tolist()
    for axes, chart in zip(panels, PANELS, strict=False):
        draw_panel(axes, groups, chart)
    for axes in panels[len(PANELS) :]:
        axes.axis("off")
    figure.savefig(path)


def draw_panel(axes: "Axes", groups: Sequence[Group], chart: str) -> None:
    """The first curve of a chart for every group; of a single group, its bands behind a line."""
    alone = len(groups) == 1
    first, *others = (key for key, curve in CURVES.items() if curve.chart == chart and curve.figures)
    if band := band_of(first):
        for group, look in zip(groups, looks(), strict=False):
            draw_band(axes, group, band, look, filled=alone)
        finish(axes, band.shape, "rounds", heights_in([axes]))
        return
    for key in others if alone else ():
        if (band := band_of(key)) and draw_band(axes, groups[0], band, Look(COLORS[1], "--", "o")):
            note(axes, f"dashed: {band.shape.title}")
    draw_lines(axes, groups, Lines(first, "rounds", shape_of(first)))


def lines_figure(groups: Sequence[Group], what: Lines) -> "Figure | None":
    """All groups in one plot; None where none has anything."""
    figure = new_figure(6.4, 4.4, groups)
    return figure if draw_lines(figure.subplots(), groups, what) else None


def bands_figure(groups: Sequence[Group], what: Band) -> "Figure | None":
    """One small plot per group, all with the same axes; None where none has anything."""
    shown = [group for group in groups if len(mean_curve(group, "rounds", what.low).x)]
    if not shown:
        return None
    columns = min(MOST_BESIDE, len(shown))
    rows = -(-len(shown) // columns)
    width, height = (3.0, 2.5) if columns > 1 else (6.0, 4.0)
    figure = empty_figure(0.4 + width * columns, 0.5 + height * rows)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel().tolist()
    used = panels[: len(shown)]
    for axes, group in zip(used, shown, strict=True):
        draw_band(axes, group, what, next(looks()))
    for axes, group in zip(used, shown, strict=True):
        finish(axes, what.shape, "rounds", heights_in(used))
        axes.set_title(wrap(group.label, 12 * int(width)) if columns > 1 else about(group), fontsize=9)
        axes.set(xlabel="", ylabel="")
    for axes in panels[len(shown) :]:
        axes.axis("off")
    for axes in used[-columns:]:
        axes.tick_params(labelbottom=True)  # the lowest of each column, also above an empty place
    figure.supxlabel("rounds", fontsize=10)
    figure.supylabel(what.shape.label, fontsize=10)
    add_title(figure, [], shown, f"{what.edges}, mean over")
    return figure


def new_figure(width: float, height: float, groups: Sequence[Group]) -> "Figure":
    """A figure with a legend at the right, beside a plot that is always as wide; one group is named above."""
    from matplotlib.lines import Line2D

    names = [wrap(group.label, LONGEST_LINE) for group in groups]
    longest = max(len(line) for name in names for line in name.splitlines())
    lines = sum(name.count("\n") + 1 for name in names)
    alone = len(groups) == 1
    figure = empty_figure(width + (0 if alone else 0.6 + 0.075 * longest), max(height, 0.4 + 0.19 * lines))
    add_title(figure, [about(groups[0])] if alone else [], groups, "mean ± standard deviation over")
    if not alone:
        handles = [
            Line2D([], [], color=look.color, linestyle=look.dashes, marker=look.marker, markersize=3.2)
            for _, look in zip(groups, looks(), strict=False)
        ]
        figure.legend(handles, names, loc="outside right center", frameon=False, fontsize=9, handlelength=3.2)
    return figure


def empty_figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def add_title(figure: "Figure", parts: Sequence[str], groups: Sequence[Group], over: str) -> None:
    """Say what is shown, and where there are several seeds how they are joined."""
    seeds = sorted({len(one_per_seed(group)) for group in groups})
    joined = f"{over} {'–'.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} seeds"
    if title := "\n".join([*parts, *([joined] if seeds[-1] > 1 else [])]):
        figure.suptitle(title, fontsize=10, color=GREY)


def about(group: Group) -> str:
    """A single group in words."""
    column, config = column_of(group), group.runs[0].config
    return wrap(f"{group.row} on {column.data_set} ({column.partition}), {config.num_clients} clients", 90)


def wrap(text: str, width: int) -> str:
    """A label in lines, without the sign that would begin a formula."""
    return textwrap.fill(text, width).replace("$", r"\$")
