"""What a run takes before there is one: the memory of a rank, the bytes that clients send, checkpoints on the disk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from dfl_dist.config.schema import Config
from dfl_dist.data.datasets import Dataset
from dfl_dist.data.partition import Partition
from dfl_dist.data.shard import Shard
from dfl_dist.distributed.frames import FrameFormat
from dfl_dist.models.flat import FlatModel
from dfl_dist.run_folder.checkpoint import ClientState, Holdings, Parcel
from dfl_dist.topology.graph import Graph, RoundGraph, Server
from dfl_dist.training.build import evaluation_shard, training_shard
from dfl_dist.training.exchange import bytes_pushed, content
from dfl_dist.training.layout import Layout, Routes, routes
from dfl_dist.training.server_average import bytes_served


@dataclass(frozen=True)
class Memory:
    """What a rank keeps while it trains, in bytes, beside the process itself."""

    model: int  # the parameters that gradients are taken at, the gradient, momentum, one for the exchange
    clients: int  # x of each hosted client, and as much to sum up in
    frames: int  # at most: those that are sent, those whose receives are posted, of every exchange in flight
    shards: int  # the samples of the hosted clients
    test: int  # the whole test set
    evaluation: int  # for a while: x̄ is formed in double precision
    checkpoint: int  # for a while: copies of what is written

    @property
    def kept(self) -> int:
        return self.model + self.clients + self.frames + self.shards + self.test


def exchanges_at_once(config: Config) -> int:
    """Those whose frames are kept at the same time: the ones in flight, and the one that is being made."""
    return config.overlap * config.graph.gossip_steps + 1


def rank_memory(
    config: Config,
    layout: Layout,
    model: FlatModel,
    dataset: Dataset,
    shards: Partition,
    graphs: Sequence[RoundGraph],
    *,
    backend: str,
) -> tuple[int, Memory]:
    """A rank that holds most, and what it needs."""
    size, copy = model.params.numel(), model.params.nbytes
    sample = shard_bytes(training_shard(dataset, shards[0][:1], model))
    samples = [sum(len(shards[client]) for client in block) for block in layout.blocks]
    rank = max(layout.client_ranks, key=lambda one: 2 * copy * len(layout.blocks[one]) + sample * samples[one])
    hosted, wire = len(layout.blocks[rank]), FrameFormat(size, model.params.dtype)
    exchanges = [routes(graph, layout, rank) for graph in graphs if isinstance(graph, Graph)]
    at_once = None if backend == "nccl" else config.window
    arriving = [[row for rows in incoming.values() for row in rows] for _, incoming in exchanges]
    landed = copy * most_in_flight(config, [len(rows) for rows in arriving])  # looked at before it is due
    parcels = copy * most_in_flight(config, [sum(len(row.receivers) for row in rows) for rows in arriving])
    before_drain = hosted * copy if config.overlap else 0  # kept beside the parcels once all are mixed in
    return rank, Memory(
        model=4 * copy,
        clients=2 * hosted * copy,
        frames=exchanges_at_once(config) * most_frames(exchanges, rank, wire, at_once),
        shards=sample * samples[rank],
        test=shard_bytes(evaluation_shard(dataset, model)),
        evaluation=evaluation_bytes(size, model.params.itemsize, hosted) + max(landed, before_drain + parcels),
        checkpoint=(hosted + 1) * copy + max(landed, before_drain) + parcels,
    )


def most_in_flight(config: Config, of_rounds: Sequence[int]) -> int:
    """The most of something that is in flight after a round, given how much of it an exchange of each round sends."""
    windows = range(max(1, len(of_rounds) - config.overlap + 1))
    return config.graph.gossip_steps * max(sum(of_rounds[first : first + config.overlap]) for first in windows)


def evaluation_bytes(size: int, itemsize: int, hosted: int) -> int:
    """What it takes for a while to form x̄, in double precision: what is in flight, the sum, x̄; before it, each x."""
    widened = 8 * hosted * size if itemsize < 8 else 0
    return max(2 * 8 * size + widened, 3 * 8 * size + itemsize * size)


def shard_bytes(shard: Shard) -> int:
    return shard.inputs.nbytes + shard.targets.nbytes


def most_frames(exchanges: Sequence[tuple[Routes, Routes]], rank: int, wire: FrameFormat, at_once: int | None) -> int:
    """The most bytes that the frames of one exchange take on a rank, received `at_once` (None: all together)."""
    sent, received, rows_sent, rows_received = 0, 0, 0, 0
    for outgoing, incoming in exchanges:
        others = [len(rows) for sender, rows in incoming.items() if sender != rank]
        sent = max(sent, len(set(map(content, outgoing.values()))))
        received = max(received, len(others[:at_once]))
        rows_sent, rows_received = max([rows_sent, *map(len, outgoing.values())]), max([rows_received, *others])
    return sent * wire.num_bytes(rows_sent) + received * wire.num_bytes(rows_received)


def bytes_per_round(config: Config, model: FlatModel, graph: RoundGraph) -> int:
    """What all clients send in a round with this graph, as `bytes_sent` in metrics.jsonl counts it."""
    wire, everybody = FrameFormat(model.size, model.params.dtype), range(config.num_clients)
    if isinstance(graph, Server):
        return bytes_served(wire, graph, everybody)
    return bytes_pushed(wire, graph, everybody, config.graph.gossip_steps)


# Checkpoints on the disk.


def checkpoint_bytes(config: Config, model: FlatModel, rounds_done: int, edges: Callable[[int], int]) -> int:
    """The client files of a checkpoint after so many rounds; `edges` says how many a round's graph has.

    With overlap, what is in flight is in its receivers' files; in the last ones, where it is mixed in, as before that.
    """
    drained = config.overlap > 0 and rounds_done == config.rounds
    sent = range(max(0, rounds_done - config.overlap), rounds_done)
    parcels = config.graph.gossip_steps * sum(map(edges, sent))
    alone, with_parcel = (file_bytes(model.params.dtype, parcels=number, drained=drained) for number in (0, 1))
    vectors = config.num_clients * (2 if drained else 1) + parcels
    tensors = vectors * (model.size - 1) * model.params.itemsize
    return config.num_clients * alone + parcels * (with_parcel - alone) + tensors


def file_bytes(dtype: torch.dtype, *, parcels: int, drained: bool) -> int:
    """The size of a client's file where a model is one number."""
    x = torch.zeros(1, dtype=dtype)
    held = Holdings(x, 1.0, [Parcel(due=1, step=0, sender=0, w=0.5, x=x.clone()) for _ in range(parcels)])
    state = ClientState(0, 1, 0.5, Holdings(x.clone(), 1.0), held) if drained else ClientState(0, 1, 0.5, held)
    return len(state.to_bytes())


def count_edges(graph: RoundGraph) -> int:
    """How many pushes to others a graph stands for."""
    return sum(map(len, graph.out)) - len(graph.out) if isinstance(graph, Graph) else 0


def checkpoints_kept(config: Config) -> list[int]:
    """After which rounds the checkpoints are that a run keeps at its end."""
    every, keep = config.checkpoint.every, config.checkpoint.keep
    made = [*range(0, config.rounds, every), config.rounds] if every else []
    return made[-keep:]
