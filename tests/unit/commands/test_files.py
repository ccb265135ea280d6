"""`dfl-dist files`: what comes with the package, listed and copied."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dfl_dist.commands.files import main
from dfl_dist.config.shipped import FILES
from dfl_dist.errors import ConfigError


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_file_is_listed_with_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[1:])
    assert rows["launch/slurm/train.sbatch"] == "Train on a SLURM cluster"
    assert rows["configs/README.md"] == "Settings, grids, results"
    assert {"configs/quickstart.yaml", "configs/paper/mnist.yaml", "launch/multi_node.sh"} <= set(rows)


def test_folders_and_files_are_copied_as_they_are() -> None:
    assert main(["launch/slurm/", "configs/quickstart.yaml", "--to", "here"]) == 0
    copied = [path for path in Path("here").rglob("*") if path.is_file()]
    assert len(copied) == 5
    for path in copied:
        assert path.read_bytes() == (FILES / path.relative_to("here")).read_bytes()
        assert os.access(path, os.X_OK) == (path.suffix == ".sbatch")
    assert main(["launch/slurm", "--to", "here"]) == 0, "again, over the same"


def test_nothing_is_overwritten() -> None:
    Path("configs").mkdir()
    Path("configs/quickstart.yaml").write_text("rounds: 7")
    with pytest.raises(ConfigError, match=r"to: given \., which has another configs/quickstart.yaml"):
        main(["launch", "configs"])
    assert Path("configs/quickstart.yaml").read_text() == "rounds: 7"
    assert not Path("launch").exists(), "all or none"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["launch/slrum"], r"file: given launch/slrum, .*\(did you mean launch/slurm\?\)"),
        (["configs/pap"], "file: given configs/pap, "),
        (["launch", "--too", "x"], r"option: given --too, allowed: --to FOLDER"),
        (["launch", "--to", "/dev/null/x"], "to: given /dev/null/x, which cannot be written"),
    ],
)
def test_what_cannot_be_copied_is_refused(words: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        main(words)


def test_a_copied_script_starts_what_is_installed() -> None:
    """Without the code beside it there is nothing to install, and no tests to run."""
    main(["launch"])
    environment = dict(os.environ) | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for words, code, said in (
        (["launch/local.sh", "--help"], 0, "usage: dfl-dist launch"),
        (["launch/multi_node.sh", "--hosts", "2"], 2, "host: given nothing"),
        (["launch/test.sh"], 2, "the tests are in the project's repository"),
    ):
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == code
        assert said in done.stdout + done.stderr
    assert not Path(".venv").exists()
    bare = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(["launch/local.sh"], env=bare, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no dfl-dist in PATH" in done.stderr
