"""A run on this rank from its settings to its results, and `python -m dfl_dist.train`, which calls it."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dfl_dist import Result
from dfl_dist.config.parse import parse
from dfl_dist.distributed import groups, positions
from dfl_dist.distributed.control import Control
from dfl_dist.distributed.world import World
from dfl_dist.errors import ConfigError, PeerError, RunFaultError, UserCodeError
from dfl_dist.run_folder.fence import Fence
from dfl_dist.run_folder.folder import check_seen
from dfl_dist.run_folder.job import Job
from dfl_dist.run_folder.status import Status
from dfl_dist.run_folder.trackers import patience_s
from dfl_dist.signals import Stops, require_linux, stops_of_command
from dfl_dist.training.agreement import Refusal, agree_on, build_alike, raise_together
from dfl_dist.training.build import Built, build
from dfl_dist.training.dry_run import FLAG, dry_run
from dfl_dist.training.ending import end_well, end_with_bug, end_with_failure, end_without_peer, leave_at_once
from dfl_dist.training.hosts import with_own_settings
from dfl_dist.training.prepare import prepare_run
from dfl_dist.training.results import read_result
from dfl_dist.training.rounds import Rounds
from dfl_dist.training.screen import command_to_go_on, set_up_logging, tell_finished_already, tell_report
from dfl_dist.training.setup import assemble
from dfl_dist.training.user_code import UserCode

REPORT_WITHIN_S = 30.0  # the other ranks wait for it, so that a job which loses rank 0 there is started again


@dataclass(frozen=True)
class Call:
    """How a run was called for: its settings, which rank 0 alone reads, and what a script hands over."""

    settings: Callable[[], Mapping[str, Any]]
    user: UserCode
    stops: Stops
    go_on: Callable[[Path], str]  # what a person is told who wants to go on after a stop
    heard_by_all: bool  # what rank 0 refuses: else it refuses before there is any group, and ends the job
    on_job: Callable[[Job], None] = lambda job: None


def run(call: Call, world: World) -> Result:
    """One run on this rank."""
    job, control, built = connect(call, world)
    fence = Fence(job.folder, job.start_id)
    if built is None:
        return finish_again(job, control, fence, call)
    rounds = assemble(
        job,
        world,
        control,
        built,
        call.user,
        fence=fence,
        wish_to_stop=lambda: call.stops.heard.name,
        go_on=call.go_on(job.folder),
    )
    del built  # a rank keeps its own clients' samples only
    call.stops.begin()
    control.timeout_s = job.resolved.timeout_s
    return finish(rounds, job, control, fence, call)


def connect(call: Call, world: World) -> tuple[Job, Control, Built | None]:
    """Rank 0 prepares the run; then all ranks meet, hear of it, and build the same data and model, if there is need."""
    prepared: tuple[Job, Built | None] | None = None
    refused: Refusal | None = None
    try:
        prepared = prepare_run(call.settings(), world, call.user) if world.rank == 0 else None
    except (ConfigError, UserCodeError) as error:
        if not call.heard_by_all:
            raise
        refused = error
    group = groups.connect(world)
    timeout_s = groups.STARTUP_TIMEOUT_S
    control = Control(group, rank=world.rank, world_size=world.size, timeout_s=timeout_s, host=world.host)
    if call.heard_by_all:
        raise_together(control, refused, "plan the run")
    job = Job.from_text(control.broadcast_text(prepared[0].to_text() if prepared else "", "what to run"))
    job = with_own_settings(job, control, world, call.settings)
    call.on_job(job)
    control.timeout_s = max(groups.STARTUP_TIMEOUT_S, job.resolved.timeout_s)
    agree_on(control, lambda: check_seen(job.folder, job.start_id))

    if job.finished:
        return job, control, None
    ready = prepared[1] if prepared else None

    def own() -> Built:
        return ready or build(job.resolved, world, call.user, resumes=job.checkpoint is not None)

    return job, control, build_alike(control, world, job.resolved, call.user, own)


def finish(rounds: Rounds, job: Job, control: Control, fence: Fence, call: Call) -> Result:
    """Run the rounds, write the results, wait until everything sent has left."""
    try:
        result = rounds.run(job.rounds_done, drained=job.drained)
        rounds.role.finish(result.mean, result.scores)
    except RunFaultError:  # on all ranks
        rounds.role.close()
        report(job, control, fence)
        raise
    finally:
        rounds.role.close()
    finished = rounds.done == job.resolved.rounds or rounds.has_enough
    if finished and control.rank == 0:  # which has written the results; the others know when all have come this far
        call.stops.finish()
    rounds.exchange.flush()
    control.finish()
    if finished:
        call.stops.finish()
    report(job, control, fence)
    return Result(job.folder, rounds.done, result.scores, finished, call.user.model)


def report(job: Job, control: Control, fence: Fence) -> None:
    """Rank 0 writes the report, if one is asked for; all leave when it is there and the trackers have been told."""
    if not (job.resolved.report or job.resolved.tracker):
        return
    if control.rank == 0 and job.resolved.report:
        fence.check()
        tell_report(job.folder)
    control.timeout_s = max(control.timeout_s, REPORT_WITHIN_S)
    control.all_reduce(torch.zeros(1), "leave")


def finish_again(job: Job, control: Control, fence: Fence, call: Call) -> Result:
    """The end of a job that had finished its run when it was started again: what may be missing is the report."""
    call.stops.begin()
    call.stops.finish()
    result = read_result(job.folder, call.user.model)
    if control.rank == 0:
        tell_finished_already(job.folder, result.rounds, job.resolved.rounds, result.scores)
    control.finish()
    report(job, control, fence)
    return result


def main(argv: list[str] | None = None) -> int:
    """The command line: one line and exit code 2 for a user's mistake; everything else that fails names its rank."""
    with stops_of_command() as stops:
        return run_command(sys.argv[1:] if argv is None else argv, stops)


def run_command(argv: list[str], stops: Stops) -> int:
    """One run on this rank; its exit code."""
    world, status = World(), Status()
    folder: Path | None = None

    def on_job(job: Job) -> None:
        nonlocal folder
        folder = job.folder
        timeout_s = job.resolved.timeout_s
        status.tell_run(job.folder, timeout_s, patience_s(timeout_s) if job.resolved.tracker else 0.0)
        positions.limit_silence(timeout_s)

    try:
        require_linux()
        world = World.from_environment()
        status = Status.from_environment(world.local_rank)
        set_up_logging(world.rank, tells=world.local_rank == 0)
        if world.rank > 0 and {"-h", "--help", FLAG} & set(argv):
            return 0
        if FLAG in argv:
            print(dry_run(parse([word for word in argv if word != FLAG]), world), flush=True)
            return 0
        call = Call(
            lambda: parse(argv),
            UserCode(),
            stops,
            command_to_go_on,
            heard_by_all=status.is_there or world.size > world.local_size,
            on_job=on_job,
        )
        code = end_well(run(call, world), stops.heard, status)
    except (ConfigError, RunFaultError, UserCodeError) as error:  # all ranks know, and leave together
        code = end_with_failure(error, world, status)
    except PeerError as error:
        end_without_peer(error, world.rank, status, stops.heard)
    except KeyboardInterrupt:
        leave_at_once(130)
    except Exception as error:
        end_with_bug(error, world.rank, status, folder)
    groups.disconnect()
    return code
