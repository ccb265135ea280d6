"""Flat models: parameters and gradients are views, in named_parameters() order."""

import pytest
import torch
from small_models import softmax, with_batch_norm
from torch.nn import functional

from dfl_dist.errors import ArgumentError
from dfl_dist.models.flat import FlatModel
from dfl_dist.models.zoo import digits_mlp

CPU = torch.device("cpu")


def test_parameters_are_views_in_order() -> None:
    plain = digits_mlp()
    expected = torch.cat([parameter.detach().reshape(-1) for _, parameter in plain.named_parameters()]).clone()
    flat = FlatModel(plain, device=CPU, dtype=torch.float32)
    assert flat.size == 64 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10
    assert torch.equal(flat.params, expected)
    flat.params.zero_()
    assert all(bool((parameter == 0).all()) for parameter in flat.model.parameters())


def test_gradient_fills_the_flat_vector_and_does_not_accumulate() -> None:
    torch.manual_seed(0)
    flat = FlatModel(softmax(), device=CPU, dtype=torch.float64)
    inputs, targets = torch.randn(7, 64, dtype=torch.float64), torch.randint(10, (7,))
    weight = flat.params.clone().requires_grad_()
    logits = inputs @ weight[:640].view(10, 64).T + weight[640:]
    loss = functional.cross_entropy(logits, targets)
    (expected,) = torch.autograd.grad(loss, weight)
    for _ in range(2):
        assert float(flat.gradient(inputs, targets)) == pytest.approx(float(loss.detach()))
        assert torch.allclose(flat.grads, expected, atol=1e-14)


def test_floating_point_buffers_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^model: given .*buffer 1\.running_mean.*GroupNorm"):
        FlatModel(with_batch_norm(), device=CPU, dtype=torch.float32)


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^model: given a model without parameters"):
        FlatModel(torch.nn.Identity(), device=CPU, dtype=torch.float32)
