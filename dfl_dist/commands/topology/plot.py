"""The picture of `dfl-dist topology`: the graph of a round, and consensus error against rounds."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dfl_dist.errors import ConfigError
from dfl_dist.report.style import COLORS, looks
from dfl_dist.topology.connectivity import Edges

if TYPE_CHECKING:  # it is an extra, and slow to import
    from matplotlib.axes import Axes

MOST_DRAWN = 64  # clients that fit on a circle
MOST_CELLS = 250  # rows and columns of the picture of a large graph
LOWEST_ERROR = 1e-8


def draw(path: Path, edges: Edges, *, title: str, curves: Mapping[str, np.ndarray], small_error: float) -> None:
    """Write the picture: the edges of a round at the left; the error after each round at the right, by name."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 5.6), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    (draw_circle if edges.num_clients <= MOST_DRAWN else draw_cells)(left, edges)
    left.set_title(f"{title}: {edges.num_clients:,} clients, {len(edges.senders):,} edges")
    draw_curves(right, curves, small_error)
    right.set_title(f"Push-sum averaging without training, {edges.num_clients:,} clients")
    try:
        figure.savefig(path)
    except OSError as error:
        raise ConfigError(f"plot: given {path}, which cannot be written: {error}") from error


def draw_circle(axes: "Axes", edges: Edges) -> None:
    """The clients on a circle: a line where two push to each other, an arrow where only one does."""
    from matplotlib.collections import LineCollection
    from matplotlib.patches import FancyArrowPatch

    count = edges.num_clients
    angles = np.pi / 2 - 2 * np.pi * np.arange(count) / count
    places = np.column_stack([np.cos(angles), np.sin(angles)])
    pairs = set(zip(edges.senders.tolist(), edges.receivers.tolist(), strict=True))
    both = [pair for pair in pairs if pair[0] < pair[1] and pair[::-1] in pairs]
    alone = sorted(pair for pair in pairs if pair[::-1] not in pairs)
    lines = max(1, len(both) + len(alone))
    alpha, width = float(np.clip(120 / lines, 0.3, 0.9)), float(np.clip(150 / lines, 0.5, 1.3))
    segments = [places[list(pair)] for pair in both]
    axes.add_collection(LineCollection(segments, colors=COLORS[0], alpha=alpha, linewidths=width, zorder=1))
    for sender, receiver in alone:
        arrow = FancyArrowPatch(
            tuple(places[sender]),
            tuple(places[receiver]),
            arrowstyle="-|>",
            mutation_scale=float(np.clip(200 / count, 7, 14)),
            connectionstyle="arc3,rad=0.08",
            shrinkA=4,
            shrinkB=4,
            color=COLORS[0],
            alpha=alpha,
            linewidth=width,
        )
        axes.add_patch(arrow)
    axes.scatter(places[:, 0], places[:, 1], s=45, color="#333333", zorder=3)
    for client, (x, y) in enumerate(1.08 * places):
        axes.text(x, y, str(client), ha="center", va="center", fontsize=9 if count <= 32 else 7.5)
    axes.set(xlim=(-1.14, 1.14), ylim=(-1.14, 1.14), aspect="equal", anchor="N")
    axes.axis("off")
    meaning = ["line: both ways"] * bool(both) + ["arrow: one way"] * bool(alone)
    axes.text(0.5, -0.02, ", ".join(meaning), transform=axes.transAxes, ha="center", va="top", color="#555555")


def draw_cells(axes: "Axes", edges: Edges) -> None:
    """Who pushes to whom as dark cells; where there are many clients, one cell for several."""
    count = edges.num_clients
    cells = min(count, MOST_CELLS)
    bounds = np.linspace(0, count, cells + 1)
    pushes, _, _ = np.histogram2d(edges.senders + 0.5, edges.receivers + 0.5, bins=(bounds, bounds))
    top = max(1.0, float(pushes.max()))
    axes.imshow(pushes, cmap="Blues", vmin=0, vmax=top, extent=(0, count, count, 0), interpolation="nearest")
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
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", frameon=False)
