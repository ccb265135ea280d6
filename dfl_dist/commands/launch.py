"""`dfl-dist launch`: torchrun as it should be started, on one host or on each of several."""

import contextlib
import os
import re
import secrets
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from dfl_dist import launched
from dfl_dist.arguments import parse
from dfl_dist.commands.options import split
from dfl_dist.commands.processes import Interrupt, caught, follow, hand_on, ignore, start_torchrun
from dfl_dist.config import ConfigError, refusal
from dfl_dist.network import Interface, interfaces, towards
from dfl_dist.tables import show

OPTIONS = {
    "ranks": "processes on this host, -n for short (default: 8 on one host; on several one a GPU, or one a core)",
    "hosts": "how many hosts take part (default: 1)",
    "host": "which of them this is, 0 to hosts - 1; host 0 is the head",
    "head": "the head's address or name, as all hosts reach it",
    "port": "a free port of the head, where the hosts meet (default: 29400)",
    "id": "what this job is called, the same on all hosts: started again under it, an unfinished run goes on",
    "restarts": "how often to start again when a rank fails, from the newest checkpoint (default: 3)",
    "logs": "a folder for what each rank prints; without it everything goes to the screen",
    "status": "a folder that tells a script of the run: run, a link to its folder; ending, a word",
}
DEFAULTS = {"hosts": "1", "port": "29400", "restarts": "3", "id": "dfl_dist"}
WHOLE_NUMBERS = {"ranks": 1, "hosts": 1, "host": 0, "port": 1, "restarts": 0}  # the smallest of each
MARK = "DFL_LAUNCH"  # in the environment of all processes of a launch
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # torch warns of every address without a name
HEAD_WITHIN_S = 600.0  # hosts are started minutes apart
HEAD_GONE_WITHIN_S = 30.0


@dataclass(frozen=True)
class Launch:
    """What this host is to start, and its place among the others."""

    ranks: str
    hosts: int
    host: int
    head: str
    port: int
    id: str
    restarts: int
    logs: str | None
    status: str | None
    program: list[str]  # what follows torchrun's own arguments

    def command(self, address: str) -> list[str]:
        """torchrun's arguments, on a host that has this address."""
        words = [f"--nproc-per-node={self.ranks}", f"--max-restarts={self.restarts}"]
        if self.hosts == 1:
            words.append("--standalone")
        else:
            words += [f"--nnodes={self.hosts}", "--rdzv-backend=c10d", f"--rdzv-endpoint={self.head}:{self.port}"]
            words += [f"--rdzv-id={self.id}", f"--rdzv-conf=is_host={int(self.host == 0)}", f"--local-addr={address}"]
        if self.logs:
            words += [f"--log-dir={Path(self.logs) / f'host-{self.host}'}", "--redirects=3", "--tee=0:3"]
        return [*words, *self.program]


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(help_text())
        return 0
    launch = read(argv)
    with caught() as interrupt, contextlib.ExitStack() as stack:
        status = Path(launch.status or stack.enter_context(tempfile.TemporaryDirectory(prefix="dfl_dist-")))
        make_folder("status", status)
        launched.forget(status)
        return run(launch, status.resolve(), interrupt)


def help_text() -> str:
    return "\n".join(
        [
            "usage: dfl-dist launch [--OPTION VALUE ...] [--doctor] [--KEY VALUE ...]",
            "",
            "Train through torchrun, on one host or on several: the same command on each, but for --host. A rank that",
            "fails, is killed or hangs costs a restart from the newest checkpoint; a mistake in the settings does not.",
            "Ctrl-C and SIGTERM end the run after its round, with a checkpoint; a second Ctrl-C ends it at once.",
            "",
            show(
                ["  --doctor", "do not train, look at all hosts and what is between them"],
                [[f"  --{key} V", text] for key, text in OPTIONS.items()],
            ),
            "",
            "Settings of the run follow: --algorithm dfedsam --rounds 100; python -m dfl_dist.train --help lists them.",
        ]
    )


