"""From a job to the objects that run it: what rank 0 prepares, what all ranks connect, load and tell, the two roles."""

import math
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from zipfile import BadZipFile

import torch

from dfl_dist.algorithms.ledger import Ledger
from dfl_dist.config.schema import Config, Stop
from dfl_dist.config.values import load_resolved, values_of
from dfl_dist.data import partition
from dfl_dist.data.datasets import Dataset
from dfl_dist.distributed import groups
from dfl_dist.distributed.control import Control
from dfl_dist.distributed.devices import Claim, choose_backend, gpu_number
from dfl_dist.distributed.gloo import GlooTransport
from dfl_dist.distributed.nccl import BatchedTransport
from dfl_dist.distributed.transport import Transport
from dfl_dist.distributed.world import World
from dfl_dist.errors import ConfigError, one_line
from dfl_dist.models.flat import FlatModel
from dfl_dist.run_folder import checkpoint, trackers
from dfl_dist.run_folder.checkpoint import Parcel
from dfl_dist.run_folder.fence import Fence
from dfl_dist.run_folder.files import read_lines
from dfl_dist.run_folder.folder import cut_back, write_environment
from dfl_dist.run_folder.job import Job, name_job, write_settings
from dfl_dist.run_folder.metrics import EvalSchedule
from dfl_dist.run_folder.recorder import METRICS, Recorder
from dfl_dist.run_folder.trackers import Trackers
from dfl_dist.topology.kinds import KINDS
from dfl_dist.training.agreement import agree_on
from dfl_dist.training.build import Built, evaluation_shard, graph_schedule, local_work, training_shard
from dfl_dist.training.clients import Clients
from dfl_dist.training.evaluate import Evaluator
from dfl_dist.training.exchange import Exchange, PushSum, resumed_flights
from dfl_dist.training.follower import Follower
from dfl_dist.training.inbox import Inbox
from dfl_dist.training.layout import Layout, lay_out
from dfl_dist.training.leader import Leader, Run
from dfl_dist.training.plans import Planner
from dfl_dist.training.role import Role
from dfl_dist.training.rounds import Cadence, Rounds
from dfl_dist.training.screen import HostScreen, tell_graph, tell_part, tell_start
from dfl_dist.training.server_average import ServerAverage
from dfl_dist.training.stopping import Stopping
from dfl_dist.training.user_code import UserCode


def assemble(
    job: Job,
    world: World,
    control: Control,
    built: Built,
    user: UserCode,
    *,
    fence: Fence,
    wish_to_stop: Callable[[], str | None],
    go_on: str,
) -> Rounds:
    """All that a rank needs for its rounds; every rank calls this. `go_on` is how a person goes on after a stop."""
    config, model = job.resolved, built.model
    layout = lay_out(config.num_clients, world.size, coordinator=config.rank0 == "coordinator")
    block = layout.blocks[world.rank]
    clients, in_flight = agree_on(control, lambda: load_clients(job, block, built.dataset, model), "load their clients")
    backend = agree_on(control, lambda: agree_on_backend(config, world, layout, control, model))
    transport = open_transport(config, world, layout, backend, model)
    exchange = make_exchange(job, layout, control, clients, transport, in_flight)
    known = gather_known(control, layout, clients, exchange, backend)
    control.ahead = 0 if waits_for_losses(config) else config.overlap

    def take_role() -> Role:
        if world.rank > 0:
            has_screen = world.local_rank == 0 and world.host > 0
            if has_screen:
                tell_part(job, world)
            screen = HostScreen(job, go_on) if has_screen else None
            return Follower(control, rounds=config.rounds, largest_block=layout.largest_block, screen=screen)
        schedule = graph_schedule(config)
        open_records(job, known, built.dataset.digest, fence)
        tell_start(job, known.backend, list(zip(known.hosts, known.devices, strict=True)), model.size)
        tell_graph(config, schedule)
        planner = Planner(control, schedule, job.folder, limited(wish_to_stop, config.max_seconds))
        listeners = [user.on_round] if user.on_round else []
        recorder = Recorder(job.folder, listeners, fence.check, open_trackers(job))
        inbox, run = make_inbox(job, control, layout, known), run_of(job, model, fence, go_on)
        return Leader(control, planner, inbox, recorder, run=run, model=model)

    role = agree_on(control, take_role)
    return Rounds(
        role,
        clients,
        exchange,
        Evaluator(control, model, evaluation_shard(built.dataset, model), layout),
        model=model,
        work=local_work(config),
        cadence=Cadence(
            config.rounds,
            EvalSchedule(config.eval.every, config.eval.clients_every),
            config.checkpoint.every,
            may_stop=config.stop != Stop(target=None, patience=None),
        ),
        fence=fence,
        wish_to_stop=wish_to_stop,
    )


