"""This host's part of a job: find the others, start the ranks, stop them after a round, give the job's exit code."""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from dfl_dist.errors import ConfigError, refusal
from dfl_dist.launcher.jobs import HEAD_LOST, TRAINER, Job, Meeting, Program, start
from dfl_dist.launcher.network import Interface, address_of, interface_towards, interfaces
from dfl_dist.run_folder import checkpoint, status
from dfl_dist.run_folder.files import check_can_be_made
from dfl_dist.run_folder.status import COMMAND, EXIT_CODES, FAILED, FINISHED, LAUNCH, REFUSED, STOPPED
from dfl_dist.signals import Interrupt, ignore_signals, name_signal

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
HEAD_WITHIN_S = 600.0  # hosts are started minutes apart
HEAD_GONE_WITHIN_S = 30.0
HEAD_POLL_S = 0.5
TELL_WITHIN_S = 10.0  # the other hosts of a refusal


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
        return Meeting(self.count, self.own, address_of(self.head), self.port, self.job_id, address)

    @property
    def head_answers(self) -> bool:
        """Whether somebody listens where the hosts meet."""
        try:
            with socket.create_connection((self.head, self.port), timeout=2.0):
                return True
        except OSError:
            return False


@dataclass(frozen=True)
class Launch:
    """What the command line asks for."""

    program: Program
    hosts: Hosts
    command: str  # its words up to the settings of the run
    token: str  # names this launch
    status: Path | None = None
    dry_run: bool = False  # only show what would be run
    noted: dict[str, object] = field(default_factory=dict)  # what was written down

    def note(self, job: Job) -> None:
        """Write down for scripts what the ranks have told; a disk that cannot be written is no reason to end them."""
        told = {"run": job.told.folder, "ending": job.told.ending}
        if self.status is None or told == self.noted:
            return
        self.noted.update(told)
        try:
            if job.told.folder:
                status.write_run(self.status, job.told.folder)
            if job.told.ending:
                status.write_ending(self.status, job.told.ending)
        except OSError as error:
            report(f"status: {self.status} cannot be written: {error}")


def run(launch: Launch, interrupt: Interrupt) -> int:
    """Start this host's ranks, supervise them to their end, and give the job's exit code."""
    hosts, program = launch.hosts, launch.program
    meeting, environment = find_place(launch)
    if program.logs:
        make_folder("logs", program.logs)
    met = time.monotonic()
    while True:
        if hosts.own > 0:
            wait_for_head(hosts, interrupt, met + HEAD_WITHIN_S)
        job = start(replace(program, meeting=meeting), environment=environment)
        code = job.wait(interrupt, on_signal=partial(stop, job), on_poll=partial(launch.note, job))
        if code != HEAD_LOST or interrupt.number is not None or job.told.ending:
            break
        met = time.monotonic() if job.told.folder else met
        time.sleep(HEAD_POLL_S)
    launch.note(job)
    stopped_by = interrupt.number
    ignore_signals()  # the work is done: a signal that comes now must not change its exit code
    if hosts.own > 0 and 0 <= code < 128:  # one that was killed may be started again at once, for host 0 goes on
        wait_for_head_to_leave(hosts)
    tell_end(launch, job, stopped_by)
    return exit_code(job.told.ending, stopped_by, code)


def tell_refusal(hosts: Hosts, why: str, interrupt: Interrupt) -> None:
    """Meet the other hosts only to tell them that this one refuses to start; who does not come soon is not told."""
    report(f"host {hosts.own} stays for {TELL_WITHIN_S:g} s at most, to tell the others")
    program = Program(TRAINER, [], ranks=1, refusal=why)
    with suppress(ConfigError):  # there is nowhere to meet
        meeting, environment = find_place(Launch(program, hosts, command="", token=""))
        end = time.monotonic() + TELL_WITHIN_S
        while hosts.own > 0 and not hosts.head_answers:
            if interrupt.number is not None or time.monotonic() > end:
                return
            time.sleep(HEAD_POLL_S)
        job = start(replace(program, meeting=meeting), environment=environment)
        end = time.monotonic() + TELL_WITHIN_S
        job.wait(
            interrupt,
            on_signal=lambda number: job.kill(),
            on_poll=lambda: job.kill() if time.monotonic() > end else None,
        )