def read(argv: list[str]) -> Launch:
    """The command line, refused before anything is started where it cannot be."""
    words = split(["--ranks" if word == "-n" else word for word in argv], OPTIONS, flags=("doctor",))
    if words.plain:
        raise refusal("launch", words.plain[0], "options and settings, --KEY VALUE each")
    if words.flags and words.settings:
        raise refusal("doctor", words.settings[0], "no settings of a run beside it")
    parse(words.settings)  # a mistake is told here, at once
    own = DEFAULTS | words.own
    for key, smallest in WHOLE_NUMBERS.items():
        if key in own and not (re.fullmatch(r"\d+", own[key]) and int(own[key]) >= smallest):
            raise refusal(key, own[key], f"a whole number, {smallest} or more")
    hosts = int(own["hosts"])
    for key in ("host", "head"):
        if hosts > 1 and key not in own:
            raise refusal(key, "nothing", OPTIONS[key])
    host = int(own.get("host", "0"))
    if host >= hosts:
        raise refusal("host", host, f"0 to {hosts - 1}, with --hosts {hosts}")
    module = "dfl_dist.commands.doctor" if words.flags else "dfl_dist.train"
    return Launch(
        ranks=own.get("ranks", "8" if hosts == 1 else "auto"),
        hosts=hosts,
        host=host,
        head=own.get("head", "localhost"),
        port=int(own["port"]),
        id=own["id"],
        restarts=0 if words.flags else int(own["restarts"]),
        logs=own.get("logs"),
        status=own.get("status"),
        program=["-m", module, *words.settings],
    )


def run(launch: Launch, status: Path, interrupt: Interrupt) -> int:
    """Start torchrun, follow it to its end, and give the job's exit code."""
    address, environment = "127.0.0.1", {name: os.environ.get(name, "lo") for name in INTERFACES}
    if launch.hosts > 1:
        address, environment = find_way(launch.head)
        if launch.host > 0:
            wait_for_head(launch, interrupt)
    if launch.logs:
        make_folder("logs", Path(launch.logs))
    mark = {MARK: secrets.token_hex(8)}
    told = {launched.STATUS: str(status), "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": f"[host {launch.host}] "}
    process = start_torchrun(launch.command(address), defaults=QUIET, environment=environment | told | mark)

    def stop(number: int) -> None:
        if folder := launched.run_folder(status):
            (folder / "STOP").touch()
            say("stopping after the present round; Ctrl-C again ends it at once")
        else:  # it has not begun
            hand_on(process, number)

    code = follow(process, f"{MARK}={mark[MARK]}", interrupt, stop=stop)
    ending, stopped_by = launched.ending(status), interrupt.number
    ignore()  # the work is done: a signal that comes now must not take its exit code away
    if launch.hosts > 1 and launch.host > 0:
        wait_for_head_to_leave(launch)
    if ending in (launched.REFUSED, launched.FAILED):
        return launched.EXIT_CODES[ending]
    if stopped_by is not None:
        return 0 if ending == launched.FINISHED else 128 + stopped_by
    return code


def find_way(head: str) -> tuple[str, dict[str, str]]:
    """This host's address on the way to the head, and the interface that gloo and NCCL are to use."""
    given = os.environ.get(INTERFACES[0])
    found = named(given) if given else towards(head)
    return found.address, {name: os.environ.get(name, found.name) for name in INTERFACES}


def named(name: str) -> Interface:
    """The interface that somebody has chosen."""
    have = interfaces()
    if name not in {one.name for one in have}:
        raise refusal(INTERFACES[0], name, f"one that is up and has an IPv4 address: {', '.join(map(str, have))}")
    return next(one for one in have if one.name == name)


def make_folder(key: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{key}: given {folder}, which cannot be made: {error}") from error


def say(text: str) -> None:
    print(f"launch: {text}", file=sys.stderr, flush=True)


def is_open(launch: Launch) -> bool:
    """Whether the head answers where the hosts meet."""
    try:
        with socket.create_connection((launch.head, launch.port), timeout=2.0):
            return True
    except OSError:
        return False


def wait_for_head(launch: Launch, interrupt: Interrupt) -> None:
    """Wait until host 0 was started too."""
    end, told = time.monotonic() + HEAD_WITHIN_S, False
    while not is_open(launch):
        if interrupt.number is not None:
            raise SystemExit(128 + interrupt.number)
        if time.monotonic() > end:
            raise ConfigError(
                f"head: given {launch.head}, where nothing answered at port {launch.port} for {HEAD_WITHIN_S:g} s; "
                "start host 0, or open the port to the other hosts"
            )
        if not told:
            say(f"host {launch.host} waits for host 0 at {launch.head}:{launch.port}")
            told = True
        time.sleep(0.5)


def wait_for_head_to_leave(launch: Launch) -> None:
    """Leave after host 0, whose exit code is the job's: what ends with the first to leave then ends with it."""
    end = time.monotonic() + HEAD_GONE_WITHIN_S
    while is_open(launch) and time.monotonic() < end:
        time.sleep(0.2)