def limited(wish_to_stop: Callable[[], str | None], seconds: float | None) -> Callable[[], str | None]:
    """A wish to stop that also comes when the time is up, counted from now."""
    end = math.inf if seconds is None else time.monotonic() + seconds
    return lambda: wish_to_stop() or (f"max_seconds {seconds:g}" if time.monotonic() > end else None)


# What every rank loads and connects.


def load_clients(job: Job, block: range, dataset: Dataset, model: FlatModel) -> tuple[Clients, list[list[Parcel]]]:
    """The clients of this rank, from the start or from a checkpoint, and what is in flight to each."""
    path = job.folder / "partition.npz"
    try:
        indices = partition.load(path, block)
    except (OSError, KeyError, ValueError, BadZipFile) as error:  # whatever NumPy makes of a damaged file
        raise ConfigError(f"resume: {path} is damaged: {one_line(error)}") from error
    shards = [training_shard(dataset, rows, model) for rows in indices]
    clients = Clients.at_start(block, model.params, shards)
    in_flight: list[list[Parcel]] = [[] for _ in block]
    if job.checkpoint:
        manifest = checkpoint.read_manifest(job.checkpoint, job.identity(model.size))
        for row, client in enumerate(block):
            state = checkpoint.load_client(job.checkpoint, client, manifest)
            goes_on = job.rounds_done < job.resolved.rounds
            held = state.before_drain if goes_on and state.before_drain else state.holdings
            clients.x[row].copy_(held.x)
            clients.w[row], clients.losses[row], in_flight[row] = held.w, state.train_loss, held.in_flight
    return clients, in_flight


def agree_on_backend(config: Config, world: World, layout: Layout, control: Control, model: FlatModel) -> str:
    """What carries the frames: the same on all ranks, so it takes all of them to know."""
    told = torch.zeros(world.size, 2, dtype=torch.int64)
    told[world.rank] = torch.tensor([world.host, gpu_number(model.params.device)])
    told = control.all_reduce(told, "tell their devices")
    return choose_backend(config.backend, {rank: Claim(*told[rank].tolist()) for rank in layout.client_ranks})


def open_transport(config: Config, world: World, layout: Layout, backend: str, model: FlatModel) -> Transport:
    """The data group and what sends frames over it; a rank that hosts no client has none to send."""
    device, timeout_s = model.params.device, config.timeout_s
    group = groups.data_group(world, layout.client_ranks, backend=backend, timeout_s=timeout_s, device=device)
    if backend == "nccl":
        return BatchedTransport(group, timeout_s=timeout_s, device=device)
    return GlooTransport(group, timeout_s=timeout_s, window=config.window, device=device)


def make_exchange(
    job: Job,
    layout: Layout,
    control: Control,
    clients: Clients,
    transport: Transport,
    in_flight: Sequence[Sequence[Parcel]],
) -> Exchange:
    """How the clients learn from one another."""
    config = job.resolved
    if KINDS[config.graph.kind].is_server:
        sizes = gather_numbers(control, layout, [len(shard) for shard in clients.shards], "shard sizes")
        return ServerAverage(clients, control, [int(size) for size in sizes], server_lr=config.server_lr)
    overlap, gossip_steps = config.overlap, config.graph.gossip_steps
    flights = resumed_flights(
        clients.block, in_flight, clients.x, rounds_done=job.rounds_done, overlap=overlap, gossip_steps=gossip_steps
    )
    return PushSum(
        clients, transport, layout, control.rank, overlap=overlap, gossip_steps=gossip_steps, in_flight=list(flights)
    )


