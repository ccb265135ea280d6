"""What is within a plot of runs: lines and bands, and axes that fit them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dfl_dist.report.groups import Group
from dfl_dist.report.statistics import MeanCurve, mean_curve
from dfl_dist.report.style import Look, looks
from dfl_dist.run_folder.metrics import CURVES, METRICS, Axis, label_curve
from dfl_dist.text import byte_unit

if TYPE_CHECKING:  # it is an extra, and slow to import
    from matplotlib.axes import Axes

MOST_MARKERS = 30  # on a line
GREY = "#555555"


@dataclass(frozen=True)
class Shape:
    """How values are shown."""

    title: str
    percent: bool = False
    log: bool = False

    @property
    def label(self) -> str:
        return f"{self.title} (%)" if self.percent else self.title

    @property
    def scale(self) -> float:
        return 100.0 if self.percent else 1.0


@dataclass(frozen=True)
class Lines:
    """One line per group: a metric along an axis."""

    metric: str
    axis: Axis
    shape: Shape


@dataclass(frozen=True)
class Band:
    """Between the metrics `low` and `high`, with a line for a third where there is one."""

    low: str
    high: str
    middle: str | None
    shape: Shape

    @property
    def edges(self) -> str:
        """What is drawn, in words."""
        return "lowest, mean and highest client" if self.middle else "lowest and highest client"


def shape_of(metric: str) -> Shape:
    """How the table of metrics says that a curve is shown."""
    title = label_curve(metric).replace("the mean model x̄", r"$\bar{x}$")  # an axis has little room
    return Shape(title, METRICS[metric].form == "percent", CURVES[metric].figure_scale == "log")


def band_of(metric: str) -> Band | None:
    """The band of a metric's curve, if it is drawn as one."""
    low, high = CURVES[metric].low, CURVES[metric].high
    return Band(low or metric, high, metric if low else None, shape_of(metric)) if high else None


def draw_lines(axes: "Axes", groups: Sequence[Group], what: Lines) -> bool:
    """One line per group, with a band of ± one standard deviation; whether there is any."""
    curves = [mean_curve(group, what.axis, what.metric) for group in groups]
    size, unit = byte_unit(max((float(found.x[-1]) for found in curves if len(found.x)), default=0.0))
    for found, look in zip(curves, looks(), strict=False):
        draw_curve(axes, found, what.shape, look, size if what.axis == "bytes" else 1.0)
    labels = {"rounds": "rounds", "bytes": f"sent by all clients together ({unit})", "seconds": "seconds of training"}
    finish(axes, what.shape, labels[what.axis], heights_in([axes]))
    return any(len(found.x) for found in curves)


def draw_curve(axes: "Axes", found: MeanCurve, shape: Shape, look: Look, unit: float = 1.0) -> None:
    """The mean, and the band around it."""
    x, mean = found.x / unit, shape.scale * found.mean
    every = -(-len(x) // MOST_MARKERS) or 1
    (line,) = axes.plot(x, mean, color=look.color, linestyle=look.dashes, linewidth=1.7)
    line.set(marker=look.marker, markersize=3.2, markevery=every)
    if found.std is not None:
        low, high = mean - shape.scale * found.std, mean + shape.scale * found.std
        if shape.percent:
            low, high = np.clip(low, 0, 100), np.clip(high, 0, 100)
        if shape.log:
            low = np.maximum(low, mean / 10)  # a logarithm has no place for less than nothing
        axes.fill_between(x, low, high, color=look.color, alpha=0.15, linewidth=0)


def draw_band(axes: "Axes", group: Group, what: Band, look: Look, *, filled: bool = True) -> bool:
    """The edges of a band and what is between them, means over seeds; whether there is anything."""
    low, high = mean_curve(group, "rounds", what.low), mean_curve(group, "rounds", what.high)
    scale = what.shape.scale
    for edge in (low, high):
        (line,) = axes.plot(edge.x, scale * edge.mean, color=look.color, linestyle=look.dashes, linewidth=0.8)
        line.set_marker("_" if len(edge.x) == 1 else "")  # a line of one point is not seen
    if filled and len(low.x) == len(high.x):
        axes.fill_between(low.x, scale * low.mean, scale * high.mean, color=look.color, alpha=0.15, linewidth=0)
    if what.middle:
        middle = mean_curve(group, "rounds", what.middle)
        draw_curve(axes, MeanCurve(middle.x, middle.mean, None), what.shape, look)
    return len(low.x) > 0


def heights_in(panels: "Sequence[Axes]") -> np.ndarray:
    """All values of all lines."""
    lines = [np.asarray(line.get_ydata(), dtype=float) for axes in panels for line in axes.lines]
    return np.concatenate([np.empty(0), *lines])


def finish(axes: "Axes", shape: Shape, x_label: str, heights: np.ndarray) -> None:
    """Labels, grid and scale, for the values of a plot, or of all that share its axes."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel(x_label)
    axes.set_ylabel(shape.label)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(left=0)
    if x_label == "rounds":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    positive = heights[heights > 0]
    if shape.log and len(positive):
        use_log(axes, positive)
        if len(positive) < len(heights):
            note(axes, "values of 0 are not shown")
    if not len(heights):
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "nothing yet", transform=axes.transAxes, ha="center", va="center", color=GREY)


def use_log(axes: "Axes", heights: np.ndarray) -> None:
    """A logarithmic scale whose ticks are plain numbers, more of them where it spans little."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = float(heights.min()), float(heights.max())
    if high < 1.5 * low:
        axes.set_ylim(low / 1.5, high * 1.5)  # nearly the same all the time, and to be seen as that
    subs = (1, 2, 5) if high < 100 * low else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 4, 6, 8) if high < 10 * low else subs))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def note(axes: "Axes", text: str) -> None:
    """A remark above a plot."""
    axes.set_title(text, fontsize=9, color=GREY, loc="right")
