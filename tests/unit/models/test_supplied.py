"""User-supplied models: what is refused before a run begins, and whose error it is."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import misfit, softmax
from torch import nn

from dfl_dist.errors import ArgumentError, UserCodeError
from dfl_dist.models.supplied import call_model, check_fit, load_parameters
from dfl_dist.training.user_code import FUNCTIONS

SAMPLE = torch.zeros(1, 64)


def fails() -> nn.Module:
    raise ValueError("no such layer")


def test_a_function_must_return_a_module() -> None:
    assert isinstance(call_model("m:softmax", softmax), nn.Linear)
    with pytest.raises(ArgumentError) as error:
        call_model("m:number", lambda: 3)
    allowed = "a function without arguments that returns a torch module"
    assert str(error.value) == f"model: given m:number, which returns a int, allowed: {allowed}"


def test_an_error_in_the_function_is_the_users() -> None:
    with pytest.raises(
        UserCodeError, match=r"^model\.name: m:fails failed: ValueError in test_supplied\.py, line "
    ) as error:
        call_model("m:fails", fails)
    assert 'raise ValueError("no such layer")' in error.value.details
    assert "call_model" not in error.value.details


def test_a_function_that_needs_arguments_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^model: given m:Linear, which fails when it is called: TypeError: "):
        call_model("m:Linear", nn.Linear)


def test_a_module_itself_is_refused_with_what_makes_a_function_of_it() -> None:
    """As in the library call; a module can be called too, but not without arguments."""
    with pytest.raises(ArgumentError) as error:
        call_model("m:net", nn.Linear(64, 10))  # type: ignore[arg-type]
    assert str(error.value) == f"model: given m:net, an instance of Linear, allowed: {FUNCTIONS['model']}"


@pytest.mark.parametrize(
    ("module", "given"),
    [
        (misfit(), r"m, which does not take inputs of shape \['batch', 64\]: RuntimeError: "),
        (nn.Linear(64, 9), r"m, whose output for one sample is \[1, 9\], allowed: \[1, 10\], a score for each class"),
        (nn.Unflatten(1, (8, 8)), r"m, whose output for one sample is \[1, 8, 8\]"),
        (nn.LSTM(64, 10), "m, whose output for one sample is a tuple"),
    ],
)
def test_a_model_must_fit_the_data(module: nn.Module, given: str) -> None:
    with pytest.raises(ArgumentError, match=f"^model: given {given}"):
        check_fit(module, "m", SAMPLE, 10)


def test_a_model_that_fits_is_left_as_it_was() -> None:
    module = softmax()
    check_fit(module, "m", SAMPLE, 10)
    assert module.training
    assert all(parameter.grad is None for parameter in module.parameters())


class Fragile(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        raise KeyError("table")


def test_an_error_in_the_users_forward_is_the_users() -> None:
    with pytest.raises(UserCodeError, match=r"^model\.name: m failed: KeyError in test_supplied\.py"):
        check_fit(Fragile(), "m", SAMPLE, 10)


def test_parameters_come_from_a_state_dict(tmp_path: Path) -> None:
    source, module = softmax(), softmax()
    torch.save(source.state_dict(), tmp_path / "model.pt")
    load_parameters(module, str(tmp_path / "model.pt"))
    assert torch.equal(module.weight, source.weight)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "which cannot be read: No such file"),
        ({"weight": torch.zeros(3)}, "which does not fit the model: "),
        (3, ""),
    ],
)
def test_parameters_that_do_not_fit_are_refused(tmp_path: Path, content: Any, reason: str) -> None:
    path = tmp_path / "model.pt"
    if content is not None:
        torch.save(content, path)
    with pytest.raises(ArgumentError, match="allowed: a state_dict of this model") as error:
        load_parameters(softmax(), str(path))
    assert str(error.value).startswith(f"file: given {path}, {reason}")
