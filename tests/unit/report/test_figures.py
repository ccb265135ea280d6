"""The figures of a report: what is drawn where, and runs that have little to draw."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread
from run_folders import read_groups, write_run

from dfl_dist.commands.main import main
from dfl_dist.report.figures import BANDS, LINES, bands_figure, draw_all, draw_overview, lines_figure
from dfl_dist.report.groups import Group
from dfl_dist.report.style import looks
from dfl_dist.run_folder.metrics import METRICS

OF_CLIENTS = [key for key, metric in METRICS.items() if metric.rounds == "clients evaluated"]
CLIENTS = dict.fromkeys(OF_CLIENTS, 0.5) | {"client_accuracy_min": 0.25, "client_accuracy_max": 0.75}


def two_seeds(folder: Path) -> list[Group]:
    """One method with two seeds and one with a single run."""
    one = write_run(folder / "one", [0.5, 0.6, 0.7], [CLIENTS, {}, {}])
    two = write_run(folder / "two", [0.7, None, 0.9], [CLIENTS, {}, {}], seed=1)
    other = write_run(folder / "other", [0.2, 0.3, 0.4, 0.5], algorithm="sgp")
    return read_groups(one, two, other)


def made(figure: Figure | None) -> Figure:
    assert figure is not None
    return figure


def points(axes: Axes) -> list[list[tuple[float, float]]]:
    """The points of each line."""
    return [[(round(x, 9), round(y, 9)) for x, y in np.asarray(line.get_xydata()).tolist()] for line in axes.lines]


def is_picture(path: Path) -> bool:
    """Something is drawn in it."""
    return path.stat().st_size > 0 and np.ptp(imread(path)[..., :3]) > 0.5


def test_every_figure_in_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_seeds(tmp_path / "runs")
    folder = tmp_path / "deep" / "figures"
    assert main(["report", str(tmp_path / "runs"), "--figures", str(folder), "--format", "png,svg"]) == 0
    written = [Path(line.split(": ")[1]) for line in capsys.readouterr().out.splitlines() if "written" in line]
    names = [*LINES, *BANDS]
    assert written == [folder / f"{name}.{ending}" for name in names for ending in ("png", "svg")]
    assert sorted(folder.iterdir()) == sorted(written)
    for path in written:
        assert is_picture(path) if path.suffix == ".png" else "DFedSGPSM" in path.read_text()


def test_lines_are_means_with_a_band_over_seeds(tmp_path: Path) -> None:
    """Where both seeds were evaluated: 0.5 and 0.7, then 0.7 and 0.9, each ± 0.1 √2."""
    groups = two_seeds(tmp_path)
    figure = made(lines_figure(groups, LINES["accuracy-rounds"]))
    (axes,) = figure.axes
    assert points(axes) == [[(1, 60), (3, 80)], [(1, 20), (2, 30), (3, 40), (4, 50)]]
    (band,) = axes.collections
    low, high = band.get_paths()[0].get_extents().intervaly
    assert (low, high) == pytest.approx((60 - 10 * 2**0.5, 80 + 10 * 2**0.5))
    (legend,) = figure.legends
    assert [entry.get_text() for entry in legend.get_texts()] == ["DFedSGPSM", "SGP"]
    assert "mean ± standard deviation over 1–2 seeds" in figure.get_suptitle()


def test_a_band_ends_where_accuracies_do(tmp_path: Path) -> None:
    """0.9 and 1 are 95 ± 7 percent."""
    runs = [write_run(tmp_path / str(seed), [value] * 2, seed=seed) for seed, value in enumerate((0.9, 1.0))]
    (axes,) = made(lines_figure(read_groups(*runs), LINES["accuracy-rounds"])).axes
    (band,) = axes.collections
    assert band.get_paths()[0].get_extents().intervaly == pytest.approx((95 - 5 * 2**0.5, 100))


def test_accuracy_against_bytes_and_seconds(tmp_path: Path) -> None:
    groups = read_groups(write_run(tmp_path / "run", [0.5, None, 0.75]))
    (axes,) = made(lines_figure(groups, LINES["accuracy-bytes"])).axes
    assert points(axes) == [[(0.5, 50), (1.5, 75)]]
    assert "(MB)" in axes.get_xlabel()
    (axes,) = made(lines_figure(groups, LINES["accuracy-seconds"])).axes
    assert points(axes) == [[(0.25, 50), (0.75, 75)]]


def test_losses_and_distances_are_on_a_logarithmic_scale(tmp_path: Path) -> None:
    """A server's clients have no distance at all, which has no logarithm."""
    runs = [
        write_run(tmp_path / "a", [0.5, 0.5], [{"consensus_distance": 10.0}]),
        write_run(tmp_path / "b", [0.5, 0.5], [{"consensus_distance": 0.0}] * 2, algorithm="fedavg"),
    ]
    (axes,) = made(lines_figure(read_groups(*runs), LINES["train-loss"])).axes
    assert axes.get_yscale() == "log"
    assert points(axes)[0] == [(1, 2), (2, 1)]
    (axes,) = made(lines_figure(read_groups(*runs), LINES["consensus"])).axes
    assert axes.get_yscale() == "log"
    assert "values of 0 are not shown" in axes.get_title(loc="right")
    (axes,) = made(lines_figure(read_groups(runs[1]), LINES["consensus"])).axes
    assert axes.get_yscale() == "linear", "with nothing else than 0"