# What all ranks tell rank 0, and what it makes of it.


@dataclass(frozen=True)
class Known:
    """What rank 0 must know of all ranks before the first round: numbers of each client, facts of each rank."""

    push_weights: list[float]
    losses: list[float]
    in_flight: list[list[float]]  # w to each client, per exchange that is in flight
    backend: str
    hosts: Sequence[str]  # these three only at rank 0
    devices: Sequence[str]
    threads: Sequence[int]


def gather_known(control: Control, layout: Layout, clients: Clients, exchange: Exchange, backend: str) -> Known:
    """Every rank calls this."""
    weights = gather_numbers(control, layout, clients.w.tolist(), "push weights")
    losses = gather_numbers(control, layout, [loss or 0.0 for loss in clients.losses], "losses")
    in_flight = control.all_reduce(exchange.weights_in_flight_to(), "tell what is in flight to them").tolist()
    facts = f"{socket.gethostname()} {clients.x.device} {torch.get_num_threads()}"
    ranks = [line.split() for line in control.gather_text(facts, "tell where it runs")]
    return Known(
        weights,
        losses,
        in_flight,
        backend,
        hosts=[host for host, _, _ in ranks],
        devices=[device for _, device, _ in ranks],
        threads=[int(threads) for _, _, threads in ranks],
    )


def gather_numbers(control: Control, layout: Layout, own: list[float], what: str) -> list[float]:
    """A number of every client, for every rank."""
    block = layout.blocks[control.rank]
    numbers = torch.zeros(layout.num_clients, dtype=torch.float64)
    numbers[block.start : block.stop] = torch.tensor(own, dtype=torch.float64)
    return control.all_reduce(numbers, f"tell their {what}").tolist()


def waits_for_losses(config: Config) -> bool:
    """Whether the next graph can be drawn only after a round."""
    return KINDS[config.graph.kind].needs_losses and not config.graph.static


def make_inbox(job: Job, control: Control, layout: Layout, known: Known) -> Inbox:
    config = job.resolved
    ledger = Ledger(known.push_weights, known.in_flight, overlap=config.overlap, gossip_steps=config.graph.gossip_steps)
    return Inbox(control, layout, ledger, known.losses if job.rounds_done else None)


def run_of(job: Job, model: FlatModel, fence: Fence, go_on: str) -> Run:
    config = job.resolved
    return Run(
        fence=fence,
        go_on=go_on,
        rounds=config.rounds,
        rounds_done=job.rounds_done,
        lr_of=local_work(config).rate.of,
        checkpoint_every=config.checkpoint.every,
        keep=config.checkpoint.keep,
        stopping=Stopping(config.stop.target, config.stop.patience),
        identity=job.identity(model.size),
    )


def open_records(job: Job, known: Known, data_digest: str, fence: Fence) -> None:
    """Write down where and how the run runs, and cut its records back to the checkpoint it goes on from."""
    facts: Mapping[str, object] = {
        "run": job.token,
        "start": job.start_id,
        **name_job(job.run_id, job.folder),
        "world_size": len(known.hosts),
        "hosts": known.hosts,
        "backend": known.backend,
        "devices": known.devices,
        "threads": known.threads,
        "resumed_after": job.rounds_done,
        "data_digest": data_digest,
    }
    fence.check()
    write_environment(job.folder, facts)
    cut_back(job.folder, job.rounds_done, job.scores_to_drop, known.push_weights)
    checkpoint.drop_after(job.folder, job.rounds_done)
    write_settings(job, backend=known.backend, device=known.devices[-1].split(":")[0], threads=known.threads[-1])


def open_trackers(job: Job) -> Trackers:
    """Begin to tell the trackers; the last round that a run goes on from is told anew, as it stands there now."""
    settings = values_of(load_resolved(job.folder / "resolved.yaml"))
    opened = Trackers(trackers.find(job.resolved.tracker), settings, job.folder)
    for line in read_lines(job.folder / METRICS)[-1:]:
        opened.log(line)
    return opened
