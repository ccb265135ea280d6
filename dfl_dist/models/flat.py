"""A model whose parameters and gradients are views of one flat vector each."""

import torch
from torch import Tensor, nn

from dfl_dist.errors import ArgumentError
from dfl_dist.models.task import Classification


class FlatModel:
    """Parameters in `named_parameters()` order as views of `params`, their gradients as views of `grads`."""

    def __init__(self, model: nn.Module, *, device: torch.device, dtype: torch.dtype) -> None:
        check_trainable(model)
        self.task = Classification()
        self.model = model.to(device=device, dtype=dtype)
        parameters = list(self.model.parameters())
        self.size = sum(parameter.numel() for parameter in parameters)
        self.params = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self.grads = torch.zeros_like(self.params)
        start = 0
        for parameter in parameters:
            span = slice(start, start + parameter.numel())
            parameter.data = self.params[span].view(parameter.shape)
            parameter.grad = self.grads[span].view(parameter.shape)
            start += parameter.numel()

    def gradient(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Fill `grads` with the gradient of the mean loss at `params`; return that loss."""
        self.grads.zero_()
        loss = self.task.loss(self.model, inputs, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


def check_trainable(model: nn.Module) -> None:
    """Refuse a model whose state is not all in its parameters, or that has none."""
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point():
            given = f"a model with the floating-point buffer {name}"
            raise ArgumentError("model", given, "parameters only (use GroupNorm instead of BatchNorm)")
    if not any(True for _ in model.parameters()):
        raise ArgumentError("model", "a model without parameters", "one that can be trained")
