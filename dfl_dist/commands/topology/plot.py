"""The picture of `dfl-dist topology`: every graph in a round, and consensus error against rounds."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dfl_dist.errors import ConfigError
from dfl_dist.report.style import looks
from dfl_dist.text import count
from dfl_dist.topology.connectivity import Edges

if TYPE_CHECKING:  # it is an extra, and slow to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_DRAWN = 64  # clients that fit on a circle
MOST_CELLS = 250  # rows and columns of the picture of a large graph
LOWEST_ERROR = 1e-8


MOST_BESIDE = 4  # graphs in a row
BESIDE_CURVES = 2  # so many graphs, or fewer, have the curves beside them, else below
GRAPH, CURVES = 4.2, (6.6, 4.6)  # inches: of a graph, and of the curves at least


def write(path: Path, figure: "Figure") -> None:
    """Write the picture."""
    try:
        figure.savefig(path)
    except OSError as error:
        raise ConfigError(f"plot: given {path}, which cannot be written: {error}") from error


def draw(
    graphs: Mapping[str, Edges], *, round_number: int, curves: Mapping[str, np.ndarray], small_error: float
) -> "Figure":
    """The edges of each graph in a round, and its error after each round, both in one colour."""
    figure, panels, error_panel = lay_out(len(graphs))
    for axes, (name, edges), look in zip(panels, graphs.items(), looks(), strict=False):
        (draw_circle if edges.num_clients <= MOST_DRAWN else draw_cells)(axes, edges, look.color)
        axes.set_title(f"{name}\n{len(edges.senders):,} edges", fontsize=11)
    for axes in panels[len(graphs) :]:
        axes.axis("off")
    draw_curves(error_panel, curves, small_error)
    error_panel.set_title("Push-sum averaging without training")
    num_clients = next(iter(graphs.values())).num_clients
    figure.suptitle(
        f"{'Graphs' if len(graphs) > 1 else 'Graph'} of round {round_number}, {count(num_clients, 'client')}"
    )
    return figure


def lay_out(graphs: int) -> "tuple[Figure, list[Axes], Axes]":
    """A figure with a place for each graph, in rows, and one for the curves: beside a few, below many."""
    from matplotlib.figure import Figure

    columns = count_columns(graphs)
    rows = -(-graphs // columns)
    width, height = GRAPH * columns, GRAPH * rows
    if graphs <= BESIDE_CURVES:
        figure = Figure(figsize=(width + CURVES[0] + 1, max(height, 5.4)), dpi=120, layout="constrained")
        parts = figure.subfigures(1, 2, squeeze=False, width_ratios=(width, CURVES[0] + 1))
    else:
        figure = Figure(figsize=(max(width, 10), height + CURVES[1]), dpi=120, layout="constrained")
        parts = figure.subfigures(2, 1, squeeze=False, height_ratios=(height, CURVES[1]))
    of_graphs, of_curves = np.asarray(parts).flat
    return figure, of_graphs.subplots(rows, columns, squeeze=False).ravel().tolist(), of_curves.subplots()


def count_columns(graphs: int) -> int:
    """Graphs in a row: as many as fit, or one less where that leaves fewer places empty."""
    if graphs <= MOST_BESIDE:
        return graphs
    return min((MOST_BESIDE, MOST_BESIDE - 1), key=lambda columns: -graphs % columns)


def draw_circle(axes: "Axes", edges: Edges, color: str) -> None:
    """The clients on a circle: a line where two push to each other, an arrow where only one does."""
    from matplotlib.collections import LineCollection
    from matplotlib.patches import FancyArrowPatch

    clients = edges.num_clients
    angles = np.pi / 2 - 2 * np.pi * np.arange(clients) / clients
    places = np.column_stack([np.cos(angles), np.sin(angles)])
    pairs = set(zip(edges.senders.tolist(), edges.receivers.tolist(), strict=True))
    both = [pair for pair in pairs if pair[0] < pair[1] and pair[::-1] in pairs]
    alone = sorted(pair for pair in pairs if pair[::-1] not in pairs)
    lines = max(1, len(both) + len(alone))
    alpha, width = float(np.clip(120 / lines, 0.3, 0.9)), float(np.clip(150 / lines, 0.5, 1.3))
    segments = [places[list(pair)] for pair in both]
    axes.add_collection(LineCollection(segments, colors=color, alpha=alpha, linewidths=width, zorder=1))
    for sender, receiver in alone:
        arrow = FancyArrowPatch(
            tuple(places[sender]),
            tuple(places[receiver]),
            arrowstyle="-|>",
            mutation_scale=float(np.clip(200 / clients, 7, 14)),
            connectionstyle="arc3,rad=0.08",
            shrinkA=4,
            shrinkB=4,
            color=color,
            alpha=alpha,
            linewidth=width,
        )
        axes.add_patch(arrow)
    axes.scatter(places[:, 0], places[:, 1], s=45, color="#333333", zorder=3)
    for client, (x, y) in enumerate(1.1 * places):
        axes.text(x, y, str(client), ha="center", va="center", fontsize=9 if clients <= 32 else 7.5)
    axes.set(xlim=(-1.18, 1.18), ylim=(-1.18, 1.18), aspect="equal", anchor="N")
    axes.axis("off")
    meaning = ["line: both ways"] * bool(both) + ["arrow: one way"] * bool(alone)
    axes.text(0.5, -0.02, ", ".join(meaning), transform=axes.transAxes, ha="center", va="top", color="#555555")


def draw_cells(axes: "Axes", edges: Edges, color: str) -> None:
    """Who pushes to whom as dark cells; where there are many clients, one cell for several."""
    from matplotlib.colors import LinearSegmentedColormap

    clients = edges.num_clients
    cells = min(clients, MOST_CELLS)
    bounds = np.linspace(0, clients, cells + 1)
    pushes, _, _ = np.histogram2d(edges.senders + 0.5, edges.receivers + 0.5, bins=(bounds, bounds))
    top = max(1.0, float(pushes.max()))
    shades = LinearSegmentedColormap.from_list("pushes", ["white", color])
    axes.imshow(pushes, cmap=shades, vmin=0, vmax=top, extent=(0, clients, clients, 0), interpolation="nearest")
    axes.set(xlabel="receiver", ylabel="sender", anchor="N")


def draw_curves(axes: "Axes", curves: Mapping[str, np.ndarray], small_error: float) -> None:
    """The errors on a logarithmic scale, as far as they are interesting."""
    ends = [np.flatnonzero(errors <= LOWEST_ERROR) for errors in curves.values()]
    used = [int(end[0]) if len(end) else len(errors) - 1 for end, errors in zip(ends, curves.values(), strict=True)]
    last = max(1, *used)
    axes.axhline(small_error, color="#777777", linestyle=(0, (4, 4)), linewidth=1)
    axes.text(last, small_error * 1.25, f"{small_error:.0e}".replace("e-0", "e-"), color="#555555", ha="right")
    for (name, errors), look in zip(curves.items(), looks(), strict=False):
        positive = np.maximum(errors, np.finfo(float).tiny)
        axes.plot(positive, label=name, color=look.color, linestyle=look.dashes, linewidth=1.8)
    axes.set(xlim=(-last / 80, last), ylim=(LOWEST_ERROR, 2), yscale="log", xlabel="round")
    axes.set_ylabel("consensus error, relative to the start")
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
