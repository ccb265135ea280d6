"""How the ranks come to the same start: where one refuses, all do; what they have built is compared."""

import zlib
from collections.abc import Callable
from typing import TypeVar

import torch

from dfl_dist.config.names import is_import_path
from dfl_dist.config.schema import Config
from dfl_dist.config.values import get
from dfl_dist.data.datasets import Dataset
from dfl_dist.distributed.control import Control
from dfl_dist.distributed.world import World
from dfl_dist.errors import ConfigError, UserCodeError, refusal
from dfl_dist.training.build import Built
from dfl_dist.training.user_code import UserCode

T = TypeVar("T")
Refusal = ConfigError | UserCodeError


def agree_on(control: Control, action: Callable[[], T], what: str = "get ready") -> T:
    """Do something on every rank; where one refuses, all do, with its words."""
    result, problem = None, None
    try:
        result = action()
    except (ConfigError, UserCodeError) as error:
        problem = error
    raise_together(control, problem, what)
    return result  # type: ignore[return-value]


def raise_together(control: Control, problem: Refusal | None, what: str) -> None:
    """Raise what the lowest rank that has a problem says, on all ranks.

    The text of an exception in the user's code, and its traceback, stay on that rank, which then shows them itself; the
    others are told the type and the place.
    """
    kinds: dict[str, type[Refusal]] = {"refused": ConfigError, "failed": UserCodeError}
    told = None
    if problem is not None:
        kind = "failed" if isinstance(problem, UserCodeError) else "refused"
        private = "private" if kind == "failed" or problem.public != str(problem) else "open"
        told = f"{control.rank} {control.host} {private} {kind} {problem.public}"
    if found := control.agree(told, what):
        rank, host, private, kind, text = found.split(" ", 4)
        error = kinds[kind](f"{text} (on rank {rank})" if private == "private" else text)
        if problem is not None and int(rank) == control.rank:
            error = problem
        if private == "private" and int(host) == control.host:
            error.shown = error is problem
        raise error


def host_first(control: Control, world: World, action: Callable[[], T], what: str) -> T:
    """Do something on one rank of each host first, and on the others when what it left there can be shared."""
    first = world.local_rank == 0
    result = agree_on(control, lambda: action() if first else None, what)
    return agree_on(control, lambda: action() if result is None else result, what)


def build_alike(control: Control, world: World, config: Config, user: UserCode, own: Callable[[], Built]) -> Built:
    """The data set and the model on every rank: the same data, refused where it is not, and rank 0's parameters."""
    agree_on(control, lambda: check_functions(config, user, world.rank), "compare what they were given")
    built = host_first(control, world, own, "load the data")
    agree_on(control, lambda: check_same_data(control, world, built.dataset, config.data.name), "compare their data")
    params = built.model.params
    mark = zlib.crc32(params.cpu().numpy().tobytes())
    highest, lowest = control.all_reduce(torch.tensor([mark, -mark]), "compare their models", largest=True)
    if highest != -lowest:  # another kind of CPU, or a model with its own randomness
        params.copy_(control.broadcast(params.cpu(), "its initial parameters"))
    return built


def check_functions(config: Config, user: UserCode, rank: int) -> None:
    """Refuse a script that gives other functions on this rank than on rank 0."""
    user.check()
    for key, name in user.names().items():
        if get(config, key) != name:
            raise refusal(key, f"{name} on rank {rank}", f"{get(config, key)}, as on rank 0")


def check_same_data(control: Control, world: World, dataset: Dataset, name: str) -> None:
    """Refuse data that is not the same on all ranks, as a user-supplied function may make it.

    The ranks of a host read a built-in set from the same files, so one of them is enough.
    """
    looks = is_import_path(name) or world.local_rank == 0
    marks = control.gather_text(dataset.digest if looks else "", "compare their data")
    if others := [rank for rank, found in enumerate(marks) if found and found != marks[0]]:
        raise refusal("data.name", f"{name}, whose arrays on rank {others[0]} are not those on rank 0", "the same ones")
