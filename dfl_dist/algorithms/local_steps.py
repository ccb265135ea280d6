"""The K local steps of a client: SAM and momentum on flat vectors."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from dfl_dist.models.flat import FlatModel


@dataclass(frozen=True)
class LocalRule:
    """How a client steps. `rho` 0 is the plain gradient, `momentum` 0 is none."""

    rho: float
    momentum: float
    step: Literal["x", "z"] = "x"
    gradient_at: Literal["step", "round"] = "step"
    weight_decay: float = 0.0
    clip_norm: float = 0.0  # 0 is off


def default_generator(device: torch.device) -> torch.Generator:
    """The generator that dropout draws from; seeding it alone is much cheaper than `torch.manual_seed`."""
    return torch.default_generator if device.type == "cpu" else torch.cuda.default_generators[device.index]


def local_steps(
    model: FlatModel,
    x: Tensor,
    w: float,
    velocity: Tensor,
    batches: Iterable[tuple[Tensor, Tensor]],
    rule: LocalRule,
    lr: float,
    dropout: np.random.Generator,
) -> float:
    """Take the steps of one round in place on x; return the sample-weighted mean loss at z.

    For each batch b, with z = x / w (x, z, g, v: [d]):
        g1 = ∇f(z; b);  z' = z + rho · g1/‖g1‖;  g = ∇f(z'; b);  v = alpha·v + g;  x = x − lr · v
    The step `z` moves x by lr·w·v instead, so that z moves by lr·v. With `gradient_at` round, z is the round's first in
    all steps.
    """
    velocity.zero_()
    masks = default_generator(x.device)
    params, grads = model.params, model.grads
    base = x.clone() if rule.gradient_at == "round" else x  # z = base / w
    step_size = lr * w if rule.step == "z" else lr
    loss_sum, samples = torch.zeros((), dtype=torch.float64, device=x.device), 0
    for inputs, targets in batches:
        mask_seed = int(dropout.integers(2**63))
        torch.div(base, w, out=params)
        masks.manual_seed(mask_seed)
        loss = model.gradient(inputs, targets)
        if rule.rho > 0:
            norm = torch.linalg.vector_norm(grads)
            params.addcdiv_(grads, torch.where(norm > 0, norm, torch.ones_like(norm)), value=rule.rho)
            masks.manual_seed(mask_seed)
            model.gradient(inputs, targets)
        if rule.clip_norm > 0:
            norm = torch.linalg.vector_norm(grads)
            grads.mul_(torch.clamp(rule.clip_norm / norm, max=1.0))
        if rule.weight_decay > 0:
            grads.add_(base, alpha=rule.weight_decay / w)
        velocity.mul_(rule.momentum).add_(grads)
        x.add_(velocity, alpha=-step_size)
        loss_sum += loss.double() * len(targets)
        samples += len(targets)
    return float(loss_sum) / samples
