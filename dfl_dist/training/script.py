"""The library call `dfl_dist.train`: a run within a user's own process, which is left as it was."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dfl_dist import Result
from dfl_dist.config.parse import from_script
from dfl_dist.distributed import groups
from dfl_dist.distributed.world import World
from dfl_dist.errors import ConfigError, PeerError, RunFaultError, UserCodeError, told_of
from dfl_dist.run_folder.job import Job, release
from dfl_dist.signals import InScript, require_linux, signals_restored
from dfl_dist.training.ending import tell_why, why_elsewhere
from dfl_dist.training.main import Call, run
from dfl_dist.training.screen import call_to_go_on, telling
from dfl_dist.training.user_code import UserCode


def train_from_script(
    config: Mapping[str, Any] | str | Path | None,
    *,
    model: Callable[[], nn.Module] | None,
    data: Callable[[], Any] | None,
    on_round: Callable[[dict[str, Any]], None] | None,
) -> Result:
    """The library call, made by every rank."""
    require_linux()
    world, user = World.from_environment(), UserCode(model, data, on_round)
    groups.check_unconnected()
    begun: list[Job] = []
    try:
        with telling(world.rank, tells=world.local_rank == 0), signals_restored(), torch_restored():
            settings = partial(from_script, config)
            call = Call(settings, user, InScript(), call_to_go_on, heard_by_all=True, on_job=begun.append)
            return run(call, world)
    except ConfigError as error:
        raise error.with_traceback(None) from None  # a mistake takes one line, not the places where it was noticed
    except UserCodeError as error:
        raise (error.__cause__ or error) from None  # a script sees its own exception
    except PeerError as error:
        if why := why_elsewhere():
            raise type(error)(f"{error}; {why}") from error.__cause__
        raise
    except RunFaultError:  # all ranks know
        raise
    except Exception as error:
        tell_why(told_of(error))
        raise
    finally:
        for job in begun if world.rank == 0 else ():
            release(job)
        groups.disconnect()


@contextlib.contextmanager
def torch_restored() -> Iterator[None]:
    """Leave torch's generators, its number of threads and whether it is deterministic as they were."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    try:
        with torch.random.fork_rng(gpus):
            yield
    finally:
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch.set_num_threads(threads)
