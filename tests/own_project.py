"""What a user of the library has: models and data of one's own, reached by import path."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

import dfl_dist
from dfl_dist.config import ConfigError

Four = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def tiny() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 3))


def load() -> Four:
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(90, 6)), rng.integers(3, size=90)
    inputs[np.arange(90), targets] += 3
    return inputs[:60].copy(), targets[:60], inputs[60:], targets[60:]


def words() -> nn.Module:
    return nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(24, 2))


def sentences() -> Four:
    """Three words each; the first one tells the class."""
    inputs = np.random.default_rng(0).integers(20, size=(300, 3))
    targets = (inputs[:, 0] >= 10).astype(int)
    return inputs[:200], targets[:200], inputs[200:], targets[200:]


def raises() -> Four:
    raise ValueError("no such table")


def three() -> tuple[np.ndarray, ...]:
    return load()[:3]


def unequal() -> Four:
    return np.zeros((4, 6)), np.arange(4), np.zeros((4, 3)), np.arange(4)


def scores() -> Four:
    return np.zeros((4, 6)), np.zeros(4), np.zeros((4, 6)), np.arange(4)


def tensors() -> list[torch.Tensor]:
    return [torch.zeros(4, 6), torch.tensor([0, 1, 0, 1]), torch.zeros(2, 6), torch.tensor([2, 0])]


def call(arguments: list[str]) -> int:
    dfl_dist.train(json.loads(arguments[0]), model=tiny, data=load)
    return 0


def call_within_a_group(arguments: list[str]) -> int:
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    with pytest.raises(ConfigError, match="a process group is there already"):
        dfl_dist.train({"rounds": 1, "num_clients": 2, "report": False})
    dist.destroy_process_group()
    return 0


def dice() -> nn.Module:
    """Parameters that no seed of torch's decides."""
    model = nn.Linear(64, 10)
    nn.init.constant_(model.bias, np.random.default_rng().random())
    return model


def other_data_everywhere() -> Four:
    inputs = np.random.default_rng().normal(size=(20, 6))
    return inputs, np.arange(20) % 3, inputs, np.arange(20) % 3


def grown() -> Four:
    """`load`, with a sample more where a file named MORE lies in the folder one is in."""
    inputs, targets, *test = load()
    more = Path("MORE").exists()
    return np.concatenate([inputs, inputs[:more]]), np.concatenate([targets, targets[:more]]), *test
