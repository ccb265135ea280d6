"""The image and the compose file, run for real by a Docker engine; the base image is made here."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from engine import BASE, Engine
from launching import ROOT, assert_same_run, lines, train

COMPOSE = ("docker-compose", "-f", "docker/compose.yaml")
UP = (*COMPOSE, "up", "--build", "--abort-on-container-exit", "--exit-code-from", "host0")
CALLER = 1234  # neither root nor the image's own user


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """A checkout with the wheels that a build without a network needs, owned by the caller."""
    folder = tmp_path / "checkout"
    left_out = shutil.ignore_patterns("__pycache__", "wheels")
    for name in ("dfl_dist", "configs", "launch", "docker"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=left_out)
    for name in ("setup.cfg", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", ".dockerignore"):
        shutil.copy(ROOT / name, folder / name)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    wheels = ["--dest", str(folder / "docker" / "wheels"), "-c", str(folder / "constraints.txt")]
    subprocess.run([*pip, *wheels, str(folder), "setuptools>=77"], check=True, timeout=300, stderr=subprocess.DEVNULL)
    (folder / "runs").mkdir()
    os.chown(folder / "runs", CALLER, CALLER)
    return folder


@pytest.mark.timeout(900)
def test_compose_runs_the_quickstart_on_four_hosts(docker: Engine, context: Path, tmp_path: Path) -> None:
    docker.make_base()
    given = {"DFL_BASE": BASE, "DFL_PIP_ARGS": "--no-index", "DFL_USER": f"{CALLER}:{CALLER}"}

    def compose(*words: str, arguments: str = "") -> "subprocess.CompletedProcess[str]":
        env = docker.environment | given | {"DFL_ARGUMENTS": arguments}
        return subprocess.run(words, cwd=context, env=env, text=True, capture_output=True, timeout=500, check=False)

    try:
        done = compose(*UP)
        assert done.returncode == 0, done.stdout.partition("Attaching to")[2][:6000] + done.stderr[-2000:]
        folder = context / "runs" / "dfedsgpsm-digits-001"
        assert "finished after round 30 of 30" in done.stdout
        owners = {(path.stat().st_uid, path.stat().st_gid) for path in (context / "runs").rglob("*")}
        assert owners == {(CALLER, CALLER)}
        assert lines(folder / "metrics.jsonl")[-1]["test_accuracy"] > 0.9
        again = [word for word in UP if word != "--build"]
        refused = compose(*again, arguments="--model.name resnet")
        assert refused.returncode == 2, refused.stdout[-3000:]
        assert "model.name: given resnet, allowed: digits_mlp" in refused.stdout
        user = docker.call("docker", "run", "--rm", "--entrypoint", "id", "dfl_dist", "-u")
        assert user.strip() == "1000", "the image's own user is not root"
        both = ("-f", "docker/compose.yaml", "-f", "docker/compose.gpu.yaml")
        assert "nvidia" in compose("docker-compose", *both, "config").stdout
    finally:
        compose(*COMPOSE, "down", "--timeout", "5")
    assert_same_run(train(None, tmp_path / "alone", "--num_clients", "8"), folder, 30)
