"""What people call methods, data sets and settings: "SAM radius 0.2" for local.rho, "IID" for a partition."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dfl_dist.config.schema import Data
from dfl_dist.config.values import format_value
from dfl_dist.report.read import Run

METHODS = {
    "dfedsgpsm": "DFedSGPSM",
    "dfedsgpsm-s": "DFedSGPSM-S",
    "dfedsgpm": "DFedSGPM",
    "osgp": "OSGP",
    "sgp": "SGP",
    "asyng": "AsyNG",
    "dfedsam": "DFedSAM",
    "dfedavgm": "DFedAvgM",
    "dfedavg": "DFedAvg",
    "d-psgd": "D-PSGD",
    "fedavg": "FedAvg",
}
DATA_SETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
# {} is the value; where a single value has words of its own, they stand beside it.
SETTINGS_IN_WORDS = {
    "rounds": "{} rounds",
    "num_clients": "{} clients",
    "server_lr": "server step {}",
    "rank0": "rank 0 {}",
    "data.limit": "{} training samples",
    "local.epochs": "{} local epochs",
    "local.steps": "{} local steps",
    "local.batch_size": "batch size {}",
    "local.lr": "learning rate {}",
    "local.lr_decay": "decay {}",
    "local.schedule": "{} schedule",
    "local.warmup_rounds": "{} warm-up rounds",
    "local.rho": "SAM radius {}",
    "local.step": "step {}",
    "local.gradient_at": "gradient at each {}",
    "local.clip_norm": "clipping at {}",
    "graph.kind": "{} graph",
    "graph.out_degree": "out-degree {}",
    "graph.p": "edge probability {}",
    "graph.weights": "{} weights",
    "graph.file": "graphs of {}",
    "model.name": "{}",
    "model.init": "from {}",
    "stop.target": "stop at {}",
}
VALUES_IN_WORDS: Mapping[str, Mapping[Any, str]] = {
    "rounds": {1: "1 round"},
    "num_clients": {1: "1 client"},
    "local.epochs": {1: "1 local epoch"},
    "local.steps": {1: "1 local step"},
    "data.augment": {True: "augmented", False: "not augmented"},
    "data.limit": {0: "all training samples", 1: "1 training sample"},
    "local.batch_size": {0: "whole shard"},
    "local.clip_norm": {0: "no clipping"},
    "local.rho": {0: "no SAM"},
    "local.momentum": {0: "no momentum"},
    "local.weight_decay": {0: "no weight decay"},
    "local.warmup_rounds": {0: "no warm-up", 1: "1 warm-up round"},
    "graph.static": {True: "static graph", False: "changing graph"},
    "graph.gossip_steps": {1: "1 gossip step"},
    "graph.kind": {"server": "server"},
    "overlap": {0: "no overlap"},
    "model.init": {None: "from scratch"},
    "stop.target": {None: "no target"},
    "stop.patience": {None: "no patience"},
}
SHARES = ("participation", "stop.target")  # told in percent


def tell_setting(key: str, value: Any) -> str:
    """A setting and its value as a person says them."""
    if value in VALUES_IN_WORDS.get(key, {}):
        return VALUES_IN_WORDS[key][value]
    words = SETTINGS_IN_WORDS.get(key, key.split(".")[-1].replace("_", " ") + " {}")
    if key in SHARES:
        return words.format(f"{tell_number(100 * value)} %")
    if key in ("model.init", "graph.file"):
        return words.format(Path(value).name)
    if isinstance(value, str):
        return words.format(value.replace("_", " ") if key == "graph.kind" else value)
    return words.format(tell_number(value))


def tell_number(value: Any) -> str:
    """A number without a tail that says nothing; anything else as it stands in YAML."""
    short = f"{value:.12g}" if isinstance(value, float) else ""
    return short if short and float(short) == value else format_value(value)


def method_name(run: Run) -> str:
    """The method as papers write it."""
    return METHODS.get(run.config.algorithm, run.config.algorithm)


def data_set_name(run: Run) -> str:
    """The data set as papers write it."""
    return DATA_SETS.get(run.config.data.name, run.config.data.name)


def partition_of(data: Data) -> tuple[str, float]:
    """A partition's name in a table, and its number."""
    if data.partition == "dirichlet":
        return f"Dir-{data.alpha:g}", data.alpha
    if data.partition == "shards":
        return f"Shards-{data.classes_per_client}", data.classes_per_client
    if data.file is not None:  # with its folder: those that runs leave are all called the same
        path = Path(data.file)
        return "/".join(filter(None, (path.parent.name, path.stem))), 0
    return data.partition.upper(), 0


def partition_in_words(data: Data) -> str:
    """A partition where there is room for a word."""
    ways = {
        "dirichlet": f"Dirichlet {tell_number(data.alpha)}",
        "shards": f"shards of {data.classes_per_client} classes",
    }
    return ways.get(data.partition, partition_of(data)[0])
