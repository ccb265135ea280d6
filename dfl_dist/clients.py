"""The clients that a rank hosts: their state, their local steps, their exchange with all others."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dfl_dist.flat import FlatModel
from dfl_dist.layout import Layout, routes
from dfl_dist.local import LocalRule, Shard, batches, local_steps
from dfl_dist.mixing import add_rows, scale_rows
from dfl_dist.randomness import stream
from dfl_dist.topology import Graph
from dfl_dist.transport import Frame, Transport

Route = Mapping[int, list[int]]  # a rank, and the clients whose rows go there or come from there


@dataclass(frozen=True)
class LocalWork:
    """What a client does between two exchanges."""

    rule: LocalRule
    lr: float
    lr_decay: float
    batch_size: int
    epochs: int | None
    steps: int | None
    seed: int

    def lr_of(self, round_idx: int) -> float:
        return self.lr * self.lr_decay**round_idx


@dataclass
class Clients:
    """The hosted clients: numbers, x: [m, d], w: [m] float64 on the host, private data, last training losses."""

    block: range
    x: Tensor
    w: Tensor
    shards: list[Shard]
    losses: list[float | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.losses = self.losses or [None] * len(self.block)
        self.sum_x, self.sum_w = torch.empty_like(self.x), torch.empty_like(self.w)
        self.velocity = torch.empty_like(self.x[0]) if len(self.block) else self.x

    def step(self, round_idx: int, model: FlatModel, work: LocalWork) -> None:
        """The local steps of a round, client by client."""
        for row, client in enumerate(self.block):
            order = stream(work.seed, "batches", client=client, round_idx=round_idx)
            dropout = stream(work.seed, "dropout", client=client, round_idx=round_idx)
            shard, w = self.shards[row], float(self.w[row])
            taken = batches(len(shard), work.batch_size, epochs=work.epochs, steps=work.steps, rng=order)
            lr = work.lr_of(round_idx)
            self.losses[row] = local_steps(model, self.x[row], w, self.velocity, shard, taken, work.rule, lr, dropout)


class Exchange:
    """The push-sum exchange of a rank's clients: in each round `expect`, then `push_and_sum`."""

    def __init__(self, clients: Clients, transport: Transport, layout: Layout, rank: int) -> None:
        self.clients, self.transport, self.layout, self.rank = clients, transport, layout, rank
        self.frame = Frame.empty(len(clients.x), clients.x.shape[1], clients.x.dtype, clients.x.device)
        self.outgoing: Route = {}
        self.incoming: Route = {}

    def expect(self, round_idx: int, graph: Graph) -> None:
        """Post the receives of a round, before its local steps."""
        self.outgoing, self.incoming = routes(graph, self.layout, self.rank)
        self.transport.expect(round_idx, 0, list(self.incoming.items()))

    def push_and_sum(self, round_idx: int, graph: Graph) -> None:
        """Push (p·x, p·w) to the out-neighbours, then sum what was pushed here in the order of the sending client."""
        clients, frame = self.clients, self.frame
        self.transport.flush()
        scale_rows(graph, clients.block, clients.x, clients.w, out_x=frame.x, out_w=frame.w)
        frame.seal(round_idx, 0, self.rank, clients.block)
        frames = {tuple(senders): self._frame_of(senders, round_idx) for senders in self.outgoing.values()}
        self.transport.push([(receiver, frames[tuple(senders)]) for receiver, senders in self.outgoing.items()])
        clients.sum_x.zero_()
        clients.sum_w.zero_()
        arrivals = self.transport.arrivals()
        for rank in sorted({self.rank, *self.incoming}):
            senders, arrived = (clients.block, frame) if rank == self.rank else (self.incoming[rank], next(arrivals))
            add_rows(graph, senders, arrived.x, arrived.w.cpu(), clients.block, clients.sum_x, clients.sum_w)
        assert next(arrivals, None) is None, "a frame was left over"
        clients.x, clients.sum_x = clients.sum_x, clients.x
        clients.w, clients.sum_w = clients.sum_w, clients.w

    def _frame_of(self, senders: list[int], round_idx: int) -> Frame:
        """The frame with the rows of some clients: the one with all rows as it is where all of them push there."""
        if len(senders) == len(self.clients.block):
            return self.frame
        rows = [client - self.clients.block.start for client in senders]
        part = Frame.empty(len(rows), self.frame.size, self.frame.dtype, self.frame.x.device)
        torch.index_select(self.frame.x, 0, torch.tensor(rows, device=part.x.device), out=part.x)
        part.w.copy_(self.frame.w[rows])
        return part.seal(round_idx, 0, self.rank, senders)

    def bytes_pushed(self, graph: Graph) -> int:
        """What these clients push to others in a round, x and w, whatever the layout."""
        row_bytes = self.frame.size * self.frame.dtype.itemsize + 8
        return sum(len(graph.out[client]) - 1 for client in self.clients.block) * row_bytes
