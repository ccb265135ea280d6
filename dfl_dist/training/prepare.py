"""What rank 0 does before any process group exists: plan the run, check it, build it, open its folder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from dfl_dist.config.schema import Data
from dfl_dist.data import partition
from dfl_dist.data.datasets import Dataset
from dfl_dist.distributed.devices import Claim, choose_backend
from dfl_dist.distributed.world import World, run_id
from dfl_dist.errors import refusal
from dfl_dist.run_folder import checkpoint, trackers
from dfl_dist.run_folder.fence import Fence
from dfl_dist.run_folder.files import read_lines
from dfl_dist.run_folder.folder import (
    check_can_be_claimed,
    choose,
    read_classes,
    read_environment,
    refused_where_unwritable,
    write_classes,
)
from dfl_dist.run_folder.job import Continuation, Job, Plan, open_folder, plan_job
from dfl_dist.run_folder.recorder import TOPOLOGY
from dfl_dist.training.build import Built, build, graph_schedule, make_partition
from dfl_dist.training.user_code import UserCode

PARTITION = "partition.npz"
BEGUN: set[Path] = set()  # the folders of this process's runs: one that is started again is another process


@dataclass(frozen=True)
class Prepared:
    """A run that can begin: nothing is written yet."""

    plan: Plan
    built: Built | None  # nothing for a run that this job has finished
    shards: partition.Partition | None = None  # who holds what, where that is not written down yet
    drained: bool = False


def prepare(given: Mapping[str, object], world: World, user: UserCode) -> Prepared:
    """Plan a run, refuse what can be refused, and build what it needs."""
    user.check()
    plan = plan_job({**given, **user.names()}, world.size if world.torchrun else None, run_id(), begun=BEGUN)
    if plan.finished:
        return Prepared(plan, None)
    check(plan)
    built = build(plan.resolved, world, user, resumes=plan.start is not None and plan.start.checkpoint is not None)
    drained = False
    if plan.start and plan.start.checkpoint:
        check_same_classes(plan.start, plan.resolved.data, built.dataset)
        check_same_data(plan.start, plan.resolved.data, built.dataset)
        manifest = checkpoint.read_manifest(plan.start.checkpoint, plan.identity(built.model.size))
        drained = checkpoint.load_client(plan.start.checkpoint, 0, manifest).before_drain is not None
    shards = None if has_partition(plan.start) else make_partition(plan.resolved, built.dataset)
    return Prepared(plan, built, shards, drained)


def prepare_run(given: Mapping[str, object], world: World, user: UserCode) -> tuple[Job, Built | None]:
    """The job, with its folder open, and what it is built from."""
    prepared = prepare(given, world, user)
    job = open_folder(prepared.plan, drained=prepared.drained)
    BEGUN.add(job.folder)
    if prepared.built and prepared.shards is not None:
        write_partition(job, prepared.shards, prepared.built.dataset)
    return job, prepared.built


def find_folder(plan: Plan) -> Path:
    """The folder that the run would have, refused where it could not; it is not made."""
    config = plan.resolved
    with refused_where_unwritable(config.out):
        folder, _ = choose(config.out, config.algorithm, config.data.name, plan.run_id)
        folder = plan.start.folder if plan.start else folder
        check_can_be_claimed(folder)
    return folder.resolve()


def check(plan: Plan) -> None:
    """Refuse what needs neither data nor model to be refused."""
    config = plan.resolved
    if torch.cuda.device_count() == 0 and config.rank0 == "client":  # a coordinator says nothing of the others
        choose_backend(config.backend, {0: Claim(host=0, gpu=0)})
    if plan.start is None or config.tracker != plan.start.resolved.tracker:  # else the run goes on without what fails
        trackers.check(config.tracker)
    schedule = graph_schedule(config)
    if config.graph.file is None or plan.start is None:
        return
    for line in read_lines(plan.start.folder / TOPOLOGY)[: plan.start.rounds_done]:
        recorded = json.loads(json.dumps(schedule.graph(line["round"], None).record()))
        if any(line[key] != value for key, value in recorded.items()):
            allowed = f"the graphs that the run had; that of round {line['round'] + 1} is another"
            raise refusal("graph.file", config.graph.file, allowed)


def check_same_classes(start: Continuation, data: Data, dataset: Dataset) -> None:
    """Refuse to go on with a run whose data set is another by now, as far as the sizes of its classes tell."""
    if not (recorded := read_classes(start.folder)):
        return
    targets = dataset.train_targets
    if data.partition == "file":  # samples may have been left out
        held = np.concatenate(partition.load(start.folder / PARTITION, range(len(recorded))))
        targets = targets[held[held < len(targets)]]
    sizes: list[int] = np.bincount(targets, minlength=len(dataset.classes)).tolist()
    if [sum(column) for column in zip(*recorded, strict=True)] != sizes:
        raise refusal("data.name", data.name, "the data that the run had; now its classes have other sizes")


def check_same_data(start: Continuation, data: Data, dataset: Dataset) -> None:
    """Refuse other samples than the run had, which would train on as if nothing had happened."""
    had = read_environment(start.folder).get("data_digest")
    if had not in (None, dataset.digest):  # none in the folder of an earlier version
        given = f"{data.name}, whose arrays have the digest {dataset.digest}"
        raise refusal("data.name", given, f"the data that the run had, with {had}")


def has_partition(start: Continuation | None) -> bool:
    """Whether a run that goes on has written down who holds what: that counts, whatever has become of data.file."""
    return start is not None and start.checkpoint is not None and (start.folder / PARTITION).exists()


def write_partition(job: Job, shards: partition.Partition, dataset: Dataset) -> None:
    """Write down who holds what."""
    Fence(job.folder, job.start_id).check()
    partition.save(shards, job.folder / PARTITION)
    counts = partition.counts(shards, dataset.train_targets, len(dataset.classes))
    write_classes(job.folder, dataset.classes, counts)
