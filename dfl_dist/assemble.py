"""From a job to the objects that run it: model, data, clients, transport, rank 0's coordinator."""

import dataclasses
import json
import socket
from collections.abc import Callable
from typing import TypeVar
from zipfile import BadZipFile

import numpy as np
import torch
from torch import nn

from dfl_dist import checkpoint, run_folder, runtime
from dfl_dist.clients import Clients, LocalWork
from dfl_dist.config import Config, ConfigError, choose, known, lookup, one_line, refusal
from dfl_dist.control import Control
from dfl_dist.coordinator import Coordinator
from dfl_dist.data import partition
from dfl_dist.data.datasets import DATASETS, Dataset
from dfl_dist.exchange import Exchange, PushSum, ServerAverage
from dfl_dist.flat import FlatModel
from dfl_dist.job import Job, identity, make_schedule, open_folder, plan_job, write_settings
from dfl_dist.layout import Layout
from dfl_dist.local import LocalRule, Shard
from dfl_dist.metrics import read_lines
from dfl_dist.mixing import Ledger
from dfl_dist.models import MODELS
from dfl_dist.progress import tell_graph, tell_start
from dfl_dist.randomness import stream, torch_seed
from dfl_dist.rounds import Checkpoints
from dfl_dist.runtime import World
from dfl_dist.schedule import FILE, SERVER, Schedule, needs_losses
from dfl_dist.transport import BatchedTransport, GlooTransport, Transport

T = TypeVar("T")
Built = tuple[Dataset, FlatModel]


def together(control: Control, action: Callable[[], T]) -> T:
    """Do something on every rank; where one refuses, all do, with its words."""
    result, problem = None, None
    try:
        result = action()
    except ConfigError as error:
        problem = str(error)
    if found := control.agree(problem):
        raise ConfigError(found)
    return result  # type: ignore[return-value]


def lead(given: dict[str, object], world: World) -> tuple[Job, Built]:
    """Rank 0, before any process group: settle the job, refuse what can be refused, open the run folder."""
    job = plan_job(given, world)
    if torch.cuda.device_count() == 0:
        runtime.choose_backend(job.resolved.backend, gpu_each=False)
    check_graphs(job, make_schedule(job.resolved))
    dataset, model = build(job.resolved, world)
    shards = make_partition(job.resolved, dataset)
    if job.checkpoint:
        manifest = checkpoint.read_manifest(job.checkpoint, identity(job, model.size))
        drained = "before_drain" in checkpoint.load_client(job.checkpoint, 0, manifest)
        job = dataclasses.replace(job, drained=drained)
    opened = open_folder(job)
    path = known(opened.folder) / "partition.npz"
    if not (job.checkpoint and path.exists()):
        partition.save(shards, path)
    return opened, (dataset, model)


def check_graphs(job: Job, schedule: Schedule) -> None:
    """Refuse to go on with a run whose file of graphs has changed."""
    if job.checkpoint and job.resolved.graph.kind == FILE:
        for line in read_lines(known(job.folder) / "topology.jsonl")[: job.rounds_done]:
            recorded = json.loads(json.dumps(schedule.graph(line["round"], None).record()))
            if any(line[key] != value for key, value in recorded.items()):
                allowed = f"the graphs that the run had; that of round {line['round']} is another"
                raise refusal("graph.file", job.resolved.graph.file, allowed)


