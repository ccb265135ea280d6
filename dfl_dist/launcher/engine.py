"""The agent's process: torch's engine set up for this host, run to its end."""

import json
import logging
import os
import resource
import socket
import time
from contextlib import nullcontext
from typing import Any

import torch
from torch.distributed import DistNetworkError
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousHandler,
    RendezvousParameters,
    RendezvousTimeoutError,
    dynamic_rendezvous,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from dfl_dist.errors import one_line
from dfl_dist.launcher.agent import Agent, Ranks
from dfl_dist.launcher.fork_server import Server
from dfl_dist.launcher.jobs import HEAD_LOST, Meeting, Program
from dfl_dist.launcher.meeting import MeetingError
from dfl_dist.launcher.news import News
from dfl_dist.launcher.output import Output
from dfl_dist.launcher.words import said_after, say
from dfl_dist.run_folder.status import REFUSED
from dfl_dist.system import names_from_files

RANKS_ON_ONE_HOST = 8  # without GPUs
MONITOR_S = 0.1
HOSTS_WITHIN_S = 600  # hosts are started minutes apart
ANSWER_WITHIN_S = 2.0  # what listens at the port of host 0, before a person is told that it does not
LOOK_S = 0.1  # hosts that wait for others look so often who has come; the engine by itself once a second
ALIVE_EVERY_S, MISSED = 2, 3  # a host that has not said so often that it is there is gone


def run_agent(program: Program, server: Server, command: socket.socket) -> int:
    """Run a program's ranks to their end, through restarts; the exit code."""
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # or a host that comes back is not found again
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # it tells what happens in its own words
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # two pipes and a log for each rank
    output = Output(1, 2)
    news = News(command, lambda folder: output.keep_in(program.logs or folder / "logs"), output.keep)
    output.listen(news.own.fileno(), news.hear)
    with names_from_files():
        return meet_and_run(program, server, output, news)


def meet_and_run(program: Program, server: Server, output: Output, news: News) -> int:
    """The engine itself."""
    at = program.meeting
    silent = f"host {at.host} waits for host 0 at {at.head}:{at.port}: what answers there does not speak like dfl_dist"
    try:
        with said_after(ANSWER_WITHIN_S, silent) if at.host > 0 else nullcontext():
            handler = make_handler(at)
    except RendezvousConnectionError as error:
        return no_meeting(at, error)
    ranks = Ranks(
        program.target,
        list(program.arguments),
        program.start,
        at.hosts,
        at.host,
        at.address,
        program.timeout_s,
        program.refusal,
    )
    agent = Agent(spec_of(program, handler), ranks, server, output, news)
    try:
        if result := agent.run():
            return int(result.is_failed())
        raise RendezvousClosedError
    except MeetingError as error:
        if text := str(error):
            say(text)
        news.hear(json.dumps({"ending": REFUSED}).encode())
        return 1
    except RendezvousClosedError:
        say("another host has ended the job")
        return 1
    except (RendezvousConnectionError, DistNetworkError) as error:
        return 0 if agent.is_done else no_meeting(at, error)
    except RendezvousTimeoutError:
        say(f"not all of the {at.hosts} hosts came within {HOSTS_WITHIN_S} s")
        return 1
    except RendezvousError as error:
        say(f"the hosts did not meet: {one_line(error)}")
        return 1
    finally:
        handler.shutdown()


def make_handler(at: Meeting) -> RendezvousHandler:
    """Where the hosts meet: torch's own rendezvous, with less patience."""
    dynamic_rendezvous._delay = lambda seconds: time.sleep(LOOK_S)  # type: ignore[attr-defined]
    parameters = RendezvousParameters(
        "c10d",
        f"{at.head}:{at.port}",
        at.job_id,
        at.hosts,
        at.hosts,
        local_addr=at.address,
        is_host=at.host == 0,
        join_timeout=HOSTS_WITHIN_S,
        keep_alive_interval=ALIVE_EVERY_S,
        keep_alive_max_attempt=MISSED,
    )
    handler: Any = get_rendezvous_handler(parameters)
    handler._state_holder._cache_duration = LOOK_S
    found: RendezvousHandler = handler
    return found


def count_ranks(program: Program) -> int:
    """How many ranks a program has on this host."""
    if program.ranks:
        return program.ranks
    if gpus := torch.cuda.device_count():
        return gpus + program.without_gpu
    return RANKS_ON_ONE_HOST if program.meeting.hosts == 1 else len(os.sched_getaffinity(0))


def spec_of(program: Program, handler: RendezvousHandler) -> WorkerSpec:
    return WorkerSpec(
        role="default",
        local_world_size=count_ranks(program),
        rdzv_handler=handler,
        entrypoint=program.target,
        max_restarts=program.restarts,
        monitor_interval=MONITOR_S,
    )


def no_meeting(at: Meeting, error: Exception) -> int:
    """Say why there is nowhere to meet."""
    if at.host == 0:
        say(f"the hosts cannot meet at {at.head}:{at.port}: {one_line(error.__cause__ or error)}")
        return 1
    say(f"host 0 is not there any more (at {at.head}:{at.port})")
    return HEAD_LOST
