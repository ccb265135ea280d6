"""What a run leaves for people to look at: its report, with or without matplotlib; events for TensorBoard."""

import os
import sys
from pathlib import Path

import pytest
from launching import TRAINER, lines, ranks, run, train

from dfl_dist.errors import ConfigError
from dfl_dist.run_folder.trackers import check_installed

SHORT = ("--rounds", "2", "--num_clients", "4", "--local.epochs", "1")


def test_each_finished_run_has_its_report(tmp_path: Path) -> None:
    done = run(ranks(2, TRAINER, *SHORT, "--out", str(tmp_path / "run")), tmp_path)
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == "report: run/report.html, report.png"
    assert (tmp_path / "run" / "report.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"{lines(tmp_path / 'run' / 'metrics.jsonl')[-1]['test_accuracy']:.2%}".rstrip("%") in page


def test_without_matplotlib_a_run_ends_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(tmp_path, monkeypatch, "matplotlib")
    done = run([sys.executable, "-m", "dfl_dist.train", *SHORT, "--out", "run"], tmp_path)
    assert (done.code, done.err.count("Traceback")) == (0, 0), done.err
    assert done.out.splitlines()[-2:] == [
        "report: run/report.html",
        "for pictures as well: pip install 'dfl-dist[plot]', then dfl-dist report --figures FOLDER run",
    ]
    assert not (tmp_path / "run" / "report.png").exists()


def test_events_are_the_recorded_numbers(tmp_path: Path) -> None:
    """Those of a run that was stopped and resumed show every round once."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = train(2, tmp_path / "run", *SHORT, "--tensorboard", "true", "--eval.every", "3")
    train(2, out, "--resume", str(out), "--rounds", "4", "--tensorboard", "true")
    events = EventAccumulator(str(out / "tensorboard")).Reload()
    recorded = lines(out / "metrics.jsonl")
    for key in ("test_accuracy", "train_loss", "bytes_sent", "consensus_distance"):
        shown = [(event.step, event.value) for event in events.Scalars(key)]
        assert shown == [(line["round"], pytest.approx(line[key], rel=1e-6)) for line in recorded if key in line]
    assert [line["round"] for line in recorded if "test_accuracy" in line] == [2, 3], (
        "no more the last of the first start"
    )


def test_tensorboard_that_is_missing_is_told_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("tensorboard", "torch.utils.tensorboard"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(
        ConfigError, match=r"tensorboard: given true, which needs .* pip install 'dfl-dist\[tensorboard\]'"
    ):
        check_installed()


def hide(folder: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Let processes started from here not find a package that is installed."""
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules[{package!r}] = None\n")
    monkeypatch.setattr(
        "launching.environment", lambda: os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    )
