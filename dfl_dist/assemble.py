"""From a job to the objects that run it: model, data, clients, transport, rank 0's coordinator."""

import socket
from collections.abc import Callable
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch

from dfl_dist import checkpoint, run_folder, runtime, tensorboard
from dfl_dist.build import Own, check_fit, load_dataset, make_module, start_from
from dfl_dist.clients import Clients, LocalWork
from dfl_dist.config import Config, ConfigError, choose, known, one_line
from dfl_dist.control import Control
from dfl_dist.coordinator import Coordinator
from dfl_dist.data import partition
from dfl_dist.data.datasets import Dataset
from dfl_dist.data.shard import Shard, make_shard
from dfl_dist.exchange import Exchange, PushSum, ServerAverage
from dfl_dist.flat import FlatModel
from dfl_dist.job import Job, identity, write_settings
from dfl_dist.layout import Layout
from dfl_dist.local import LocalRule
from dfl_dist.mixing import Ledger
from dfl_dist.progress import tell_graph, tell_start
from dfl_dist.randomness import stream, torch_seed
from dfl_dist.rounds import Checkpoints
from dfl_dist.runtime import World
from dfl_dist.schedule import SERVER, Schedule, needs_losses
from dfl_dist.transport import BatchedTransport, GlooTransport, Transport

Built = tuple[Dataset, FlatModel]


def make_partition(config: Config, dataset: Dataset) -> partition.Partition:
    """Each client's indices into the training set."""
    divide = choose("data.partition", config.data.partition, partition.PARTITIONS)
    rng, data = stream(config.seed, "partition"), config.data
    try:
        return divide(
            dataset.train_targets,
            known(config.num_clients),
            rng,
            alpha=data.alpha,
            classes_per_client=data.classes_per_client,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def pick_device(config: Config, world: World) -> torch.device:
    """The GPU whose number is this rank's among its host's client ranks, or the CPU."""
    first_is_idle = config.rank0 == "coordinator" and world.rank == world.local_rank
    return runtime.choose_device(
        config.device, gpus=torch.cuda.device_count(), index=world.local_rank - int(first_is_idle)
    )


def build(job: Job, world: World, own: Own) -> Built:
    """The data set, and the model with its initial parameters, the same on every rank."""
    config = job.resolved
    runtime.set_threads(config.threads, world.local_size)
    if config.deterministic:
        torch.use_deterministic_algorithms(True)
    dataset = load_dataset(config.data, own.data)
    torch.manual_seed(torch_seed(stream(config.seed, "init")))
    dtype: torch.dtype = getattr(torch, config.dtype)
    module = make_module(config.model.name, len(dataset.classes), own.model).to(dtype)
    check_fit(module, config.model.name, dataset, dtype)
    if config.model.init is not None and job.checkpoint is None:
        start_from(module, config.model.init)
    try:
        return dataset, FlatModel(module, device=pick_device(config, world), dtype=dtype)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def shard_of(dataset: Dataset, rows: np.ndarray | None, model: FlatModel) -> Shard:
    """Some training samples where the model trains, or the test set."""
    if rows is None:
        return make_shard(dataset.test_inputs, dataset.test_targets, dataset.pixels, model.params)
    return make_shard(dataset.train_inputs[rows], dataset.train_targets[rows], dataset.pixels, model.params)


def load_clients(job: Job, block: range, dataset: Dataset, model: FlatModel) -> Clients:
    """The clients of this rank: their shards, and x and w from the start or from a checkpoint."""
    path = known(job.folder) / "partition.npz"
    try:
        indices = partition.load(path, block)
    except (OSError, KeyError, ValueError, BadZipFile) as error:
        raise ConfigError(f"resume: {path} is damaged: {one_line(error)}") from error
    shards = [shard_of(dataset, rows, model) for rows in indices]
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
    return LocalWork(
        rule, local.lr, local.lr_decay, local.batch_size, local.epochs, local.steps, config.data.augment, config.seed
    )


def checkpoints(job: Job, parameters: int, layout: Layout) -> Checkpoints:
    """When and where the clients' states are written."""
    settings = job.resolved.checkpoint
    return Checkpoints(
        known(job.folder), settings.every, settings.keep, identity(job, parameters), layout.largest_block
    )


def choose_backend(config: Config, world: World, layout: Layout, control: Control, model: FlatModel) -> str:
    """What carries the frames: the same on all ranks, so it takes all of them to know."""
    first = world.rank - world.local_rank
    hosted_here = sum(bool(layout.blocks[rank]) for rank in range(first, first + world.local_size))
    lacking = bool(layout.blocks[world.rank]) and not runtime.has_gpu_alone(
        model.params.device, hosted_here, torch.cuda.device_count()
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
    own: Own,
) -> Coordinator | None:
    """Rank 0's extra part, with the run's files open; all ranks call it, for what rank 0 must know of them."""
    config, folder = job.resolved, known(job.folder)
    weights = gather_scalars(control, layout, clients.block, clients.w.tolist(), "push weights")
    losses = gather_scalars(control, layout, clients.block, [loss or 0.0 for loss in clients.losses], "losses")
    in_flight = control.all_reduce(exchange.weights_arriving(), "tell what is in flight to them").tolist()
    waits = needs_losses(known(config.graph.kind), static=config.graph.static)
    control.prepare(layout.num_clients, ahead=0 if waits else config.overlap)
    facts_here = f"{socket.gethostname()} {clients.x.device} {torch.get_num_threads()}"
    ranks = control.gather_text(facts_here, "tell where it runs")
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
    tell_start(job, backend, list(zip(hosts, devices, strict=True)), clients.x.shape[1])
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
        listeners=listeners(job, own),
    )


def listeners(job: Job, own: Own) -> list[Callable[[dict[str, Any]], None]]:
    """Who is told of each recorded round."""
    found = [own.on_round] if own.on_round else []
    if job.resolved.tensorboard:
        found.append(tensorboard.open_events(known(job.folder), job.rounds_done))
    return found


def gather_scalars(control: Control, layout: Layout, block: range, own: list[float], what: str) -> list[float]:
    """A number of every client, for every rank."""
    numbers = torch.zeros(layout.num_clients, dtype=torch.float64)
    numbers[block.start : block.stop] = torch.tensor(own, dtype=torch.float64)
    return control.all_reduce(numbers, f"tell their {what}").tolist()
