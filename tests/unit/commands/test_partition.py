"""`dfl-dist partition`: its tables, its picture, its refusals, and that it shows what a run has."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from dfl_dist import train
from dfl_dist.commands.main import main
from dfl_dist.commands.partition.plot import draw_dots
from dfl_dist.data.datasets import digits
from dfl_dist.data.partition import counts, load

MANY = "many_classes:load"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["partition", *words]) == 0
    return capsys.readouterr().out


def rows(text: str) -> list[list[str]]:
    """The cells of the table, its head first."""
    return [re.split(r"\s{2,}", line.strip()) for line in text.partition("\n\n")[0].splitlines()[1:]]


def table(text: str) -> np.ndarray:
    """The counts in a table of all of them, [clients, classes]."""
    numbers = [[0 if cell == "·" else int(cell.replace(",", "")) for cell in row[3:]] for row in rows(text)[1:-1]]
    return np.array(numbers)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that refuses these arguments."""
    assert main(["partition", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize("settings", [{"data.partition": "shards", "seed": 5}, {"data.alpha": 0.1}])
def test_shows_what_a_run_has(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, settings: dict[str, str | float]
) -> None:
    settings |= {"num_clients": 6, "data.limit": 1000}
    short = {"rounds": 1, "local.steps": 1, "report": False}
    run = train({**settings, **short, "out": str(tmp_path / "run")}).folder
    expected = counts(load(run / "partition.npz", range(6)), digits().train_targets, 10)
    assert expected.sum() == 1000
    words = [f"--{key}={value}" for key, value in settings.items()]
    capsys.readouterr()
    assert table(said(capsys, *words)).tolist() == expected.tolist()
    repeated = said(capsys, "--config", str(run / "config.yaml"))
    assert table(repeated).tolist() == expected.tolist()


def test_table_of_few_clients(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "--num_clients", "5", "--data.partition", "shards", "--data.classes_per_client", "3")
    assert out.startswith("digits, 1,437 training samples of 10 classes, 5 clients, shards, 3 per client, seed 0\n")
    head, *clients, total = rows(out)
    assert head == ["client", "samples", "classes", *map(str, range(10))]
    found = table(out)
    assert [row[:3] for row in clients] == [
        [str(client), str(row.sum()), str(np.count_nonzero(row))] for client, row in enumerate(found)
    ]
    assert total == ["all", "1,437", "10", *map(str, np.bincount(digits().train_targets))]
    assert "samples per client  287 to 288\n" in out
    assert "classes per client  3 to 3, 3.0 on average\n" in out


def test_distance_is_the_total_variation(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "--num_clients", "4")
    found = table(out)
    whole = found.sum(axis=0) / found.sum()
    far = [float(np.maximum(row / row.sum() - whole, 0).sum()) for row in found]  # what is above the whole's part
    assert f"distance            {min(far):.2f} to {max(far):.2f}, {np.mean(far):.2f} on average" in out


def test_many_clients_are_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--num_clients", "41", "--data.partition", "dirichlet", "--data.alpha", "0.2")
    full = table(said(capsys, *words, "--all"))
    out = said(capsys, *words)
    head, *clients, note = rows(out)
    assert head == ["client", "samples", "classes", "largest"]
    assert note == ["--all shows every count"]
    assert len(clients) == len(full) == 41
    for row, (client, samples, classes, largest) in zip(full, clients, strict=True):
        assert [samples, classes] == [str(row.sum()), str(np.count_nonzero(row))], client
        named = [re.fullmatch(r"(\d): (\d+)%", part) for part in largest.split(", ")]
        parts = [(int(found[1]), int(found[2])) for found in named if found]
        assert len(parts) == len(named) == min(3, np.count_nonzero(row))
        assert [row[label] for label, _ in parts] == sorted(row, reverse=True)[: len(parts)]
        assert [percent for _, percent in parts] == [round(100 * row[label] / row.sum()) for label, _ in parts]


def test_very_many_clients_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "--num_clients", "150")
    assert [row[0] for row in rows(out)[1:]] == [*map(str, range(100)), "… 50 more clients: --all shows them"]
    assert table(said(capsys, "--num_clients", "150", "--all")).shape == (150, 10)


def test_many_user_supplied_classes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--data.name", MANY, "--num_clients", "3", "--data.partition", "iid")
    out = said(capsys, *words)
    assert out.startswith(f"{MANY}, 1,200 training samples of 30 classes, 3 clients, iid, seed 0\n")
    assert all(row[3].startswith("kind-0: ") for row in rows(out)[1:-1])
    everything = said(capsys, "--all", *words)
    assert rows(everything)[0][3:] == [f"kind-{label}" for label in range(30)]
    assert table(everything).sum(axis=0).tolist() == [330, *[30] * 29]


def test_settings_of_ranks_and_servers_do_not_matter(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("{algorithm: fedavg, participation: 0.5, num_clients: 4, rank0: coordinator}")
    assert said(capsys, "--config", str(config)) == said(capsys, "--num_clients", "4")


@pytest.mark.parametrize(("clients", "name"), [("10", "digits"), ("100", MANY), ("700", MANY), ("1", "digits")])
def test_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path, clients: str, name: str) -> None:
    from matplotlib.image import imread

    def picture(file: str, *words: str) -> np.ndarray:
        out = said(capsys, "--num_clients", clients, "--data.name", name, f"--plot={tmp_path / file}", *words)
        assert out.endswith(f"\npicture: {tmp_path / file}\n")
        return imread(tmp_path / file)[60:, :, :3]  # without the title, which names the partition

    first, same = picture("a.png"), picture("b.PNG")
    assert (first == same).all()
    blue = first[:, :, 2] - first[:, :, 0] > 0.3
    assert 0.005 < blue.mean() < 0.6, "something is drawn"
    if clients != "1":
        other = picture("c.png", "--data.partition", "shards")
        assert first.shape != other.shape or (first != other).any(), "another partition, another picture"


def test_dots_are_where_the_classes_are(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    draw_dots(axes, np.array([[0, 8], [2, 6], [4, 4]]), 0.5)
    (dots,) = axes.collections
    assert np.asarray(dots.get_offsets()).tolist() == [[0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
    areas = np.asarray(dots.get_sizes())
    assert (areas / areas[0]).tolist() == pytest.approx([1, 0.25, 0.75, 0.5, 0.5])


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "--help")
    assert out.startswith("usage: dfl-dist partition [--plot FILE] [--all]")
    assert all(word in out for word in ("--num_clients", "--data.alpha", "--data.classes_per_client", "--config"))
    assert main(["--help"]) == 0
    assert "  partition " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--data.partition", "sharts"], "data.partition: given sharts, allowed: iid | dirichlet | shards"),
        (
            ["--data.partition", "shards", "--data.classes_per_client", "20"],
            "data.classes_per_client: given 20, allowed: 1 to 10, the number of classes",
        ),
        (["--num_clients", "1438"], "num_clients: given 1438, allowed: at most 1437, the number of training samples"),
        (["--data.name", "digit"], "(did you mean digits?)"),
        (["--data.name", "mnist", "--data.root", "/nowhere"], "data.root: given /nowhere, which has no whole mnist"),
        (["--data.limit", "2000"], "data.limit: given 2000"),
        (["--num_client", "4"], "did you mean num_clients?"),
        (["digits"], "digits: unknown key"),
        (["--plot"], "plot: given nothing"),
        (["--plot", "--all"], "plot: given nothing"),
        (["--plot", "classes.txt"], "plot: given classes.txt, allowed: a file that ends in one of "),
        (["--plot", "/nowhere/a.png"], "plot: given /nowhere/a.png, allowed: a file that can be written"),
    ],
)
def test_mistakes_are_told_in_one_line(capsys: pytest.CaptureFixture[str], words: list[str], complaint: str) -> None:
    assert complaint in refused(capsys, *words)


def test_picture_without_matplotlib(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install 'dfl-dist[plot]'" in refused(capsys, "--plot", "classes.png")
    assert table(said(capsys)).shape == (8, 10), "the table needs none"
