"""The picture of `dfl-dist partition`: how many samples each client has of each class."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dfl_dist.errors import ConfigError
from dfl_dist.report.style import COLORS

if TYPE_CHECKING:  # it is an extra, and slow to import
    from matplotlib.axes import Axes

MOST_DOTS = 100  # clients, or classes, that dots are drawn for
MOST_COLUMNS = 500  # of the picture of more clients
CELL_INCHES = (0.14, 0.5)  # the smallest and the largest place for a dot
DPI = 120


def draw(path: Path, table: np.ndarray, names: tuple[str, ...], *, title: str) -> None:
    """Write the picture, clients from left to right and classes from bottom to top; table: [clients, classes]."""
    from matplotlib.figure import Figure

    clients, classes = table.shape
    columns, rows = min(clients, MOST_DOTS), min(classes, MOST_DOTS)
    cell = float(np.clip(10 / max(columns, rows), *CELL_INCHES))
    figure = Figure(figsize=(max(7.0, 2 + cell * columns), 1.3 + cell * rows), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    if max(clients, classes) <= MOST_DOTS:
        draw_dots(axes, table, cell)
    else:
        draw_cells(axes, table)
    if classes <= MOST_DOTS:
        axes.set_yticks(range(classes), names, fontsize=9 if cell > 0.3 else 7)
    axes.set(xlim=(-0.6, clients - 0.4), ylim=(-0.6, classes - 0.4), ylabel="class")
    axes.set_title(title, fontsize=10)
    try:
        figure.savefig(path, bbox_inches="tight", pad_inches=0.15)
    except OSError as error:
        raise ConfigError(f"plot: given {path}, which cannot be written: {error}") from error


def draw_dots(axes: "Axes", table: np.ndarray, cell: float) -> None:
    """A dot for each class that a client has, its area the number of samples; the largest fills its place."""
    clients, labels = np.nonzero(table)
    amounts = table[clients, labels]
    areas = (0.95 * cell * 72) ** 2 * amounts / amounts.max()
    axes.scatter(clients, labels, s=np.maximum(areas, 1), color=COLORS[0], linewidths=0)
    axes.set_xticks(range(0, len(table), 1 if len(table) <= 40 else 5))
    axes.tick_params("x", labelsize=9 if cell > 0.3 else 7)
    axes.set(aspect="equal", xlabel=f"client; the largest dot is {amounts.max():,} samples of a class")
    axes.grid(color="#e5e5e5", linewidth=0.5)
    axes.set_axisbelow(True)


def draw_cells(axes: "Axes", table: np.ndarray) -> None:
    """The darker, the more samples; where there are many clients, one column for several."""
    clients, classes = table.shape
    starts = np.unique(np.linspace(0, clients, min(clients, MOST_COLUMNS), endpoint=False).astype(int))
    means = np.add.reduceat(table, starts) / np.diff(starts, append=clients)[:, None]
    extent = (-0.5, clients - 0.5, -0.5, classes - 0.5)
    image = axes.imshow(
        means.T, cmap="Blues", vmin=0, aspect="auto", origin="lower", extent=extent, interpolation="none"
    )
    axes.set_xlabel("client")
    figure = axes.get_figure()
    assert figure is not None
    figure.colorbar(image, label="samples of a class", fraction=0.05, pad=0.01)
