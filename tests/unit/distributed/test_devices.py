"""Which device and which backend a rank gets."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from dfl_dist.distributed.devices import Claim, choose_backend, choose_device, gpu_number, prove
from dfl_dist.errors import ConfigError

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("wanted", "gpus", "index", "device"),
    [
        ("auto", 0, 3, "cpu"),
        ("auto", 4, 3, "cuda:3"),
        ("cuda", 2, 3, "cuda:1"),
        ("cpu", 4, 3, "cpu"),
        ("auto", 4, -1, "cpu"),
        ("cuda", 0, -1, "cpu"),
    ],
)
def test_device_of_a_rank(wanted: str, gpus: int, index: int, device: str) -> None:
    assert choose_device(wanted, gpus=gpus, index=index) == torch.device(device)


def test_without_a_gpu_none_is_given() -> None:
    with pytest.raises(ConfigError, match="device: given cuda, allowed: cpu or auto"):
        choose_device("cuda", gpus=0, index=0)


OLD_DRIVER = "The NVIDIA driver on your system is too old (found version 12020). Please update your GPU driver"
OLD_GPU = "CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might be"


@pytest.mark.parametrize(
    ("problem", "cure"),
    [
        (OLD_DRIVER, "a driver for CUDA 13.0, or a torch that is built for CUDA 12.2 or older (pip install torch"),
        (OLD_GPU, "a torch that is built for GPUs this old too, for CUDA 12.6 perhaps (pip install torch"),
        ("CUDA error: operation not permitted", "the permission to use it: a container needs --gpus"),
        ("CUDA error: unknown error", "what nvidia-smi and dfl-dist doctor say is in order"),
    ],
)
def test_a_gpu_counts_when_a_kernel_has_run_on_it(monkeypatch: pytest.MonkeyPatch, problem: str, cure: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(problem)

    monkeypatch.setattr(torch, "ones", fail)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(ConfigError) as error:
        prove(torch.device("cuda", 1))
    given = f"RuntimeError: {problem.partition(chr(10))[0]}"
    assert str(error.value).startswith(f"device: given cuda:1, on which nothing runs: {given}")
    assert f", allowed: cpu, or {cure}" in str(error.value)
    assert "\n" not in str(error.value)
    assert prove(CPU) == CPU


# Machines, described: for each rank that hosts clients its host and what it sees there; where its number is not among
# them, it takes them in turn. A letter is a GPU, or a slice of one.
MACHINES = {
    "no GPU": ([(0, "")] * 4, "gloo"),
    "one for each rank": ([(0, "abcd")] * 4, "nccl"),
    "more than ranks": ([(0, "abcdefgh")] * 2, "nccl"),
    "fewer than ranks": ([(0, "ab")] * 4, "gloo"),
    "one GPU, one rank": ([(0, "a")], "nccl"),
    "each rank sees its own": ([(0, "a"), (0, "b"), (0, "c")], "nccl"),
    "each rank sees the same": ([(0, "a"), (0, "a")], "gloo"),
    "two hosts": ([(0, "ab"), (0, "ab"), (1, "cd"), (1, "cd")], "nccl"),
    "two hosts of different size": ([(0, "abcd")] * 4 + [(1, "e")], "nccl"),
    "two hosts, one too small": ([(0, "abcd")] * 4 + [(1, "e")] * 2, "gloo"),
    "two hosts, one without": ([(0, "ab"), (0, "ab"), (1, "")], "gloo"),
    "containers with their own": ([(0, "a"), (1, "b")], "nccl"),
    "containers with the same": ([(0, "a"), (1, "a")], None),
    "containers that share one of two": ([(0, "ab"), (0, "ab"), (1, "b")], None),
}


def claims_of(ranks: list[tuple[int, str]]) -> dict[int, Claim]:
    """What the ranks tell, from the second rank on: the first is a coordinator."""
    claims, seen = {}, Counter[int]()
    for rank, (host, gpus) in enumerate(ranks, start=1):
        device = choose_device("auto", gpus=len(gpus), index=seen[host])
        claims[rank] = Claim(host, 0 if device.type == "cpu" else ord(gpus[device.index]))
        seen[host] += 1
    return claims


@pytest.mark.parametrize("name", MACHINES)
def test_backend_of_a_machine(name: str) -> None:
    ranks, backend = MACHINES[name]
    claims = claims_of(ranks)
    if backend is None:
        with pytest.raises(ConfigError, match=r"device: given one GPU for rank \d on host 0 and rank \d on host 1, "):
            choose_backend("auto", claims)
        return
    assert choose_backend("auto", claims) == backend
    assert choose_backend("gloo", claims) == "gloo"
    if backend == "gloo":
        with pytest.raises(ConfigError, match="backend: given nccl, allowed: gloo or auto"):
            choose_backend("nccl", claims)


def test_gpus_are_told_apart_by_what_only_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of one GPU have an index 0 each, as have GPUs of which every rank sees one."""
    uuids = {0: "a1b2c3d4-0000", 1: "a1b2c3d4-0001"}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=uuids[device.index]))
    cards = [gpu_number(torch.device("cuda", index)) for index in uuids]
    assert len({*cards, gpu_number(torch.device("cpu"))}) == 3
    assert all(0 < number < 2**62 for number in cards)
    assert gpu_number(torch.device("cpu")) == 0
