"""This host's part of a job: find the others, start the ranks, stop them after a round, give the job's exit code."""

import os
import secrets
import socket
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from dfl_dist.errors import ConfigError, refusal
from dfl_dist.launcher.network import Interface, interface_towards, interfaces
from dfl_dist.launcher.ranks import Meeting, Program, start_ranks
from dfl_dist.run_folder.status import EXIT_CODES, FAILED, FINISHED, REFUSED, STATUS, read_ending, read_run_folder
from dfl_dist.signals import Interrupt, ignore_signals

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
HEAD_WITHIN_S = 600.0  # hosts are started minutes apart
HEAD_GONE_WITHIN_S = 30.0


@dataclass(frozen=True)
class Hosts:
    """The hosts of a job, and which of them this is; host 0 is the head."""

    count: int
    own: int
    head: str
    port: int
    job_id: str

    def meeting(self, address: str) -> Meeting:
        """Where they meet, on a host that has this address."""
        return Meeting(self.count, self.own, self.head, self.port, self.job_id, address)

    @property
    def head_answers(self) -> bool:
        """Whether somebody listens where the hosts meet."""
        try:
            with socket.create_connection((self.head, self.port), timeout=2.0):
                return True
        except OSError:
            return False


def run(program: Program, hosts: Hosts, status: Path, interrupt: Interrupt) -> int:
    """Start this host's ranks, supervise them to their end, and give the job's exit code."""
    environment = {name: os.environ.get(name, "lo") for name in INTERFACES}
    if hosts.count > 1:
        address, environment = choose_interface(hosts.head)
        if hosts.own > 0:
            wait_for_head(hosts, interrupt)
        program = replace(program, meeting=hosts.meeting(address))
    if program.logs:
        make_folder("logs", program.logs)
    job = start_ranks(
        program,
        mark=secrets.token_hex(8),
        environment=environment | {STATUS: str(status)},
        prefix=f"[host {hosts.own}] ",
    )

    def on_signal(number: int) -> None:
        if folder := read_run_folder(status):
            (folder / "STOP").touch()
            report("stopping after the current round; Ctrl-C again ends it at once")
        else:  # it has not begun
            job.stop(number)

    code = job.wait(interrupt, on_signal=on_signal)
    ending, stopped_by = read_ending(status), interrupt.number
    ignore_signals()  # the work is done: a signal that comes now must not change its exit code
    if hosts.count > 1 and hosts.own > 0:
        wait_for_head_to_leave(hosts)
    return exit_code(ending, stopped_by, code)


def exit_code(ending: str | None, stopped_by: int | None, code: int) -> int:
    """The job's exit code: what the trainer said of its end goes before a signal, and that before torchrun's code."""
    if ending in (REFUSED, FAILED):
        return EXIT_CODES[ending]
    if stopped_by is not None:
        return 0 if ending == FINISHED else 128 + stopped_by
    return code


def choose_interface(head: str) -> tuple[str, dict[str, str]]:
    """This host's address on the way to the head, and the settings that make gloo and NCCL use that interface."""
    given = os.environ.get(INTERFACES[0])
    found = interface_named(given) if given else interface_towards(head)
    return found.address, {name: os.environ.get(name, found.name) for name in INTERFACES}


def interface_named(name: str) -> Interface:
    """The interface that the user has chosen."""
    have = interfaces()
    if name not in {one.name for one in have}:
        raise refusal(INTERFACES[0], name, f"one that is up and has an IPv4 address: {', '.join(map(str, have))}")
    return next(one for one in have if one.name == name)


def make_folder(key: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{key}: given {folder}, which cannot be made: {error}") from error


def report(text: str) -> None:
    print(f"launch: {text}", file=sys.stderr, flush=True)


def wait_for_head(hosts: Hosts, interrupt: Interrupt) -> None:
    """Wait until host 0 was started too."""
    end, reported = time.monotonic() + HEAD_WITHIN_S, False
    while not hosts.head_answers:
        if interrupt.number is not None:
            raise SystemExit(128 + interrupt.number)
        if time.monotonic() > end:
            raise ConfigError(
                f"head: given {hosts.head}, where nothing answered at port {hosts.port} for {HEAD_WITHIN_S:g} s; "
                "start host 0, or open the port to the other hosts"
            )
        if not reported:
            report(f"host {hosts.own} waits for host 0 at {hosts.head}:{hosts.port}")
            reported = True
        time.sleep(0.5)


def wait_for_head_to_leave(hosts: Hosts) -> None:
    """Leave after host 0, whose exit code is the job's: what ends with the first to leave then ends with it."""
    end = time.monotonic() + HEAD_GONE_WITHIN_S
    while hosts.head_answers and time.monotonic() < end:
        time.sleep(0.2)
