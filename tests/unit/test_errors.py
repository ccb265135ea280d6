"""What can go wrong, and whose mistake it is: the user's setting, the user's code, or ours."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dfl_dist.algorithms.table import ALGORITHMS
from dfl_dist.config.resolve import resolve
from dfl_dist.errors import (
    ArgumentError,
    ConfigError,
    UserCodeError,
    fail_as_user,
    name_as_users,
    nearest,
    one_line,
    refusal,
    refused_as,
    told_of,
    user_error,
)
from dfl_dist.models.flat import FlatModel
from dfl_dist.run_folder.recorder import Recorder

# A user's setting.


def test_a_refusal_names_key_and_value_what_is_allowed_and_the_nearest_name() -> None:
    assert str(refusal("rounds", 0, "1 or more")) == "rounds: given 0, allowed: 1 or more"
    found = refusal("algorithm", "sgpp", "sgp, osgp", ["sgp", "osgp"])
    assert str(found) == "algorithm: given sgpp, allowed: sgp, osgp (did you mean sgp?)"
    assert "did you mean" not in str(refusal("algorithm", "xyz", "sgp, osgp", ["sgp", "osgp"]))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("dfedsgspm", "dfedsgpsm"),  # two letters changed places; dfedsgpm lacks one
        ("DFedSGPSM", "dfedsgpsm"),
        ("DFEDSAM", "dfedsam"),
        ("dfedsgps", "dfedsgpsm"),
        ("xyz", None),
    ],
)
def test_the_nearest_name_is_the_one_that_was_meant(given: str, meant: str | None) -> None:
    assert nearest(given, ALGORITHMS) == meant


def test_an_error_is_told_in_one_line() -> None:
    assert one_line(OSError("no\n  disk")) == "OSError: no disk"


def test_a_refused_argument_is_told_as_the_setting_it_came_from() -> None:
    with pytest.raises(ConfigError) as error, refused_as(file="graph.file", weights="graph.weights"):
        raise ArgumentError("weights", "metropolis", "out-degree")
    assert str(error.value) == "graph.weights: given metropolis, allowed: out-degree"
    assert isinstance(error.value.__cause__, ArgumentError)


@pytest.mark.parametrize("error", [ValueError("operands could not be broadcast"), ConfigError("seed: …"), OSError()])
def test_any_other_error_is_left_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as found, refused_as(weights="graph.weights"):
        raise error
    assert found.value is error


def test_an_argument_without_a_setting_is_a_bug() -> None:
    with pytest.raises(KeyError), refused_as(weights="graph.weights"):
        raise ArgumentError("model", "a model", "another")


# A user's code.


def caught(action: Callable[[], Any]) -> Exception:
    try:
        action()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def fails(line: dict[str, Any]) -> None:
    divide(line["round"])


def divide(number: int) -> None:
    1 / number


def call_back(folder: Path) -> None:
    """Our code, with a user's function that it calls."""
    with closing(Recorder(folder, [fails])) as recorder:
        recorder.write({"round": 0}, {})


def train_on(module: nn.Module) -> Callable[[], object]:
    """Our code, with a model that it trains: on inputs of 5 numbers."""
    model = FlatModel(module, device=torch.device("cpu"), dtype=torch.float32)
    return lambda: model.gradient(torch.zeros(2, 5), torch.zeros(2, dtype=torch.int64))


def test_an_error_in_a_callback_is_the_users_and_shows_only_the_users_frames(tmp_path: Path) -> None:
    found = user_error("on_round", caught(lambda: call_back(tmp_path)))
    assert found is not None
    line = divide.__code__.co_firstlineno + 1
    assert str(found) == f"on_round failed: ZeroDivisionError in test_errors.py, line {line}"
    assert found.details.startswith("Traceback (most recent call last):\n")
    assert found.details.endswith("ZeroDivisionError: division by zero")
    assert [name for name in ("in fails", "in divide", "in write", "in call_back") if name in found.details] == [
        *("in fails", "in divide"),
    ]


class Misfit(nn.Module):
    """A user's model, whose own code lies between ours and torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.linear(inputs)  # type: ignore[no-any-return]


def test_an_error_in_torch_that_a_users_model_calls_is_the_users() -> None:
    found = user_error("user code", caught(train_on(Misfit())))
    assert found is not None
    line = Misfit.forward.__code__.co_firstlineno + 1
    assert str(found) == f"user code failed: RuntimeError in test_errors.py, line {line}", "not where torch noticed it"
    assert "return self.linear(inputs)" in found.details
    assert "flat.py" not in found.details


@pytest.mark.parametrize("file", ["<stdin>", "<python-input-3>", "<ipython-input-1-0a>", "/tmp/ipykernel_7/42.py"])
def test_what_was_typed_is_the_users(tmp_path: Path, file: str) -> None:
    typed: dict[str, Any] = {}
    exec(compile("def listen(line):\n    1 / line['round']", file, "exec"), typed)
    with closing(Recorder(tmp_path, [typed["listen"]])) as recorder:
        found = user_error("on_round", caught(lambda: recorder.write({"round": 0}, {})))
    assert str(found) == f"on_round failed: ZeroDivisionError in {Path(file).name}, line 2"


def test_a_package_that_a_setting_names_is_the_users_though_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dfl_dist.errors.NAMED", set())
    package: dict[str, Any] = {"__name__": "theirs.listeners"}
    code = "def listen(line):\n    raise KeyError('a sample of Ann')"
    exec(compile(code, "/usr/lib/python3/site-packages/theirs/listeners.py", "exec"), package)
    with closing(Recorder(tmp_path, [package["listen"]])) as recorder:
        error = caught(lambda: recorder.write({"round": 0}, {}))
    assert user_error("on_round", error) is None
    assert told_of(error) == "failed: KeyError in listeners.py, line 2", "never its text"
    name_as_users("theirs.nets")
    assert str(user_error("on_round", error)) == "on_round failed: KeyError in listeners.py, line 2"
    assert told_of(error) == "user code failed: KeyError in listeners.py, line 2"


def test_an_error_in_torch_that_we_call_is_ours() -> None:
    name_as_users("torch.nn")  # by a user who takes a model from there
    assert user_error("user code", caught(train_on(nn.Linear(6, 3)))) is None


def test_an_error_in_our_own_code_is_ours() -> None:
    """Though it was the user, here this test, who called us."""
    assert user_error("user code", caught(lambda: resolve({}))) is None


def test_what_is_known_to_be_the_users_stays_so() -> None:
    error = UserCodeError("on_round failed: …", "a traceback")
    assert user_error("user code", error) is error


def blame_user(action: Callable[[], Any]) -> None:
    try:
        action()
    except Exception:
        fail_as_user("on_round")


def test_fail_as_user_raises_the_users_error_and_leaves_ours(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match=r"^on_round failed: ZeroDivisionError") as found:
        blame_user(lambda: call_back(tmp_path))
    assert isinstance(found.value.__cause__, ZeroDivisionError)
    blame_user(lambda: resolve({}))
