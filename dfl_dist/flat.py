"""A model whose parameters and gradients are views of one flat vector each."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class FlatModel:
    """Parameters in `named_parameters()` order as views of `params`, their gradients as views of `grads`."""

    def __init__(self, model: nn.Module, *, device: torch.device, dtype: torch.dtype) -> None:
        for name, buffer in model.named_buffers():
            if buffer.is_floating_point():
                raise ValueError(
                    f"model.name: the model has the floating-point buffer {name}, allowed: parameters only "
                    "(use GroupNorm instead of BatchNorm)"
                )
        if not any(True for _ in model.parameters()):
            raise ValueError("model.name: the model has no parameters, allowed: one that can be trained")
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
        loss = functional.cross_entropy(self.model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()
