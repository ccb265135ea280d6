"""The clients that a rank hosts: their state and their local steps."""

from collections.abc import Container
from dataclasses import dataclass

import torch
from torch import Tensor

from dfl_dist.algorithms.local_steps import LocalRule, local_steps
from dfl_dist.algorithms.rate import Rate
from dfl_dist.data.shard import Shard, batches
from dfl_dist.models.flat import FlatModel
from dfl_dist.randomness import stream
from dfl_dist.run_folder.checkpoint import Holdings


@dataclass(frozen=True)
class LocalWork:
    """What a client does between two exchanges."""

    rule: LocalRule
    rate: Rate
    batch_size: int
    epochs: int | None
    steps: int | None
    augment: bool
    seed: int


@dataclass
class Clients:
    """The hosted clients: numbers, x: [m, d], w: [m] float64 on the host, private data, last training losses."""

    block: range
    x: Tensor
    w: Tensor
    shards: list[Shard]
    losses: list[float | None]

    def __post_init__(self) -> None:
        self.spare_x, self.spare_w = torch.empty_like(self.x), torch.empty_like(self.w)
        self.velocity = torch.empty_like(self.x[0]) if len(self.block) else self.x

    @classmethod
    def at_start(cls, block: range, params: Tensor, shards: list[Shard]) -> "Clients":
        """Clients before the first round: equal models, push weights of 1."""
        weights = torch.ones(len(block), dtype=torch.float64)
        return cls(block, params.repeat(len(block), 1), weights, shards, [None] * len(block))

    def step(self, round_idx: int, model: FlatModel, work: LocalWork, training: Container[int]) -> None:
        """The local steps of a round, client by client, for those that train in it."""
        for row, client in enumerate(self.block):
            if client not in training:
                continue
            order, augmentation, dropout = (
                stream(work.seed, purpose, client=client, round_idx=round_idx)
                for purpose in ("batches", "augmentation", "dropout")
            )
            x, w, shard, lr = self.x[row], float(self.w[row]), self.shards[row], work.rate.of(round_idx)
            indices = batches(len(shard), work.batch_size, epochs=work.epochs, steps=work.steps, rng=order)
            drawn = shard.draw(indices, augmentation if work.augment else None)
            self.losses[row] = local_steps(model, x, w, self.velocity, drawn, work.rule, lr, dropout)

    def swap(self) -> None:
        """Take what was summed up in the spare rows as the clients' x and w."""
        self.x, self.spare_x = self.spare_x, self.x
        self.w, self.spare_w = self.spare_w, self.w

    def holdings(self) -> list[Holdings]:
        """Copies of each client's x and w, with room for what is in flight to it."""
        return [Holdings(self.x[row].cpu().clone(), float(self.w[row])) for row in range(len(self.block))]
