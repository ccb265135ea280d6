"""How a rank ends: what it says, what it tells its launcher, and its exit code."""

import logging
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import NoReturn

from dfl_dist import Result
from dfl_dist.distributed import groups, positions
from dfl_dist.distributed.world import World
from dfl_dist.errors import (
    ConfigError,
    PeerError,
    RunFaultError,
    StaleStartError,
    UserCodeError,
    is_of_disk,
    told_of,
    user_error,
)
from dfl_dist.run_folder.status import EXIT_CODES, FAILED, FINISHED, REFUSED, STOPPED, VERDICT, WHY, Status
from dfl_dist.signals import StopSignal
from dfl_dist.system import leave
from dfl_dist.text import format_bytes

log = logging.getLogger(__name__)


def conclude(status: Status, ending: str, why: str = "") -> None:
    """Tell the launchers of all hosts that the job has ended for good, so that none starts it again.

    `why` is for hosts whose own ranks do not know it.
    """
    tell_why(why)
    if status.is_there:
        groups.tell_word(VERDICT, ending)
    status.tell_ending(ending)


def tell_why(why: str) -> None:
    """Leave word for other hosts, their launchers or their ranks, why this rank fails."""
    if why:
        groups.tell_word(WHY, f"{World.from_environment().host} {why}")


def why_elsewhere() -> str:
    """What a rank of another host has told of its failure; empty where none has."""
    host, _, why = groups.hear_word(WHY).partition(" ")
    return f"host {host}: {why}" if why and int(host) != World.from_environment().host else ""


def end_well(result: Result, heard: StopSignal, status: Status) -> int:
    """The exit code of a run that has finished, or was stopped after a round."""
    conclude(status, FINISHED if result.finished else STOPPED)
    if result.finished or heard.number is None or torchrun_would_restart(status):
        return 0
    return 128 + heard.number


def torchrun_would_restart(status: Status) -> bool:
    """Whether torchrun would start again what was asked to stop, if it did not leave with 0."""
    most, so_far = (int(os.environ.get(f"TORCHELASTIC_{name}", 0)) for name in ("MAX_RESTARTS", "RESTART_COUNT"))
    return most > so_far and not status.is_there


def end_with_failure(error: ConfigError | RunFaultError | UserCodeError, world: World, status: Status) -> int:
    """The exit code where all ranks know why the run does not begin or go on; it is said once on each host."""
    shown = None if isinstance(error, RunFaultError) else error.shown
    if isinstance(error, UserCodeError) and error.details:
        show_user_error(error, world.rank, status)
    elif shown or (shown is None and world.local_rank == 0):
        print(f"dfl_dist: {error}", file=sys.stderr, flush=True)
    ending = REFUSED if isinstance(error, ConfigError) else FAILED
    conclude(status, ending)
    groups.leave_together()  # when it was said
    return EXIT_CODES[ending]


def show_user_error(error: UserCodeError, rank: int, status: Status) -> None:
    """The traceback of the user's own code: a launcher shows it at the very end, where a person looks."""
    text = f"{error.details}\ndfl_dist: {error}"
    if status.is_there:
        status.tell_last_words(rank, text)
    else:
        print(text, file=sys.stderr, flush=True)


def end_without_peer(error: PeerError, rank: int, status: Status, heard: StopSignal) -> NoReturn:
    """Leave where another rank did not do its part."""
    if heard.number == signal.SIGINT:  # as the other rank was, which had not begun yet
        if rank == 0:
            print(f"dfl_dist: stopped by {heard.name} within a round: {error}", file=sys.stderr, flush=True)
        leave_at_once(128 + heard.number)
    stale = is_stale(error)
    if stale:
        conclude(status, FAILED, str(error))  # started again, it would take the folder back
    words = None if stale else positions.explain(error)
    lost = words is None and not stale and not positions.has_timed_out(error)
    if lost and status.is_there:  # what happened to the other rank is told there
        print(f"[rank {rank}] {error}", flush=True)
    elif lost:
        log.error("%s", "; ".join(filter(None, (str(error), why_elsewhere()))))
    elif words != "":
        log.error("%s", words or error)
        tell_why((words or str(error)).splitlines()[-1])
    leave_at_once(1)


def is_stale(error: BaseException | None) -> bool:
    """Whether the run's folder was taken over by another start."""
    while error is not None and not isinstance(error, StaleStartError):
        error = error.__cause__
    return error is not None


def end_with_bug(error: Exception, rank: int, status: Status, folder: Path | None) -> NoReturn:
    """Leave after an unexpected error, with its traceback; of one in the user's own code only that code's, once.

    An error of the user's own is not tried again.
    """
    found = user_error("user code", error)
    if found is None and is_of_disk(error):
        end_without_disk(error, status, folder)
    if found is None:
        tell_why(told_of(error))
        log.error("failed", exc_info=error)
        leave_at_once(1)
    first = groups.is_first("user error")
    if first and status.is_there:
        show_user_error(found, rank, status)
    elif first:
        log.error("%s\n%s", found, found.details)
    elif not status.is_there:
        log.error("%s", found)
    conclude(status, FAILED, found.public)
    leave_at_once(1)


def end_without_disk(error: Exception, status: Status, folder: Path | None) -> NoReturn:
    """Leave where nothing can be written any more; what was complete is kept, and another start would fail the same."""
    what = f"the run folder{describe_room(folder) if folder else ''} cannot be written: {error}"
    if groups.is_first("disk"):
        hint = "make room; --resume goes on from the newest complete checkpoint, if one was written"
        print(f"dfl_dist: {what}; {hint}", file=sys.stderr, flush=True)
    conclude(status, FAILED, what)
    leave_at_once(1)


def describe_room(folder: Path) -> str:
    """A folder's name, and how much more its disk takes; a quota may be less."""
    try:
        return f" {os.path.relpath(folder)} ({format_bytes(shutil.disk_usage(folder).free)} free)"
    except OSError:
        return f" {os.path.relpath(folder)}"


def leave_at_once(code: int) -> NoReturn:
    """Exit without a clean-up that would wait for ranks that are gone."""
    leave(code)
