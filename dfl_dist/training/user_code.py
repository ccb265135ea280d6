"""What a script hands over itself: a model, a data set, and who is told of each round."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from dfl_dist.data.datasets import ARRAYS
from dfl_dist.errors import name_as_users, refusal
from dfl_dist.models.supplied import NO_INSTANCE

# What each of them may be, for who has given something else.
FUNCTIONS = {
    "model": NO_INSTANCE,
    "data": f"a function that returns {', '.join(ARRAYS)}, such as lambda: (x, y, test_x, test_y)",
    "on_round": "a function that takes the metrics of a round, a dict",
}


@dataclass(frozen=True)
class UserCode:
    """The functions of a script, each of them None where it has none."""

    model: Callable[[], nn.Module] | None = None
    data: Callable[[], Any] | None = None
    on_round: Callable[[dict[str, Any]], None] | None = None

    def __post_init__(self) -> None:
        for key in FUNCTIONS:
            name_as_users(getattr(getattr(self, key), "__module__", None) or "")

    def check(self) -> None:
        """Refuse what is no function: a module or arrays themselves, or the name of a built-in one."""
        for key, allowed in FUNCTIONS.items():
            given = getattr(self, key)
            if isinstance(given, str):
                raise refusal(key, repr(given), f"{allowed}; a name is a setting, {key}.name")
            if isinstance(given, nn.Module) or not (given is None or callable(given)):
                raise refusal(key, f"an instance of {type(given).__name__}", allowed)

    def names(self) -> dict[str, str]:
        """The settings that say which functions these are."""
        given = {"model.name": self.model, "data.name": self.data}
        return {key: import_path(function) for key, function in given.items() if function is not None}


def import_path(function: Callable[..., Any]) -> str:
    """A function's name as an import path; by it a run is known again when it is resumed."""
    module, name = getattr(function, "__module__", "?"), getattr(function, "__qualname__", type(function).__name__)
    if module == "__main__" and (script := getattr(sys.modules["__main__"], "__file__", None)):
        module = Path(script).stem  # so it can be imported from the script's folder
    return f"{module}:{name}"