def test_bands_are_from_the_lowest_to_the_highest_client(tmp_path: Path) -> None:
    groups = two_seeds(tmp_path)
    weights = made(bands_figure(groups, BANDS["push-weights"]))
    assert [axes.get_title() for axes in weights.axes] == ["DFedSGPSM", "SGP"]
    assert points(weights.axes[1]) == [[(t, 0.5) for t in (1, 2, 3, 4)], [(t, 1.5) for t in (1, 2, 3, 4)]]
    (band,) = weights.axes[1].collections
    assert band.get_paths()[0].get_extents().intervaly.tolist() == [0.5, 1.5]
    clients = made(bands_figure(groups, BANDS["clients"]))
    (axes,) = clients.axes
    assert points(axes) == [[(1, 25)], [(1, 75)], [(1, 50)]], "only one of the methods has evaluated its clients"


def test_what_has_no_data_is_not_drawn(tmp_path: Path) -> None:
    young = read_groups(write_run(tmp_path / "young", [None, None]))
    written = draw_all(young, tmp_path / "figures", ["svg"])
    assert [path.name for path in written] == ["train-loss.svg", "push-weights.svg"]
    empty = read_groups(write_run(tmp_path / "empty", []))
    assert draw_all(empty, tmp_path / "none", ["png"]) == []
    diverged = [{"train_loss": None, "test_loss": None, "test_accuracy": None, "consensus_distance": None}]
    hot = read_groups(write_run(tmp_path / "hot", [0.5], diverged))
    assert [path.stem for path in draw_all(hot, tmp_path / "hot-figures", ["png"])] == ["push-weights"]


@pytest.mark.parametrize("accuracies", [[], [None], [0.5], [0.5, 0.6, 0.7]])
def test_an_overview_of_whatever_is_there(tmp_path: Path, accuracies: list[float | None]) -> None:
    groups = read_groups(write_run(tmp_path / "run", accuracies, [CLIENTS] if accuracies[-1:] == [0.7] else []))
    draw_overview(groups, tmp_path / "report.png")
    assert is_picture(tmp_path / "report.png")


def test_an_overview_without_matplotlib_is_an_import_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the end of a run can say what to install."""
    groups = read_groups(write_run(tmp_path / "run", [0.5]))
    monkeypatch.setitem(sys.modules, "matplotlib.lines", None)
    with pytest.raises(ImportError):
        draw_overview(groups, tmp_path / "report.png")
    assert not (tmp_path / "report.png").exists()


def test_an_overview_of_one_run_says_what_it_is_of(tmp_path: Path) -> None:
    draw_overview(read_groups(write_run(tmp_path / "run", [0.5, 0.7], [CLIENTS])), tmp_path / "report.svg")
    written = (tmp_path / "report.svg").read_text()
    for said in ("DFedSGPSM on digits (Dir-0.3), 8 clients", "training loss", "push weights w", "clients’ own models"):
        assert said in written
    many = [write_run(tmp_path / f"{name}", [0.5, 0.7], algorithm=name) for name in ("sgp", "osgp", "dfedsam")]
    draw_overview(read_groups(*many), tmp_path / "many.svg")
    assert all(name in (tmp_path / "many.svg").read_text() for name in ("SGP", "OSGP", "DFedSAM"))


def test_long_names_and_many_groups_leave_room_for_the_plot(tmp_path: Path) -> None:
    """Names with signs that would begin a formula too."""
    runs = [
        write_run(tmp_path / f"{number}", [0.5, 0.6], graph__file=f"folder$\\of$graphs/{'long-' * 12}{number}.jsonl")
        for number in range(13)
    ]
    figure = made(lines_figure(read_groups(*runs), LINES["accuracy-rounds"]))
    figure.savefig(tmp_path / "figure.png")
    (axes,) = figure.axes
    box = axes.get_window_extent()
    assert box.width > 5 * figure.dpi
    assert not box.overlaps(figure.legends[0].get_window_extent())
    assert figure.legends[0].get_window_extent().height < figure.bbox.height


def test_looks_differ() -> None:
    first = list(itertools.islice(looks(), 35))
    assert len(set(first)) == 35
    assert len({(look.color, look.marker) for look in first}) == 35, "also where dashes are too short to be told"
