"""From settings to the things a run is made of: data, model, partition, graphs, local work."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dfl_dist.algorithms.local_steps import LocalRule
from dfl_dist.algorithms.rate import Rate
from dfl_dist.config.names import choose, lookup
from dfl_dist.config.schema import Config, Data
from dfl_dist.data import partition
from dfl_dist.data.datasets import DATASETS, Dataset
from dfl_dist.data.shard import Shard, make_shard
from dfl_dist.data.supplied import call_data, find_highest
from dfl_dist.distributed.devices import choose_device, prove, set_threads
from dfl_dist.distributed.world import World
from dfl_dist.errors import ConfigError, refusal, refused_as
from dfl_dist.models.flat import FlatModel
from dfl_dist.models.supplied import call_model, check_fit, load_parameters
from dfl_dist.models.zoo import MODELS
from dfl_dist.randomness import stream, torch_seed
from dfl_dist.topology.graph import Graph
from dfl_dist.topology.graph_file import read_graphs
from dfl_dist.topology.kinds import KINDS, Options
from dfl_dist.topology.schedule import Schedule, make_schedule
from dfl_dist.training.clients import LocalWork
from dfl_dist.training.user_code import UserCode


@dataclass(frozen=True)
class Built:
    """The data set, and the model with its initial parameters."""

    dataset: Dataset
    model: FlatModel


def build(config: Config, world: World, user: UserCode, *, resumes: bool) -> Built:
    """The data set and the model, the same on every rank; a run that resumes needs no parameters to start from."""
    device = prove(pick_device(config, world))
    set_threads(config.threads, world.local_size)
    if config.deterministic:
        torch.use_deterministic_algorithms(True)
    dataset = load_dataset(config.data, user.data)
    torch.manual_seed(torch_seed(stream(config.seed, "init")))
    dtype: torch.dtype = getattr(torch, config.dtype)
    classes = len(dataset.classes)
    module = make_module(config.model.name, classes, user.model).to(dtype)
    first = make_shard(dataset.train_inputs[:1], dataset.train_targets[:1], dataset.pixels, torch.zeros(0, dtype=dtype))
    with refused_as(model="model.name", file="model.init"):
        check_fit(module, config.model.name, first.take(slice(1))[0], classes, tell_highest(dataset))
        if config.model.init is not None and not resumes:
            load_parameters(module, config.model.init)
        return Built(dataset, FlatModel(module, device=device, dtype=dtype))


def tell_highest(dataset: Dataset) -> str:
    """Which label there are so many classes for; nothing where no label is that high."""
    highest, place = find_highest(dataset.train_targets, dataset.test_targets)
    return f"{place} is {highest}" if highest + 1 == len(dataset.classes) else ""


def make_module(name: str, classes: int, supplied: Callable[[], nn.Module] | None = None) -> nn.Module:
    """The model that the settings name, or what a user-supplied function returns."""
    if supplied is None and name in MODELS:
        return MODELS[name](classes)
    with refused_as(model="model.name"):
        return call_model(name, supplied or lookup("model.name", name, MODELS))


def pick_device(config: Config, world: World) -> torch.device:
    """The GPU whose number is this rank's among its host's client ranks, or the CPU."""
    first_is_idle = config.rank0 == "coordinator" and world.rank == world.local_rank
    return choose_device(config.device, gpus=torch.cuda.device_count(), index=world.local_rank - int(first_is_idle))


def load_dataset(data: Data, supplied: Callable[[], Any] | None = None) -> Dataset:
    """The data set that the settings name, or what a user-supplied function returns."""
    if supplied is None and data.name in DATASETS:
        dataset = load_built_in(data)
    else:
        dataset = call_data(data.name, supplied or lookup("data.name", data.name, DATASETS))
        if data.augment and dataset.train_inputs.ndim != 4:
            shape = ["samples", *dataset.train_inputs.shape[1:]]
            raise refusal(
                "data.augment", f"true for inputs {shape}", "false, or images [samples, channels, rows, columns]"
            )
    if data.limit > len(dataset.train_targets):
        raise refusal("data.limit", data.limit, f"0 to {len(dataset.train_targets)}, the number of training samples")
    rows = slice(data.limit or None)
    return dataclasses.replace(
        dataset, train_inputs=dataset.train_inputs[rows], train_targets=dataset.train_targets[rows]
    )


def load_built_in(data: Data) -> Dataset:
    source = DATASETS[data.name]
    if data.augment and not source.augment:
        sets = ", ".join(name for name, other in DATASETS.items() if other.augment)
        raise refusal("data.augment", "true", f"false, with data.name {data.name} (true: {sets}, your own images)")
    try:
        return source.load(Path(data.root).expanduser(), data.download)
    except OSError as error:
        raise ConfigError(f"data.root: given {data.root}, which cannot be read: {error}") from error


def make_partition(config: Config, dataset: Dataset) -> partition.Partition:
    """Each client's indices into the training set."""
    if config.data.file is not None:
        return partition.read(Path(config.data.file).expanduser(), config.num_clients, len(dataset.train_targets))
    divide = choose("data.partition", config.data.partition, partition.PARTITIONS)
    return divide(
        dataset.train_targets,
        config.num_clients,
        stream(config.seed, "partition"),
        alpha=config.data.alpha,
        classes_per_client=config.data.classes_per_client,
    )


def training_shard(dataset: Dataset, rows: np.ndarray, model: FlatModel) -> Shard:
    """Some training samples where the model trains."""
    return make_shard(dataset.train_inputs[rows], dataset.train_targets[rows], dataset.pixels, model.params)


def evaluation_shard(dataset: Dataset, model: FlatModel) -> Shard:
    """The test set where the model trains."""
    return make_shard(dataset.test_inputs, dataset.test_targets, dataset.pixels, model.params)


def local_work(config: Config) -> LocalWork:
    """What a client does in a round."""
    local = config.local
    rule = LocalRule(
        rho=local.rho,
        momentum=local.momentum,
        step=local.step,
        gradient_at=local.gradient_at,
        weight_decay=local.weight_decay,
        clip_norm=local.clip_norm,
    )
    rate = Rate(local.lr, local.schedule, local.lr_decay, local.warmup_rounds, config.rounds)
    return LocalWork(rule, rate, local.batch_size, local.epochs, local.steps, config.data.augment, config.seed)


def graph_schedule(config: Config) -> Schedule:
    """The graphs of this run."""
    graph, graphs = config.graph, list[Graph]()
    with refused_as(file="graph.file", weights="graph.weights"):
        if graph.file is not None:
            graphs = read_graphs(Path(graph.file), config.num_clients, graph.weights)
        return make_schedule(
            KINDS[graph.kind],
            config.num_clients,
            lambda round_idx: stream(config.seed, "graph", round_idx=round_idx),
            options=Options(
                out_degree=graph.out_degree, p=graph.p or 0.0, graphs=graphs, participation=config.participation
            ),
            weights=graph.weights,
            static=graph.static,
        )
