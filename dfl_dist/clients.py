"""The clients that a rank hosts: their state and their local steps."""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dfl_dist.data.shard import Shard, batches
from dfl_dist.flat import FlatModel
from dfl_dist.local import LocalRule, local_steps
from dfl_dist.randomness import stream


@dataclass(frozen=True)
class LocalWork:
    """What a client does between two exchanges."""

    rule: LocalRule
    lr: float
    lr_decay: float
    batch_size: int
    epochs: int | None
    steps: int | None
    augment: bool
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
    arriving: list[list[dict[str, Any]]] = field(default_factory=list)  # in flight to each in the checkpoint, if any

    def __post_init__(self) -> None:
        self.losses = self.losses or [None] * len(self.block)
        self.spare_x, self.spare_w = torch.empty_like(self.x), torch.empty_like(self.w)
        self.velocity = torch.empty_like(self.x[0]) if len(self.block) else self.x

    def step(self, round_idx: int, model: FlatModel, work: LocalWork, training: Container[int]) -> None:
        """The local steps of a round, client by client, for those that train in it."""
        for row, client in enumerate(self.block):
            if client not in training:
                continue
            order, augmentation, dropout = (
                stream(work.seed, purpose, client=client, round_idx=round_idx)
                for purpose in ("batches", "augmentation", "dropout")
            )
            x, w, shard, lr = self.x[row], float(self.w[row]), self.shards[row], work.lr_of(round_idx)
            indices = batches(len(shard), work.batch_size, epochs=work.epochs, steps=work.steps, rng=order)
            drawn = shard.draw(indices, augmentation if work.augment else None)
            self.losses[row] = local_steps(model, x, w, self.velocity, drawn, work.rule, lr, dropout)

    def states(self) -> list[dict[str, Any]]:
        """What a checkpoint keeps of each, with room for what is in flight to it."""
        return [
            {"x": self.x[row].cpu().clone(), "w": float(self.w[row]), "in_flight": []} for row in range(len(self.block))
        ]
