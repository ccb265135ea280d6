"""Local steps: the equations on one client, and what must never happen."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from oracle import NO_MISTAKE, step
from small_models import softmax, with_dropout
from torch import nn

from dfl_dist.algorithms.local_steps import LocalRule, local_steps
from dfl_dist.data.shard import Shard, batches
from dfl_dist.models.flat import FlatModel

CPU = torch.device("cpu")


def problem(dtype: torch.dtype = torch.float64) -> tuple[FlatModel, Shard]:
    torch.manual_seed(1)
    model = FlatModel(softmax(), device=CPU, dtype=dtype)
    return model, Shard(torch.randn(30, 64, dtype=dtype), torch.randint(10, (30,)), dtype)


def take(model: FlatModel, shard: Shard, x: torch.Tensor, w: float, rule: LocalRule, steps: int = 6) -> float:
    index_batches = batches(len(shard), 8, epochs=None, steps=steps, rng=np.random.default_rng(5))
    return local_steps(
        model, x, w, torch.empty_like(x), shard.draw(index_batches, None), rule, 0.3, np.random.default_rng(6)
    )


@pytest.mark.parametrize(
    "rule",
    [
        LocalRule(rho=0.1, momentum=0.9),
        LocalRule(rho=0.0, momentum=0.0),
        LocalRule(rho=0.1, momentum=0.9, step="z", weight_decay=0.05, clip_norm=0.3),
        LocalRule(rho=0.0, momentum=0.5, clip_norm=1e9),
        LocalRule(rho=0.0, momentum=0.0, clip_norm=0.3),
        LocalRule(rho=0.0, momentum=0.0, gradient_at="round"),
        LocalRule(rho=0.1, momentum=0.9, gradient_at="round", step="z", weight_decay=0.05, clip_norm=0.3),
    ],
)
@pytest.mark.parametrize("w", [1.0, 0.3])
def test_steps_follow_the_equations(rule: LocalRule, w: float) -> None:
    model, shard = problem()
    x = model.params.clone() * w
    expected, v = x.numpy().copy(), np.zeros(model.size)
    first = expected / w if rule.gradient_at == "round" else None
    for b in batches(len(shard), 8, epochs=None, steps=6, rng=np.random.default_rng(5)):
        inputs, targets = shard.inputs.numpy()[b], shard.targets.numpy()[b]
        expected, v = step(expected, w, v, inputs, targets, 0.3, vars(rule), NO_MISTAKE, z=first)
    take(model, shard, x, w, rule)
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-11, atol=1e-12)


def test_clipping_by_0_is_off() -> None:
    model, shard = problem()
    ends = []
    for clip_norm in (0.0, 1e9, 1e-3):
        ends.append(x := torch.zeros(model.size, dtype=torch.float64))
        take(model, shard, x, 1.0, LocalRule(rho=0.0, momentum=0.9, clip_norm=clip_norm))
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


def test_loss_is_the_sample_weighted_mean_at_z() -> None:
    model, shard = problem()
    start, seen = model.params.clone(), []
    for b in batches(len(shard), 8, epochs=1, steps=None, rng=np.random.default_rng(5)):
        seen.append((float(model.gradient(shard.inputs[b], shard.targets[b])), len(b)))
    frozen = iter(batches(len(shard), 8, epochs=1, steps=None, rng=np.random.default_rng(5)))
    rule = LocalRule(rho=0.7, momentum=0.0)
    loss = local_steps(
        model, start, 1.0, torch.empty_like(start), shard.draw(frozen, None), rule, 0.0, np.random.default_rng(0)
    )
    assert loss == pytest.approx(sum(value * count for value, count in seen) / 30, rel=1e-12)


class Counting(nn.Module):
    """Counts its forward passes; its gradient is zero everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(10))
        self.calls = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return inputs[:, :10] + 0 * self.weight


@pytest.mark.parametrize(("rho", "passes"), [(0.0, 6), (0.1, 12)])
def test_zero_gradient_stays_put_and_rho_zero_is_one_pass(rho: float, passes: int) -> None:
    module = Counting()
    model = FlatModel(module, device=CPU, dtype=torch.float32)
    x = model.params.clone()
    take(model, problem(torch.float32)[1], x, 1.0, LocalRule(rho=rho, momentum=0.9))
    assert torch.equal(x, torch.ones(10)), "no NaN from 0/0"
    assert module.calls == passes


def test_dropout_masks_come_from_the_stream_alone() -> None:
    def run(noise: int) -> torch.Tensor:
        torch.manual_seed(3)
        model = FlatModel(with_dropout(), device=CPU, dtype=torch.float32)
        torch.manual_seed(noise)
        x = model.params.clone()
        take(model, problem(torch.float32)[1], x, 1.0, LocalRule(rho=0.1, momentum=0.9))
        return x

    assert torch.equal(run(0), run(1))


def test_both_passes_of_sam_see_the_same_mask() -> None:
    masks: list[torch.Tensor] = []

    class Recorder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.linear = nn.Dropout(0.5), nn.Linear(64, 10)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            masks.append(self.drop(torch.ones_like(inputs)))
            return self.linear(inputs * masks[-1])

    model = FlatModel(Recorder(), device=CPU, dtype=torch.float32)
    take(model, problem(torch.float32)[1], model.params.clone(), 1.0, LocalRule(rho=0.1, momentum=0.0), steps=3)
    pairs: Iterator[tuple[torch.Tensor, torch.Tensor]] = zip(masks[::2], masks[1::2], strict=True)
    assert all(torch.equal(first, second) for first, second in pairs)
    assert not torch.equal(masks[0], masks[2])