def find_place(launch: Launch) -> tuple[Meeting, dict[str, str]]:
    """Where this host meets the others, and what its ranks are told; refused where that cannot be."""
    hosts = launch.hosts
    environment = {name: os.environ.get(name, "lo") for name in INTERFACES}
    meeting = Meeting(job_id=launch.token)
    if hosts.count > 1:
        address, environment = choose_interface(hosts.head)
        meeting = hosts.meeting(address)
    if hosts.count > 1 and hosts.own == 0:
        check_port(hosts.port)
    return meeting, environment | {COMMAND: launch.command, LAUNCH: launch.token}


def stop(job: Job, number: int) -> None:
    """The first signal: the run ends after its round, one that has not begun at once."""
    if job.stop(number):
        report("stopping after the current round; Ctrl-C again ends it at once")


def tell_end(launch: Launch, job: Job, stopped_by: int | None) -> None:
    """The last lines, where a person looks: what ended the job, a user's traceback, how to go on."""
    told, code = job.told, job.code or 0
    if told.words:
        print(told.words, file=sys.stderr, flush=True)
    if told.ending is not None or code == 0:
        return
    if stopped_by is not None:
        begun = "at once" if told.folder else "before the run began"
        report(f"stopped by {name_signal(stopped_by)}, {begun}")
    elif code < 0 or code > 128:
        who = "fork server" if code < 0 else "agent"
        report(f"the {who} of this job was killed by {signal.Signals(-code if code < 0 else code - 128).name}")
    if told.folder and checkpoint.complete(told.folder):
        report(f"go on with: {launch.command} --resume {os.path.relpath(told.folder)}")


def exit_code(ending: str | None, stopped_by: int | None, code: int) -> int:
    """The job's exit code: what the trainer said of its end goes before a signal, and that before the agent's code."""
    if ending in (REFUSED, FAILED):
        return EXIT_CODES[ending]
    if stopped_by is not None:
        return 0 if ending == FINISHED else 128 + stopped_by
    return 0 if ending in (FINISHED, STOPPED) else min(abs(code), 1)


def choose_interface(head: str) -> tuple[str, dict[str, str]]:
    """This host's address on the way to the head, and the settings that make gloo and NCCL use that interface."""
    given = os.environ.get(INTERFACES[0])
    found = interface_named(given) if given else interface_towards(head)
    return found.address, {name: os.environ.get(name, found.name) for name in INTERFACES}


def check_port(port: int) -> None:
    """Refuse a port at which something on this host listens already."""
    try:
        socket.create_server(("", port), reuse_port=False).close()
    except OSError as error:
        allowed = "a free one of host 0's, the same on all hosts"
        raise refusal("port", f"{port}, which cannot be had here ({os.strerror(error.errno or 0)})", allowed) from error


def interface_named(name: str) -> Interface:
    """The interface that the user has chosen."""
    have = interfaces()
    if name not in {one.name for one in have}:
        raise refusal(INTERFACES[0], name, f"one that is up and has an IPv4 address: {', '.join(map(str, have))}")
    return next(one for one in have if one.name == name)


def make_folder(key: str, folder: Path) -> None:
    with refused_where_it_cannot_be_made(key, folder):
        folder.mkdir(parents=True, exist_ok=True)


def check_folder(key: str, folder: Path) -> None:
    """Refuse a folder that `make_folder` would refuse; nothing is made."""
    with refused_where_it_cannot_be_made(key, folder):
        check_can_be_made(folder)


@contextmanager
def refused_where_it_cannot_be_made(key: str, folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{key}: given {folder}, which cannot be made: {error}") from error


def report(text: str) -> None:
    print(f"launch: {text}", file=sys.stderr, flush=True)


def wait_for_head(hosts: Hosts, interrupt: Interrupt, end: float) -> None:
    """Wait until host 0 was started too, until this moment at the most."""
    reported = False
    while not hosts.head_answers or time.monotonic() > end:
        if interrupt.number is not None:
            report(f"stopped by {name_signal(interrupt.number)} while host {hosts.own} waited for host 0")
            raise SystemExit(128 + interrupt.number)
        if time.monotonic() > end:
            raise ConfigError(
                f"head: given {hosts.head}, where no host 0 answered at port {hosts.port} for {HEAD_WITHIN_S:g} s; "
                "start host 0, or open the port to the other hosts"
            )
        if not reported:
            report(f"host {hosts.own} waits for host 0 at {hosts.head}:{hosts.port}")
            reported = True
        time.sleep(HEAD_POLL_S)


def wait_for_head_to_leave(hosts: Hosts) -> None:
    """Leave after host 0, whose exit code is the job's: what ends with the first to leave then ends with it."""
    end = time.monotonic() + HEAD_GONE_WITHIN_S
    while hosts.head_answers and time.monotonic() < end:
        time.sleep(0.2)
