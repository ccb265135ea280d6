"""What a run leaves for people to look at: its report, with or without matplotlib."""

import os
import sys
from pathlib import Path

import pytest
from launching import TRAINER, lines, ranks, run

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


def hide(folder: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Let processes started from here not find a package that is installed."""
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules[{package!r}] = None\n")
    monkeypatch.setattr(
        "launching.environment", lambda: os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    )
