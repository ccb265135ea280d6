"""Clusters made for these tests on one machine: a SLURM, hosts in network namespaces, a Docker engine.

They need root and programs that are not Python's, so they run only where DFL_CLUSTER asks for them, as .ci/run does.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import engine
import hosts
import pytest
import slurm
from launching import HELPERS, ROOT
from needs import missing

ROOM_FOR_IMAGES_BYTES = 12e9


@pytest.fixture(scope="session")
def asked_for() -> None:
    """What every cluster needs; by this fixture a test has the mark `cluster`."""
    if os.environ.get("DFL_CLUSTER") != "1":
        pytest.skip("DFL_CLUSTER=1 is not set: it starts services of its own, as root")


def skip_for(reason: str | None) -> None:
    if reason:
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands and models of these tests, and no job of another SLURM around them."""
    for name in [name for name in os.environ if name.startswith(("SLURM", "TORCHELASTIC_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(HELPERS))


@pytest.fixture
def cluster(asked_for: None, tmp_path: Path) -> Iterator[slurm.Slurm]:
    skip_for(missing("a SLURM", slurm.PROGRAMS))
    with slurm.running_slurm(tmp_path / "slurm") as found:
        yield found


@pytest.fixture
def four_hosts(asked_for: None) -> Iterator[list[hosts.Host]]:
    skip_for(missing("a network", hosts.PROGRAMS) or hosts.none_to_be_had())
    with hosts.running_hosts(4) as found:
        yield found


@pytest.fixture
def docker(asked_for: None) -> Iterator[engine.Engine]:
    skip_for(missing("a Docker engine", engine.PROGRAMS))
    memory = Path("/dev/shm")  # Debian's installer waits for the disk after every file
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > ROOM_FOR_IMAGES_BYTES
    folder = Path(tempfile.mkdtemp(prefix="dfl-engine-", dir=memory if roomy else None))  # sockets want short names
    with engine.running_engine(folder) as found:
        yield found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder to start jobs from, with the launch scripts in it as they are shipped."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "launch").symlink_to(ROOT / "launch")
    return folder
