"""What a user of the library has: user-supplied models and data, reached by import path."""

import dataclasses
import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from small_models import fragile, softmax
from torch import nn

import dfl_dist
from dfl_dist.data.datasets import Dataset
from dfl_dist.errors import ConfigError, PeerError, RunFaultError

Four = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def tiny() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 3))


def load() -> Four:
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(90, 6)), rng.integers(3, size=90)
    inputs[np.arange(90), targets] += 3
    return inputs[:60], targets[:60], inputs[60:], targets[60:]


def words() -> nn.Module:
    return nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(24, 2))


def sentences() -> Four:
    """Three words each; the first one tells the class."""
    inputs = np.random.default_rng(0).integers(20, size=(300, 3))
    targets = (inputs[:, 0] >= 10).astype(int)
    return inputs[:200], targets[:200], inputs[200:], targets[200:]


def numbered_anyhow() -> Four:
    return np.zeros((4, 6)), np.array([7, 10**9, 7, 7]), np.zeros((4, 6)), np.arange(4)


def mislabelled() -> Four:
    arrays = load()
    arrays[3][17] = 7
    return arrays


def double() -> nn.Module:
    """A model that is in double precision by itself."""
    return tiny().double()


def raises() -> Four:
    raise ValueError("no such table")


def raises_on_rank_1() -> Four:
    if os.environ["RANK"] == "1":
        raise ValueError("no such table")
    return load()


class Opaque:
    """What cannot become an array, and says too much about it."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise TypeError("a sample of Ann")


def no_arrays_on_rank_1() -> object:
    return [Opaque()] * 4 if os.environ["RANK"] == "1" else load()


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


def differs() -> Four:
    """`load`, with other numbers where a file named OTHER lies in the folder one is in."""
    inputs, *others = load()
    return inputs + Path("OTHER").exists(), *others


def with_names(**changes: object) -> Dataset:
    """`load` as a `Dataset`, with some of its fields changed."""
    return dataclasses.replace(Dataset(*load(), classes=("a", "b", "c")), **changes)


def named() -> Dataset:
    return with_names(train_targets=load()[1].astype(np.int32), train_inputs=load()[0][:, ::-1].astype(">f4"))


def too_few_names() -> Dataset:
    return with_names(classes=("a", "b"))


def too_few_targets() -> Dataset:
    return with_names(train_targets=load()[1][:50])


def no_test_set() -> Dataset:
    return with_names(test_inputs=np.zeros((0, 6)), test_targets=np.zeros(0, dtype=int))


def no_inputs() -> Dataset:
    return with_names(train_inputs=np.zeros(()))


def late() -> Four:
    time.sleep(6)
    return load()


def call_after_mistakes(arguments: list[str]) -> int:
    """A script that goes on after a refused call, and after one that fails on rank 0."""
    settings = {"rounds": 2, "num_clients": 3, "report": False, "timeout_s": 20}
    with pytest.raises(ConfigError, match=r"graph.out_degree: given 7"):
        dfl_dist.train({**settings, "graph.out_degree": 7}, model=dice)

    with pytest.raises(ZeroDivisionError if os.environ["RANK"] == "0" else PeerError):
        dfl_dist.train({**settings, "out": "stumbled"}, model=softmax, on_round=stumble)
    with pytest.raises(RunFaultError):
        dfl_dist.train({**settings, "out": "diverged", "rounds": 9}, model=fragile)
    result = dfl_dist.train({**settings, "out": "last"}, model=tiny, data=load)
    os.write(1, f"rank {os.environ['RANK']}: {result.rounds} rounds\n".encode())  # at once: other ranks write there too
    return 0


def stumble(metrics: dict[str, object]) -> None:
    raise ZeroDivisionError("a tracker that divides")


def call_and_stumble(arguments: list[str]) -> int:
    """A script that does not expect its own `on_round` to fail."""
    dfl_dist.train({"rounds": 5, "num_clients": 4, "report": False}, model=tiny, data=load, on_round=stumble)
    return 0


def call_with_other_functions(arguments: list[str]) -> int:
    model = tiny if os.environ["RANK"] == "0" else words
    with pytest.raises(ConfigError, match=r"model.name: given own_project:words on rank 1, allowed: own_project:tiny"):
        dfl_dist.train({"rounds": 1, "num_clients": 3, "report": False}, model=model, data=load)
    return 0


def load_with_a_worker() -> Four:
    """Arrays that a forked process has helped with; it is then ended as `multiprocessing` ends one."""
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True)
    worker.start()
    worker.terminate()
    worker.join(10)
    assert worker.exitcode == -signal.SIGTERM
    return load()


def call_and_look(arguments: list[str]) -> int:
    """A script that prints, on every rank, what it gets back."""
    result = dfl_dist.train(json.loads(arguments[0]), model=words, data=sentences)
    flat = torch.cat([parameter.flatten() for parameter in result.load_model().parameters()])
    os.write(1, f"look {json.dumps([result.history, flat.tolist()])}\n".encode())
    return 0


def call_twice(arguments: list[str]) -> int:
    """A script whose calls differ only in what their functions, of one name, do."""
    for width in (4, 8):
        dfl_dist.train(
            json.loads(arguments[0]),
            model=lambda width=width: nn.Sequential(nn.Linear(64, width), nn.Linear(width, 10)),
        )
    return 0


def call_with_an_instance(arguments: list[str]) -> int:
    """A module itself on the last rank, where the others have the function that makes it."""
    model = tiny if os.environ["RANK"] == "0" else tiny()
    with pytest.raises(ConfigError, match="model: given an instance of Sequential, allowed: a function"):
        dfl_dist.train({"rounds": 1, "num_clients": 3, "report": False}, model=model, data=load)
    return 0
