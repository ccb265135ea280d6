"""Who this process is, and in which job."""

import os
import sys

import pytest

from dfl_dist.distributed.world import World, run_id
from dfl_dist.errors import ConfigError


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    told = ("SLURM_", "TORCHELASTIC_", "RANK", "WORLD_", "LOCAL_", "GROUP_")
    for name in [name for name in os.environ if name.startswith(told)]:
        monkeypatch.delenv(name)
    return monkeypatch


def test_world_with_and_without_torchrun(env: pytest.MonkeyPatch) -> None:
    assert World.from_environment() == World(0, 1, 0, 1, torchrun=False)
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}.items():
        env.setenv(name, value)
    assert World.from_environment() == World(5, 8, 1, 4, torchrun=True)
    env.setenv("GROUP_RANK", "1")
    assert World.from_environment() == World(5, 8, 1, 4, torchrun=True, host=1)


def test_half_a_world_is_refused(env: pytest.MonkeyPatch) -> None:
    env.setenv("RANK", "5")
    with pytest.raises(ConfigError, match="WORLD_SIZE: given nothing though RANK is set"):
        World.from_environment()


def test_the_same_job_has_the_same_id(env: pytest.MonkeyPatch) -> None:
    assert run_id() is None, "a process of its own is a new job each time"
    env.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    agent = run_id()
    assert agent is not None
    assert f"-{os.getppid()}-" in agent
    env.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert run_id() == agent, "a restart by the same torchrun"
    env.setenv("TORCHELASTIC_RUN_ID", "none")
    assert run_id() == agent, "none is torchrun's word for no id"
    env.setenv("TORCHELASTIC_RUN_ID", "abc")
    assert run_id() == "torchrun-abc"
    env.setenv("SLURM_JOB_ID", "77")
    assert run_id() == "slurm-77"
    env.setattr(sys, "ps1", "In : ", raising=False)
    assert run_id() is None, "a person decides what is run again"
