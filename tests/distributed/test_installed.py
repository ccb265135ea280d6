"""The package as pip installs it, away from its repository: everything that the README promises is there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which a wheel of the project was installed, without what the tests' environment has anyway."""
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    for name in filter(None, names.stdout.split("\0")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).symlink_to(ROOT / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheels = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)]
    subprocess.run(wheels, check=True, timeout=120)
    wheel = next(folder.glob("*.whl"))
    subprocess.run([*pip, "install", "--no-deps", "--target", str(folder / "lib"), str(wheel)], check=True, timeout=120)
    return folder / "lib"


def call(installed: Path, cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ) | {"PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


def test_configs_and_scripts_are_found_by_name(installed: Path, tmp_path: Path) -> None:
    done = call(installed, tmp_path, "dfl_dist", "sweep", "paper/mnist", "--dry-run")
    assert done.stdout.count("dfl-dist launch") == 99
    done = call(installed, tmp_path, "dfl_dist", "files", "launch/slurm", "configs")
    assert done.returncode == 0
    assert (tmp_path / "launch/slurm/train.sbatch").read_bytes() == (ROOT / "launch/slurm/train.sbatch").read_bytes()
    assert (tmp_path / "configs/paper/mnist.yaml").exists()


def test_type_checkers_see_its_annotations(installed: Path) -> None:
    assert (installed / "dfl_dist" / "py.typed").exists()


def test_it_trains_and_writes_its_page(installed: Path, tmp_path: Path) -> None:
    words = ("dfl_dist", "train", "-n", "2", "--config", "quickstart", "--rounds", "2", "--out", "run")
    done = call(installed, tmp_path, *words)
    assert "finished after round 2 of 2" in done.stdout, done.stderr
    assert (tmp_path / "run/report.html").exists()
    code = f"import dfl_dist; assert dfl_dist.__file__.startswith({str(installed)!r})"
    environment = dict(os.environ) | {"PYTHONPATH": str(installed)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, timeout=60).returncode == 0
