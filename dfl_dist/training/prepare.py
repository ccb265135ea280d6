"""What rank 0 does before any process group exists: plan the run, check it, build it, open its folder."""

import json
from collections.abc import Mapping

import numpy as np
import torch

from dfl_dist.data import partition
from dfl_dist.data.datasets import Dataset
from dfl_dist.distributed.devices import choose_backend
from dfl_dist.distributed.world import World, run_id
from dfl_dist.errors import refusal
from dfl_dist.run_folder import checkpoint, trackers
from dfl_dist.run_folder.fence import Fence
from dfl_dist.run_folder.files import read_lines
from dfl_dist.run_folder.folder import read_classes, write_classes
from dfl_dist.run_folder.job import Continuation, Job, Plan, open_folder, plan_job
from dfl_dist.run_folder.recorder import TOPOLOGY
from dfl_dist.training.build import Built, UserCode, build, graph_schedule, make_partition


def prepare_run(given: Mapping[str, object], world: World, user: UserCode) -> tuple[Job, Built | None]:
    """The job, with its folder open, and what it is built from: nothing for a run that this job has finished."""
    plan = plan_job({**given, **user.names()}, world.size if world.torchrun else None, run_id())
    if plan.finished:
        return open_folder(plan, drained=False), None
    check(plan)
    built = build(plan.resolved, world, user, resumes=plan.start is not None and plan.start.checkpoint is not None)
    drained = False
    if plan.start and plan.start.checkpoint:
        check_same_classes(plan.start, plan.resolved.data.name, built.dataset)
        manifest = checkpoint.read_manifest(plan.start.checkpoint, plan.identity(built.model.size))
        drained = checkpoint.load_client(plan.start.checkpoint, 0, manifest).before_drain is not None
    shards = make_partition(plan.resolved, built.dataset)
    job = open_folder(plan, drained=drained)
    write_partition(job, shards, built.dataset)
    return job, built


def check(plan: Plan) -> None:
    """Refuse what needs neither data nor model to be refused."""
    config = plan.resolved
    if torch.cuda.device_count() == 0:
        choose_backend(config.backend, gpu_each=False)
    if config.tensorboard:
        trackers.check_installed()
    schedule = graph_schedule(config)
    if config.graph.file is None or plan.start is None:
        return
    for line in read_lines(plan.start.folder / TOPOLOGY)[: plan.start.rounds_done]:
        recorded = json.loads(json.dumps(schedule.graph(line["round"], None).record()))
        if any(line[key] != value for key, value in recorded.items()):
            allowed = f"the graphs that the run had; that of round {line['round'] + 1} is another"
            raise refusal("graph.file", config.graph.file, allowed)


def check_same_classes(start: Continuation, name: str, dataset: Dataset) -> None:
    """Refuse to go on with a run whose data set is another by now, as far as the sizes of its classes tell."""
    recorded = read_classes(start.folder)
    sizes: list[int] = np.bincount(dataset.train_targets, minlength=len(dataset.classes)).tolist()
    if recorded and [sum(column) for column in zip(*recorded, strict=True)] != sizes:
        raise refusal("data.name", name, "the data that the run had; now its classes have other sizes")


def write_partition(job: Job, shards: partition.Partition, dataset: Dataset) -> None:
    """Write down who holds what, unless the run that goes on has it."""
    path = job.folder / "partition.npz"
    if not (job.checkpoint and path.exists()):
        Fence(job.folder, job.start_id).check()
        partition.save(shards, path)
        counts = partition.counts(shards, dataset.train_targets, len(dataset.classes))
        write_classes(job.folder, dataset.classes, counts)
