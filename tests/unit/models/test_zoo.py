"""The built-in models: their sizes and shapes, and that every parameter of them is trained."""

import pytest
import torch
from torch import Tensor, nn

from dfl_dist.data.vision import torchvision
from dfl_dist.models.flat import FlatModel
from dfl_dist.models.zoo import MODELS, digits_mlp, resnet18_gn

SHAPES = {"digits_mlp": (64,), "mnist_2nn": (1, 28, 28), "cifar_cnn": (3, 32, 32), "resnet18_gn": (3, 32, 32)}
SIZES = [
    ("digits_mlp", 10, 55_210),
    ("mnist_2nn", 10, 199_210),
    ("cifar_cnn", 10, 797_962),
    ("cifar_cnn", 100, 815_332),
    ("resnet18_gn", 10, 11_173_962),
    ("resnet18_gn", 100, 11_220_132),
]


def inputs_of(name: str, count: int) -> Tensor:
    return torch.randn(count, *SHAPES[name], generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("name", "classes", "parameters"), SIZES)
def test_sizes_and_shapes(name: str, classes: int, parameters: int) -> None:
    model = MODELS[name](classes)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    with torch.no_grad():
        assert model(inputs_of(name, 3)).shape == (3, classes)


def test_models_have_ten_classes_unless_asked() -> None:
    assert digits_mlp()(torch.zeros(3, 64)).shape == (3, 10)


def test_two_layers_take_flat_images_too() -> None:
    model, images = MODELS["mnist_2nn"](10), inputs_of("mnist_2nn", 3)
    assert torch.equal(model(images), model(images.reshape(3, 784)))


@pytest.mark.parametrize("name", SHAPES)
def test_a_gradient_reaches_every_parameter(name: str) -> None:
    torch.manual_seed(0)
    module = MODELS[name](10)
    flat = FlatModel(module, device=torch.device("cpu"), dtype=torch.float32)
    assert flat.size == sum(parameter.numel() for parameter in module.parameters())
    loss = flat.gradient(inputs_of(name, 8), torch.arange(8))
    assert 1 < float(loss) < 5, "about log 10, as nothing is known yet"
    for parameter_name, parameter in module.named_parameters():
        assert parameter.grad is not None
        assert bool(parameter.grad.isfinite().all())
        assert bool(parameter.grad.any()), parameter_name


@pytest.mark.parametrize("name", SHAPES)
def test_initial_parameters_follow_the_seed(name: str) -> None:
    def initial(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(MODELS[name](10).parameters())

    first = initial(0)
    assert torch.equal(first, initial(0))
    assert not torch.equal(first, initial(1))


@pytest.mark.parametrize("name", SHAPES)
def test_an_image_is_judged_by_itself(name: str) -> None:
    torch.manual_seed(0)
    model, images = MODELS[name](10), inputs_of(name, 4)
    assert model.training
    with torch.no_grad():
        others = torch.cat([images[:1], 5 * images[1:] + 3])
        torch.testing.assert_close(model(others)[0], model(images)[0], rtol=1e-5, atol=1e-5)


def test_resnet_is_that_of_torchvision() -> None:
    """Their ResNet-18, its norm and its stem replaced, computes the same from the same parameters in the same order."""
    torch.manual_seed(0)
    own = resnet18_gn(100)
    theirs = torchvision.models.resnet18(num_classes=100, norm_layer=lambda channels: nn.GroupNorm(32, channels))
    theirs.conv1, theirs.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    pairs = list(zip(own.parameters(), theirs.parameters(), strict=True))
    assert [ours.shape for ours, _ in pairs] == [their.shape for _, their in pairs]
    with torch.no_grad():
        for ours, their in pairs:
            ours.add_(torch.randn_like(ours), alpha=0.1)  # norms too, which all begin alike
            their.copy_(ours)
        images = inputs_of("resnet18_gn", 2)
        torch.testing.assert_close(own(images), theirs(images), rtol=1e-4, atol=1e-4)


def test_convolutions_of_the_resnet_start_as_he_et_al_say() -> None:
    torch.manual_seed(0)
    convolutions = [module for module in resnet18_gn().modules() if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == 20
    for module in convolutions[1:]:  # the first has too few weights to tell
        fan_out = module.out_channels * module.kernel_size[0] ** 2
        assert float(module.weight.detach().std()) == pytest.approx((2 / fan_out) ** 0.5, rel=0.03)
