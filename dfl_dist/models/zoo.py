"""Models by name: each a function of the number of classes that returns a module without floating-point buffers."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

GROUPS = 32  # of channels that are normalised together, whatever their number


def digits_mlp(classes: int = 10) -> nn.Module:
    """64-200-200-classes, for the embedded digits: [batch, 64]."""
    return nn.Sequential(nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, classes))


def mnist_2nn(classes: int = 10) -> nn.Module:
    """784-200-200-classes, for 28×28 images in one channel: [batch, 1, 28, 28] or [batch, 784]."""
    layers = [nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, classes)]
    return nn.Sequential(nn.Flatten(), *layers)


def cifar_cnn(classes: int = 10) -> nn.Module:
    """Two 5×5 convolutions to 64 channels, each pooled to half, then 384-192-classes, for [batch, 3, 32, 32]."""
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),  # 32×32 becomes 28×28, then 14×14
        *(nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),  # 10×10, then 5×5
        *(nn.Flatten(), nn.Linear(64 * 5 * 5, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU()),
        nn.Linear(192, classes),
    )


def resnet18_gn(classes: int = 10) -> nn.Module:
    """ResNet-18 for [batch, 3, 32, 32], with GroupNorm instead of BatchNorm.

    Its first convolution is 3×3 with stride 1 and no pooling follows, as is usual for images this small.
    """
    layers: list[nn.Module] = [conv(3, 64), norm(64), nn.ReLU()]
    for before, channels, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [BasicBlock(before, channels, stride), BasicBlock(channels, channels, 1)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut: the input itself, or a 1×1 convolution where the shape changes."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(conv(before, channels, stride=stride), norm(channels), nn.ReLU()),
            *(conv(channels, channels), norm(channels)),
        )
        same = stride == 1 and before == channels
        self.shortcut = nn.Identity() if same else nn.Sequential(conv(before, channels, 1, stride), norm(channels))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.relu(self.body(inputs) + self.shortcut(inputs))


def conv(before: int, channels: int, size: int = 3, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps height and width (divided by the stride); the norm after it has the bias."""
    return nn.Conv2d(before, channels, size, stride=stride, padding=size // 2, bias=False)


def norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(GROUPS, channels)


MODELS: dict[str, Callable[[int], nn.Module]] = {
    "digits_mlp": digits_mlp,
    "mnist_2nn": mnist_2nn,
    "cifar_cnn": cifar_cnn,
    "resnet18_gn": resnet18_gn,
}
