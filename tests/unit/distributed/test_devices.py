"""Which device and which backend a rank gets."""

import pytest
import torch

from dfl_dist.distributed.devices import choose_backend, choose_device, has_gpu_alone
from dfl_dist.errors import ConfigError


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
    assert choose_device(wanted, gpus=gpus, index=index) == torch.device(device)


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
    found = [choose_device(wanted, gpus=gpus, index=index) for index in range(client_ranks)]
    assert [str(device) for device in found] == devices
    alone = [has_gpu_alone(device, client_ranks, gpus) for device in found]
    assert choose_backend("auto", gpu_each=all(alone)) == backend


def test_backend_follows_the_gpus() -> None:
    assert choose_backend("auto", gpu_each=True) == "nccl"
    assert choose_backend("auto", gpu_each=False) == "gloo"
    assert choose_backend("gloo", gpu_each=True) == "gloo"
    with pytest.raises(ConfigError, match="backend: given nccl, allowed: gloo or auto"):
        choose_backend("nccl", gpu_each=False)
    with pytest.raises(ConfigError, match="device: given cuda, allowed: cpu or auto"):
        choose_device("cuda", gpus=0, index=0)
