"""Which device and which backend a rank gets, and how many threads."""

import os
import re
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import torch

from dfl_dist.errors import one_line, refusal

MOST_SHOWN = 160  # of what torch says; the rest is advice
OLDER_CUDA = "12.6"  # torch's builds for it run on older GPUs and drivers than those of the registry
WHERE = "pip install torch --index-url, with the address that pytorch.org gives for it"


def choose_device(wanted: str, *, gpus: int, index: int) -> torch.device:
    """The device of a rank that is the `index`-th of its host's client ranks (-1: it hosts no client)."""
    if wanted == "cpu" or index < 0:
        return torch.device("cpu")
    if gpus == 0:
        if wanted == "cuda":
            raise refusal("device", "cuda", "cpu or auto: this host has no GPU that torch can use")
        return torch.device("cpu")
    return torch.device("cuda", index % gpus)


def prove(device: torch.device) -> torch.device:
    """Refuse a GPU on which no kernel runs, with what to do: that the driver counts it says little."""
    if device.type == "cuda":
        try:
            torch.ones(1, device=device).add_(1).cpu()
        except RuntimeError as error:
            given = f"{device}, on which nothing runs: {one_line(error)[:MOST_SHOWN]}"
            raise refusal("device", given, f"cpu, or {cure_of(str(error), torch.version.cuda)}") from error
    return device


def cure_of(problem: str, cuda: str | None) -> str:
    """What makes a GPU usable of which torch, built for this CUDA, says this."""
    if found := re.search(r"driver .*too old \(found version (\d+?)0(\d)0\)", problem):
        driver = ".".join(found.groups())
        return f"a driver for CUDA {cuda}, or a torch that is built for CUDA {driver} or older ({WHERE})"
    if "no kernel image" in problem:
        return f"a torch that is built for GPUs this old too, for CUDA {OLDER_CUDA} perhaps ({WHERE})"
    if "ermitted" in problem or "ermission" in problem:
        return "the permission to use it: a container needs --gpus, a job its scheduler's option for GPUs"
    return "what nvidia-smi and dfl-dist doctor say is in order"


class Claim(NamedTuple):
    """What a rank that hosts clients trains on: the number of its host, and what tells its GPU from all others."""

    host: int
    gpu: int  # 0: the CPU


def gpu_number(device: torch.device) -> int:
    """A number that one GPU in the world has, or one slice of it, by whatever index this process knows it; 0: none."""
    if device.type != "cuda":
        return 0
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    return 1 + zlib.crc32(uuid.encode()) + (zlib.crc32(uuid[::-1].encode()) << 24)


def choose_backend(wanted: str, claims: Mapping[int, Claim]) -> str:
    """What carries the frames, given what each rank that hosts clients trains on."""
    owners: dict[int, int] = {}
    for rank, (host, gpu) in claims.items():
        owner = owners.setdefault(gpu, rank)
        if gpu and claims[owner].host != host:
            given = f"one GPU for rank {owner} on host {claims[owner].host} and rank {rank} on host {host}"
            raise refusal("device", given, "each GPU on one host, or in one container, only")
    alone = 0 not in owners and len(owners) == len(claims)
    if wanted == "nccl" and not alone:
        raise refusal("backend", "nccl", "gloo or auto: nccl needs a GPU for each rank that hosts clients")
    return "nccl" if alone and wanted != "gloo" else "gloo"


def set_threads(threads: int | str, local_size: int) -> int:
    """Threads of this rank's CPU kernels; auto divides the host's cores."""
    count = max(1, len(os.sched_getaffinity(0)) // local_size) if threads == "auto" else int(threads)
    torch.set_num_threads(count)
    return count
