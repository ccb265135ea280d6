"""How the ranks come to the same start: rank 0 plans and refuses, then all build, and compare what they have."""

import dataclasses
import json
import zlib
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
import torch

from dfl_dist import checkpoint, run_folder, runtime, tensorboard
from dfl_dist.assemble import Built, build, load_clients, make_partition, shard_of
from dfl_dist.build import Own
from dfl_dist.clients import Clients
from dfl_dist.config import ConfigError, get, known, refusal
from dfl_dist.control import Control
from dfl_dist.data import partition
from dfl_dist.data.datasets import Dataset
from dfl_dist.data.shard import Shard
from dfl_dist.flat import FlatModel
from dfl_dist.job import Job, identity, make_schedule, open_folder, plan_job
from dfl_dist.metrics import read_lines
from dfl_dist.runtime import World
from dfl_dist.schedule import FILE, Schedule

T = TypeVar("T")


def lead(given: Mapping[str, object], world: World, own: Own) -> tuple[Job, Built]:
    """Rank 0, before any process group: settle the job, refuse what can be refused, open the run folder."""
    job = plan_job({**given, **own.names()}, world)
    if torch.cuda.device_count() == 0:
        runtime.choose_backend(job.resolved.backend, gpu_each=False)
    if job.resolved.tensorboard:
        tensorboard.check_installed()
    check_graphs(job, make_schedule(job.resolved))
    dataset, model = build(job, world, own)
    if job.checkpoint:
        check_data(job, dataset)
        manifest = checkpoint.read_manifest(job.checkpoint, identity(job, model.size))
        drained = "before_drain" in checkpoint.load_client(job.checkpoint, 0, manifest)
        job = dataclasses.replace(job, drained=drained)
    shards = make_partition(job.resolved, dataset)
    job = open_folder(job)
    path = known(job.folder) / "partition.npz"
    if not (job.checkpoint and path.exists()):
        partition.save(shards, path)
        counts = partition.counts(shards, dataset.train_targets, len(dataset.classes))
        run_folder.write_classes(known(job.folder), dataset.classes, counts)
    return job, (dataset, model)


def check_graphs(job: Job, schedule: Schedule) -> None:
    """Refuse to go on with a run whose file of graphs has changed."""
    if job.checkpoint and job.resolved.graph.kind == FILE:
        for line in read_lines(known(job.folder) / "topology.jsonl")[: job.rounds_done]:
            recorded = json.loads(json.dumps(schedule.graph(line["round"], None).record()))
            if any(line[key] != value for key, value in recorded.items()):
                allowed = f"the graphs that the run had; that of round {line['round']} is another"
                raise refusal("graph.file", job.resolved.graph.file, allowed)


def check_data(job: Job, dataset: Dataset) -> None:
    """Refuse to go on with a run whose data set is another by now, as far as the sizes of its classes tell."""
    recorded = run_folder.read_classes(known(job.folder))
    if recorded and [sum(column) for column in zip(*recorded, strict=True)] != class_sizes(dataset):
        allowed = "the data that the run had; now its classes have other sizes"
        raise refusal("data.name", job.resolved.data.name, allowed)


def class_sizes(dataset: Dataset) -> list[int]:
    sizes: list[int] = np.bincount(dataset.train_targets, minlength=len(dataset.classes)).tolist()
    return sizes


def together(control: Control, action: Callable[[], T], what: str = "get ready") -> T:
    """Do something on every rank; where one refuses, all do, with its words."""
    result, problem = None, None
    try:
        result = action()
    except ConfigError as error:
        problem = str(error)
    if found := control.agree(problem, what):
        raise ConfigError(found)
    return result  # type: ignore[return-value]


def in_turn(control: Control, world: World, action: Callable[[], T], what: str) -> T:
    """Do something on one rank of each host first, and on the others when what it left there can be shared."""
    first = world.local_rank == 0
    result = together(control, lambda: action() if first else None, what)
    return together(control, lambda: action() if result is None else result, what)


def load_alike(
    control: Control, world: World, job: Job, block: range, own: Own, built: Built | None
) -> tuple[FlatModel, Clients, Shard]:
    """The model, this rank's clients with their samples, and the test set."""
    together(control, lambda: check_own(job, own, world.rank), "compare what they were given")
    dataset, model = build_alike(control, world, job, own, built)
    clients = together(control, lambda: load_clients(job, block, dataset, model), "load their clients")
    return model, clients, shard_of(dataset, None, model)


def check_own(job: Job, own: Own, rank: int) -> None:
    """Refuse a script that gives other functions on this rank than on rank 0."""
    for key, name in own.names().items():
        if get(job.resolved, key) != name:
            raise refusal(key, f"{name} on rank {rank}", f"{get(job.resolved, key)}, as on rank 0")


def build_alike(control: Control, world: World, job: Job, own: Own, built: Built | None) -> Built:
    """The data set and the model on every rank: the same data, refused where it is not, and rank 0's parameters."""
    dataset, model = in_turn(control, world, lambda: built or build(job, world, own), "load the data")
    together(control, lambda: check_same(control, dataset, job.resolved.data.name), "compare their data")
    mark = zlib.crc32(model.params.cpu().numpy().tobytes())
    marks = torch.tensor([mark, -mark])
    highest, lowest = control.all_reduce(marks, "compare their models", largest=True)
    if highest != -lowest:  # another kind of CPU, or a model with dice of its own
        model.params.copy_(control.broadcast(model.params.cpu(), "its initial parameters"))
    return dataset, model


def check_same(control: Control, dataset: Dataset, name: str) -> None:
    """Refuse data that is not the same on all ranks, as a function of one's own may make it."""
    mark = 0
    for array in (dataset.train_targets, dataset.test_targets, dataset.train_inputs[-1:], dataset.test_inputs[-1:]):
        mark = zlib.crc32(np.ascontiguousarray(array).tobytes(), mark)
    marks = control.gather_text(str(mark), "compare their data")
    if others := [rank for rank, found in enumerate(marks) if found != marks[0]]:
        raise refusal("data.name", f"{name}, whose arrays on rank {others[0]} are not those on rank 0", "the same ones")
