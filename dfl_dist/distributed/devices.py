"""Which device and which backend a rank gets, and how many threads."""

import os

import torch

from dfl_dist.errors import refusal


def choose_device(wanted: str, *, gpus: int, index: int) -> torch.device:
    """The device of a rank that is the `index`-th of its host's client ranks (-1: it hosts no client)."""
    if wanted == "cuda" and gpus == 0:
        raise refusal("device", "cuda", "cpu or auto: this host has no GPU that torch can use")
    if wanted == "cpu" or gpus == 0 or index < 0:
        return torch.device("cpu")
    return torch.device("cuda", index % gpus)


def has_gpu_alone(device: torch.device, client_ranks: int, gpus: int) -> bool:
    """Whether a rank shares its GPU with nobody, given how many ranks of its host have clients, and its GPUs."""
    return device.type == "cuda" and client_ranks <= gpus


def choose_backend(wanted: str, *, gpu_each: bool) -> str:
    """What carries the frames, given whether every client rank has a GPU to itself."""
    if wanted == "nccl" and not gpu_each:
        raise refusal("backend", "nccl", "gloo or auto: nccl needs a GPU for each rank that hosts clients")
    return "nccl" if gpu_each and wanted != "gloo" else "gloo"


def set_threads(threads: int | str, local_size: int) -> int:
    """Threads of this rank's CPU kernels; auto divides the host's cores."""
    count = max(1, len(os.sched_getaffinity(0)) // local_size) if threads == "auto" else int(threads)
    torch.set_num_threads(count)
    return count
