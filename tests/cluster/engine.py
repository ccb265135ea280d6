"""A real Docker engine in a folder and a network namespace of its own, and a base image made on this machine."""

import contextlib
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("dockerd", "docker", "docker-compose", "debootstrap", "nsenter", "ip")
BASE = "dfl-base:test"
READY_WITHIN_S = 60.0


@dataclass(frozen=True)
class Engine:
    """How to talk to it."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "DOCKER_HOST": f"unix://{self.folder}/docker.sock", "DOCKER_BUILDKIT": "0"}

    def call(self, *command: str, timeout_s: float = 60.0, cwd: Path | None = None) -> str:
        done = subprocess.run(
            command, env=self.environment, cwd=cwd, text=True, capture_output=True, timeout=timeout_s, check=False
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def is_up(self) -> bool:
        done = subprocess.run(["docker", "version"], env=self.environment, capture_output=True, timeout=30, check=False)
        return done.returncode == 0

    def make_base(self) -> None:
        """Make the image that everything is built on: Debian and its Python, nothing pulled."""
        tree = self.folder / "base"
        packages = "--include=python3,python3-venv"
        self.call("debootstrap", "--variant=minbase", packages, "bookworm", str(tree), timeout_s=600)
        with subprocess.Popen(["tar", "-C", str(tree), "-c", "."], stdout=subprocess.PIPE) as packed:
            load = ["docker", "import", "-", BASE]
            subprocess.run(
                load, stdin=packed.stdout, env=self.environment, stdout=subprocess.DEVNULL, check=True, timeout=300
            )
        shutil.rmtree(tree)


@contextlib.contextmanager
def running_engine(folder: Path) -> Iterator[Engine]:
    """Start an engine whose networks are nobody else's; end it and remove all it had afterwards."""
    engine, space = Engine(folder), f"dfl-{secrets.token_hex(3)}"
    subprocess.run(["ip", "netns", "add", space], check=True, timeout=30)
    subprocess.run(["ip", "-n", space, "link", "set", "lo", "up"], check=True, timeout=30)
    places = [f"--data-root={folder}/root", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid"]
    command = ["nsenter", f"--net=/run/netns/{space}", "dockerd", *places, "--ip-forward=false"]
    with (folder / "dockerd.log").open("wb") as log:
        daemon = subprocess.Popen([*command, f"--host=unix://{folder}/docker.sock"], stdout=log, stderr=log)
    try:
        end = time.monotonic() + READY_WITHIN_S
        while not engine.is_up():
            gone = daemon.poll() is not None or time.monotonic() > end
            assert not gone, (folder / "dockerd.log").read_text()[-2000:]
            time.sleep(0.2)
        yield engine
    finally:
        daemon.terminate()
        try:
            daemon.wait(60)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait(20)
        subprocess.run(["ip", "netns", "delete", space], timeout=30, check=False)
        shutil.rmtree(folder, ignore_errors=True)