def make_partition(config: Config, dataset: Dataset) -> partition.Partition:
    """Each client's indices into the training set."""
    divide = choose("data.partition", config.data.partition, partition.PARTITIONS)
    try:
        return divide(
            dataset.train_targets, known(config.num_clients), stream(config.seed, "partition"), alpha=config.data.alpha
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def pick_device(config: Config, world: World) -> torch.device:
    """The GPU whose number is this rank's among its host's client ranks, or the CPU."""
    first_is_idle = config.rank0 == "coordinator" and world.rank == world.local_rank
    return runtime.choose_device(
        config.device, gpus=torch.cuda.device_count(), index=world.local_rank - int(first_is_idle)
    )


def build(config: Config, world: World) -> Built:
    """The data set, and the model with its initial parameters, the same on every rank."""
    runtime.set_threads(config.threads, world.local_size)
    if config.deterministic:
        torch.use_deterministic_algorithms(True)
    dataset = choose("data.name", config.data.name, DATASETS).load()
    torch.manual_seed(torch_seed(stream(config.seed, "init")))
    module = make_module(config.model.name, dataset)
    try:
        return dataset, FlatModel(module, device=pick_device(config, world), dtype=getattr(torch, config.dtype))
    except ValueError as error:
        raise ConfigError(str(error)) from error


def make_module(name: str, dataset: Dataset) -> nn.Module:
    """A model that fits the data: tried on one sample, so that a misfit is told before the run begins."""
    function = lookup("model.name", name, MODELS)
    sample, classes = torch.from_numpy(dataset.train_inputs[:1]), int(dataset.train_targets.max()) + 1
    try:
        module = function()
    except Exception as error:  # whatever the user's function does
        raise ConfigError(
            f"model.name: given {name}, which cannot be called without arguments: {one_line(error)}"
        ) from error
    if not isinstance(module, nn.Module):
        raise refusal(
            "model.name", f"{name}, which returns a {type(module).__name__}", "a function that returns a torch module"
        )
    try:
        with torch.no_grad():
            outputs = module.eval()(sample)
        module.train()
    except Exception as error:
        shape = f"inputs of shape {['batch', *sample.shape[1:]]}"
        raise ConfigError(f"model.name: given {name}, which does not take {shape}: {one_line(error)}") from error
    if outputs.ndim != 2 or outputs.shape[1] < classes:
        output = f"{name}, whose output for one sample is {list(outputs.shape)}"
        raise refusal("model.name", output, f"[1, {classes}], a score for each class")
    return module


def to_device(inputs: np.ndarray, targets: np.ndarray, model: FlatModel) -> Shard:
    """Arrays as tensors where the model trains, in its precision."""
    device, dtype = model.params.device, model.params.dtype
    return Shard(torch.from_numpy(inputs).to(device=device, dtype=dtype), torch.from_numpy(targets).to(device))


def load_clients(job: Job, block: range, dataset: Dataset, model: FlatModel) -> Clients:
    """The clients of this rank: their shards, and x and w from the start or from a checkpoint."""
    path = known(job.folder) / "partition.npz"
    try:
        indices = partition.load(path, block)
    except (OSError, KeyError, ValueError, BadZipFile) as error:
        raise ConfigError(f"resume: {path} is damaged: {one_line(error)}") from error
    shards = [to_device(dataset.train_inputs[index], dataset.train_targets[index], model) for index in indices]
    x = model.params.repeat(len(block), 1)
    clients = Clients(block, x, torch.ones(len(block), dtype=torch.float64), shards)
    if job.checkpoint:
        manifest = checkpoint.read_manifest(job.checkpoint, identity(job, model.size))
        for row, client in enumerate(block):
            state = checkpoint.load_client(job.checkpoint, client, manifest)
            if job.rounds_done < job.resolved.rounds:
                state |= state.get("before_drain", {})
            clients.x[row].copy_(state["x"])
            clients.w[row] = state["w"]
            clients.losses[row] = state["train_loss"]
            clients.arriving.append(state["in_flight"])
    return clients


def local_work(config: Config) -> LocalWork:
    """What a client does in a round."""
    local = config.local
    rule = LocalRule(
        rho=known(local.rho),
        momentum=known(local.momentum),
        step=known(local.step),
        gradient_at=known(local.gradient_at),
        weight_decay=local.weight_decay,
        clip_norm=local.clip_norm,
    )
    return LocalWork(rule, local.lr, local.lr_decay, local.batch_size, local.epochs, local.steps, config.seed)


def checkpoints(job: Job, parameters: int, layout: Layout) -> Checkpoints:
    """When and where the clients' states are written."""
    settings = job.resolved.checkpoint
    return Checkpoints(
        known(job.folder), settings.every, settings.keep, identity(job, parameters), layout.largest_block
    )


def choose_backend(config: Config, world: World, layout: Layout, control: Control, model: FlatModel) -> str:
    """What carries the frames: the same on all ranks, so it takes all of them to know."""
    hosted_here = sum(
        bool(layout.blocks[rank])
        for rank in range(world.rank - world.local_rank, world.rank - world.local_rank + world.local_size)
    )
    lacking = bool(layout.blocks[world.rank]) and (
        model.params.device.type != "cuda" or hosted_here > torch.cuda.device_count()
    )
    everywhere = control.all_reduce(torch.tensor([int(lacking)]), "tell their devices")
    return runtime.choose_backend(config.backend, gpu_each=int(everywhere) == 0)


def open_transport(config: Config, layout: Layout, backend: str, model: FlatModel) -> Transport:
    """The data group and what sends frames over it; a rank that hosts no client has none to send."""
    group = runtime.data_group(
        layout.client_ranks, backend=backend, timeout_s=config.timeout_s, device=model.params.device
    )
    if backend == "nccl":
        return BatchedTransport(
            group, timeout_s=config.timeout_s, size=model.size, dtype=model.params.dtype, device=model.params.device
        )
    return GlooTransport(
        group,
        timeout_s=config.timeout_s,
        window=config.window,
        size=model.size,
        dtype=model.params.dtype,
        device=model.params.device,
    )


def make_exchange(job: Job, layout: Layout, control: Control, clients: Clients, transport: Transport) -> Exchange:
    """How the clients learn from one another."""
    config = job.resolved
    if config.graph.kind == SERVER:
        sizes = gather_scalars(control, layout, clients.block, [len(shard) for shard in clients.shards], "shard sizes")
        return ServerAverage(clients, control, [int(size) for size in sizes], server_lr=config.server_lr)
    return PushSum(
        clients,
        transport,
        layout,
        control.rank,
        overlap=config.overlap,
        gossip_steps=config.graph.gossip_steps,
        rounds_done=job.rounds_done,
    )


def make_coordinator(
    job: Job,
    layout: Layout,
    control: Control,
    clients: Clients,
    exchange: Exchange,
    work: LocalWork,
    backend: str,
    schedule: Schedule | None,
) -> Coordinator | None:
    """Rank 0's extra part, with the run's files open; all ranks call it, for what rank 0 must know of them."""
    config, folder = job.resolved, known(job.folder)
    weights = gather_scalars(control, layout, clients.block, clients.w.tolist(), "push weights")
    losses = gather_scalars(control, layout, clients.block, [loss or 0.0 for loss in clients.losses], "losses")
    in_flight = control.all_reduce(exchange.weights_arriving(), "tell what is in flight to them").tolist()
    waits = needs_losses(known(config.graph.kind), static=config.graph.static)
    control.prepare(layout.num_clients, ahead=0 if waits else config.overlap)
    ranks = control.gather_text(f"{socket.gethostname()} {clients.x.device} {torch.get_num_threads()}")
    if schedule is None:
        return None
    hosts, devices, threads = zip(*(line.split() for line in ranks), strict=True)
    facts = {
        "run": job.token,
        "start": job.start_id,
        "run_id": runtime.run_id(),
        "world_size": control.world_size,
        "hosts": hosts,
        "backend": backend,
        "devices": devices,
    }
    run_folder.write_environment(
        folder, facts | {"threads": [int(count) for count in threads], "resumed_after": job.rounds_done}
    )
    run_folder.cut_back(folder, job.rounds_done, job.scores_to_drop, weights)
    checkpoint.drop_after(folder, job.rounds_done)
    write_settings(job, backend=backend, device=devices[-1].split(":")[0], threads=int(threads[-1]))
    tell_start(job, control.world_size, backend, devices[-1], clients.x.shape[1])
    tell_graph(config, schedule)
    return Coordinator(
        control,
        schedule,
        layout,
        folder,
        rounds=config.rounds,
        rounds_done=job.rounds_done,
        lr_of=work.lr_of,
        ledger=Ledger(weights, in_flight, overlap=config.overlap, gossip_steps=config.graph.gossip_steps),
        losses=losses if job.rounds_done else None,
    )


def gather_scalars(control: Control, layout: Layout, block: range, own: list[float], what: str) -> list[float]:
    """A number of every client, for every rank."""
    numbers = torch.zeros(layout.num_clients, dtype=torch.float64)
    numbers[block.start : block.stop] = torch.tensor(own, dtype=torch.float64)
    return control.all_reduce(numbers, f"tell their {what}").tolist()
