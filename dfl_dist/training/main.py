"""A run on this rank from its settings to its results: what `python -m dfl_dist.train` and `dfl_dist.train(…)` call."""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from torch import nn

from dfl_dist import Result
from dfl_dist.config.parse import from_script, parse
from dfl_dist.distributed import groups
from dfl_dist.distributed.control import Control
from dfl_dist.distributed.world import World
from dfl_dist.errors import ConfigError, PeerError, RunFaultError, UserCodeError, user_error
from dfl_dist.run_folder.folder import check_seen
from dfl_dist.run_folder.job import Job
from dfl_dist.run_folder.status import EXIT_CODES, FAILED, FINISHED, REFUSED, STOPPED, StatusFolder
from dfl_dist.signals import StopSignal, require_linux, signals_restored
from dfl_dist.training.agreement import Refusal, agree_on, build_alike, raise_together
from dfl_dist.training.build import Built, UserCode, build
from dfl_dist.training.prepare import prepare_run
from dfl_dist.training.rounds import Rounds
from dfl_dist.training.screen import set_up_logging, tell_report
from dfl_dist.training.setup import assemble

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Call:
    """How a run was called for: its settings, which rank 0 alone reads, and what a script hands over."""

    settings: Callable[[], Mapping[str, Any]]
    user: UserCode
    heard_by_all: bool  # what rank 0 refuses: else it refuses before there is any group, and ends the job
    on_folder: Callable[[Path], None] = lambda folder: None


def run(call: Call, world: World) -> Result:
    """One run on this rank."""
    job, control, built = connect(call, world)
    stop = StopSignal()
    rounds = assemble(job, world, control, built, call.user, lambda: stop.received)
    del built  # a rank keeps its own clients' samples only
    stop.install()  # from here on; before, a signal simply ends the process
    control.timeout_s = job.resolved.timeout_s
    return finish(rounds, job, control, world)


def connect(call: Call, world: World) -> tuple[Job, Control, Built]:
    """Rank 0 prepares the run; then all ranks meet, hear of it, and build the same data and model."""
    prepared: tuple[Job, Built] | None = None
    refused: Refusal | None = None
    try:
        prepared = prepare_run(call.settings(), world, call.user) if world.rank == 0 else None
    except (ConfigError, UserCodeError) as error:
        if not call.heard_by_all:
            raise
        refused = error
    group = groups.connect(world)
    control = Control(group, rank=world.rank, world_size=world.size, timeout_s=groups.STARTUP_TIMEOUT_S)
    if call.heard_by_all:
        raise_together(control, refused, "plan the run")
    job = Job.from_text(control.broadcast_text(prepared[0].to_text() if prepared else "", "what to run"))
    call.on_folder(job.folder)
    control.timeout_s = max(groups.STARTUP_TIMEOUT_S, job.resolved.timeout_s)
    agree_on(control, lambda: check_seen(job.folder, job.start_id))

    def own() -> Built:
        return prepared[1] if prepared else build(job.resolved, world, call.user, resumes=job.checkpoint is not None)

    return job, control, build_alike(control, world, job.resolved, call.user, own)


def finish(rounds: Rounds, job: Job, control: Control, world: World) -> Result:
    """Run the rounds, write the results, wait until everything sent has left."""
    try:
        result = rounds.run(job.rounds_done, drained=job.drained)
        rounds.role.finish(result.mean, result.scores)
    finally:
        rounds.role.close()
    rounds.exchange.flush()
    control.finish()
    if world.rank == 0 and job.resolved.report:
        tell_report(job.folder)
    return Result(job.folder, rounds.done, result.scores, finished=rounds.done == job.resolved.rounds)


def train_from_script(
    config: Mapping[str, Any] | str | Path | None,
    *,
    model: Callable[[], nn.Module] | None,
    data: Callable[[], Any] | None,
    on_round: Callable[[dict[str, Any]], None] | None,
) -> Result:
    """The library call `dfl_dist.train`, made by every rank."""
    require_linux()
    world = World.from_environment()
    if not logging.getLogger().hasHandlers():
        set_up_logging(world.rank)
    groups.check_unconnected()
    try:
        with signals_restored():
            return run(Call(lambda: from_script(config), UserCode(model, data, on_round), heard_by_all=True), world)
    except UserCodeError as error:
        raise (error.__cause__ or error) from None  # a script sees its own exception
    finally:
        groups.disconnect()


def main(argv: list[str] | None = None) -> int:
    """The command line: one line and exit code 2 for a user's mistake; everything else that fails names its rank."""
    argv = sys.argv[1:] if argv is None else argv
    code, world, status = 0, World(), StatusFolder()
    try:
        require_linux()
        world = World.from_environment()
        status = StatusFolder.from_environment(world.local_rank)
        set_up_logging(world.rank)
        if world.rank > 0 and {"-h", "--help"} & set(argv):
            return 0
        call = Call(lambda: parse(argv), UserCode(), heard_by_all=status.is_there, on_folder=status.tell_folder)
        result = run(call, world)
        status.tell_ending(FINISHED if result.finished else STOPPED)
    except (ConfigError, RunFaultError, UserCodeError) as error:  # all ranks know, and leave together
        tell_failure(error, world)
        ending = REFUSED if isinstance(error, ConfigError) else FAILED
        status.tell_ending(ending)
        code = 0 if status.is_there else EXIT_CODES[ending]
    except PeerError as error:
        log.error("%s", error)
        leave_at_once(1)
    except KeyboardInterrupt:
        leave_at_once(130)
    except Exception as error:
        tell_bug(error)
        leave_at_once(1)
    groups.disconnect()
    return code


def tell_failure(error: Exception, world: World) -> None:
    """Say once why the run does not begin or go on; the rank whose user code failed shows that code's traceback."""
    if isinstance(error, UserCodeError) and error.details:
        print(error.details, file=sys.stderr)
        print(f"dfl_dist: {error}", file=sys.stderr, flush=True)
    elif world.rank == 0:
        print(f"dfl_dist: {error}", file=sys.stderr, flush=True)


def tell_bug(error: Exception) -> None:
    """Show the traceback of an unexpected error; of one in the user's own code only that code's, once for all ranks."""
    found = user_error("user code", error)
    if found is None:
        log.error("failed", exc_info=error)
    elif groups.is_first("user error"):
        log.error("%s\n%s", found, found.details)
    else:
        log.error("%s", found)


def leave_at_once(code: int) -> NoReturn:
    """Exit without a clean-up that would wait for ranks that are gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
