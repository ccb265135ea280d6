"""Who this process is, on which device, over which backend, in which job."""

import os
import signal

import pytest
import torch

from dfl_dist import runtime
from dfl_dist.config import ConfigError
from dfl_dist.runtime import StopSignal, World


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [
        name for name in os.environ if name.startswith(("SLURM_", "TORCHELASTIC_", "RANK", "WORLD_", "LOCAL_"))
    ]:
        monkeypatch.delenv(name)
    return monkeypatch


def test_world_with_and_without_torchrun(env: pytest.MonkeyPatch) -> None:
    assert World.from_environment() == World(0, 1, 0, 1, torchrun=False)
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}.items():
        env.setenv(name, value)
    assert World.from_environment() == World(5, 8, 1, 4, torchrun=True)


def test_the_same_job_has_the_same_id(env: pytest.MonkeyPatch) -> None:
    assert runtime.run_id() is None, "a process of its own is a new job each time"
    env.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    agent = runtime.run_id()
    assert agent is not None
    assert f"-{os.getppid()}-" in agent
    env.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert runtime.run_id() == agent, "a restart by the same torchrun"
    env.setenv("TORCHELASTIC_RUN_ID", "none")
    assert runtime.run_id() == agent, "none is torchrun's word for no id"
    env.setenv("TORCHELASTIC_RUN_ID", "abc")
    assert runtime.run_id() == "torchrun-abc"
    env.setenv("SLURM_JOB_ID", "77")
    assert runtime.run_id() == "slurm-77"


@pytest.mark.parametrize(
    ("wanted", "gpus", "index", "device"),
    [
        ("auto", 0, 3, "cpu"),
        ("auto", 4, 3, "cuda:3"),
        ("cuda", 2, 3, "cuda:1"),
        ("cpu", 4, 3, "cpu"),
        ("auto", 4, -1, "cpu"),
    ],
)
def test_device_of_a_rank(wanted: str, gpus: int, index: int, device: str) -> None:
    assert runtime.choose_device(wanted, gpus=gpus, index=index) == torch.device(device)


@pytest.mark.parametrize(
    ("gpus", "client_ranks", "wanted", "devices", "backend"),
    [
        (0, 4, "auto", ["cpu"] * 4, "gloo"),
        (4, 4, "auto", ["cuda:0", "cuda:1", "cuda:2", "cuda:3"], "nccl"),
        (8, 2, "auto", ["cuda:0", "cuda:1"], "nccl"),
        (2, 4, "auto", ["cuda:0", "cuda:1", "cuda:0", "cuda:1"], "gloo"),
        (4, 4, "cpu", ["cpu"] * 4, "gloo"),
    ],
)
def test_devices_and_backend_of_a_host(
    gpus: int, client_ranks: int, wanted: str, devices: list[str], backend: str
) -> None:
    found = [runtime.choose_device(wanted, gpus=gpus, index=index) for index in range(client_ranks)]
    assert [str(device) for device in found] == devices
    alone = [runtime.has_gpu_alone(device, client_ranks, gpus) for device in found]
    assert runtime.choose_backend("auto", gpu_each=all(alone)) == backend


def test_backend_follows_the_gpus() -> None:
    assert runtime.choose_backend("auto", gpu_each=True) == "nccl"
    assert runtime.choose_backend("auto", gpu_each=False) == "gloo"
    assert runtime.choose_backend("gloo", gpu_each=True) == "gloo"
    with pytest.raises(ConfigError, match="backend: given nccl, allowed: gloo or auto"):
        runtime.choose_backend("nccl", gpu_each=False)
    with pytest.raises(ConfigError, match="device: given cuda, allowed: cpu or auto"):
        runtime.choose_device("cuda", gpus=0, index=0)


def test_a_second_press_much_later_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(runtime.time, "monotonic", lambda: now[0])
    stop = StopSignal()
    stop._remember(signal.SIGINT, None)
    assert stop.received == "SIGINT"
    now[0] += 0.1
    stop._remember(signal.SIGINT, None)  # the same press, passed on by torchrun
    stop._remember(signal.SIGTERM, None)
    now[0] += 5
    with pytest.raises(KeyboardInterrupt):
        stop._remember(signal.SIGINT, None)
    assert stop.received == "SIGINT"
