"""`dfl-dist launch`: start training, on one host or on each of several."""

import os
import re
import secrets
import shlex
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dfl_dist.commands.options import Words, split
from dfl_dist.config.help import DRY_RUN
from dfl_dist.config.parse import parse
from dfl_dist.config.values import ask
from dfl_dist.errors import ConfigError, refusal
from dfl_dist.launcher.fork_server import FORK, SPAWN
from dfl_dist.launcher.jobs import TRAINER, Program
from dfl_dist.launcher.launch import Hosts, Launch, check_folder, find_place, make_folder, report, run, tell_refusal
from dfl_dist.run_folder import status
from dfl_dist.signals import signals_caught
from dfl_dist.text import count, help_page

OPTIONS = {
    "ranks": "processes on this host, -n for short (default: one per GPU, else 8, or one per core of several hosts)",
    "hosts": "how many hosts take part (default: 1)",
    "host": "which of them this is, 0 to hosts - 1; host 0 is the head",
    "head": "the head's address or name, as all hosts reach it",
    "port": "a free port of the head, where the hosts meet (default: 29400)",
    "id": "the name of this job, the same on all hosts: started again under it, an unfinished run goes on",
    "restarts": "how often to start again when a rank fails, from the newest checkpoint (default: 3)",
    "logs": "a folder for what each rank prints, by attempt and rank (default: logs/ in the run folder)",
    "start": "fork, or spawn: each rank starts afresh, which takes longer (default: fork)",
    "status": "a folder in which a script finds run, a link to the run folder, and ending, a word",
}
DEFAULTS = {"hosts": "1", "start": FORK, "port": "29400", "restarts": "3", "id": "dfl_dist"}
WHOLE_NUMBERS = {"ranks": 1, "hosts": 1, "host": 0, "port": 1, "restarts": 0}  # the smallest of each
DOCTOR = "dfl_dist.commands.doctor.command:main"
DRY = "dry-run"


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(help_text())
        return 0
    try:
        launch = read(argv)
    except ConfigError as error:
        if not (hosts := others_to_tell(argv)):
            raise
        print(f"dfl-dist: {error}", file=sys.stderr, flush=True)
        with signals_caught() as interrupt:
            tell_refusal(hosts, str(error), interrupt)
        return status.EXIT_CODES[status.REFUSED]
    if launch.dry_run:
        return show(launch)
    with signals_caught() as interrupt:
        if launch.status:
            make_folder("status", launch.status)
            status.clear(launch.status)
        return run(launch, interrupt)


def show(launch: Launch) -> int:
    """Show what rank 0 would run, as it says itself; nothing is started. Other hosts are taken to be like this one."""
    from dfl_dist.launcher.engine import count_ranks  # which takes torch
    from dfl_dist.training.main import main as train

    meeting, environment = find_place(launch)
    ranks = count_ranks(replace(launch.program, meeting=meeting))
    if meeting.hosts > 1:
        here = f"host {meeting.host} of {meeting.hosts} would start {count(ranks, 'rank')} at {meeting.address}"
        report(f"{here} and meet the others at {meeting.head}:{meeting.port}; they are taken to have as many")
    world = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": ranks * meeting.hosts, "LOCAL_WORLD_SIZE": ranks}
    job = {"GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": meeting.job_id, "TORCHELASTIC_RESTART_COUNT": "0"}
    os.environ.update(environment | job | {key: str(value) for key, value in world.items()})
    return train([f"--{DRY}", *launch.program.arguments])


def help_text() -> str:
    flags = {"--doctor": "do not train: check all hosts and the network between them", "--dry-run": DRY_RUN}
    return help_page(
        "usage: dfl-dist launch [--OPTION VALUE ...] [--doctor | --dry-run] [--KEY VALUE ...]",
        "Train on one host or on several: the same command on each, except for --host. A rank that fails, is killed "
        "or hangs causes a restart from the newest checkpoint; a mistake in the settings does not. Ctrl-C and SIGTERM "
        "end the run after its round, with a checkpoint; a second Ctrl-C ends it at once.",
        flags | {f"--{key} V": text for key, text in OPTIONS.items()},
        "Settings of the run follow: --algorithm dfedsam --rounds 100; dfl-dist train --help lists them.",
    )


def read_words(argv: list[str]) -> Words:
    return split(["--ranks" if word == "-n" else word for word in argv], OPTIONS, flags=("doctor", DRY))


def others_to_tell(argv: list[str]) -> Hosts | None:
    """The hosts of a command line that is refused; none where it is the only one, or does not say where they meet."""
    with suppress(ConfigError):
        words = read_words(argv)
        hosts = read_hosts(DEFAULTS | words.own)
        return hosts if hosts.count > 1 and DRY not in words.flags else None
    return None


def read(argv: list[str]) -> Launch:
    """The command line, refused before anything is started where it cannot be."""
    words = read_words(argv)
    if words.plain:
        raise refusal("launch", words.plain[0], "options and settings, --KEY VALUE each, and flags, without one")
    beside = [*(f"--{flag}" for flag in words.flags - {"doctor"}), *words.settings]
    if (doctor := "doctor" in words.flags) and beside:
        raise refusal("doctor", beside[0], "no settings of a run beside it")
    settings = ask(parse(words.settings))  # a mistake is reported here, at once
    own = DEFAULTS | words.own
    hosts = read_hosts(own)
    check_numbers(own, "ranks", "restarts")
    if own["start"] not in (FORK, SPAWN):
        raise refusal("start", own["start"], f"{FORK} or {SPAWN}", (FORK, SPAWN))
    folders = {key: Path(own[key]).resolve() for key in ("logs", "status") if key in own}
    for key, folder in folders.items():
        check_folder(key, folder)
    if "status" in folders:
        status.check(folders["status"])
    program = Program(
        target=DOCTOR if doctor else TRAINER,
        arguments=words.settings,
        ranks=int(own["ranks"]) if "ranks" in own else None,
        without_gpu=int(settings["rank0"] == "coordinator" and hosts.own == 0),
        restarts=0 if doctor else int(own["restarts"]),
        logs=folders.get("logs"),
        start=own["start"],
        timeout_s=settings["timeout_s"],
    )
    given = [word for key, value in words.own.items() for word in ("-n" if key == "ranks" else f"--{key}", value)]
    return Launch(
        program,
        hosts,
        command=shlex.join(["dfl-dist", "launch", *given]),
        token=words.own.get("id") or secrets.token_hex(8),
        status=folders.get("status"),
        dry_run=DRY in words.flags,
    )


def check_numbers(own: dict[str, str], *keys: str) -> None:
    """Refuse what is given for some options and is no whole number, or too small."""
    for key in keys:
        smallest = WHOLE_NUMBERS[key]
        if key in own and not (re.fullmatch(r"\d+", own[key]) and int(own[key]) >= smallest):
            raise refusal(key, own[key], f"a whole number, {smallest} or more")


def read_hosts(own: dict[str, str]) -> Hosts:
    """The hosts that the options name."""
    check_numbers(own, "hosts", "host", "port")
    count = int(own["hosts"])
    for key in ("host", "head"):
        if count > 1 and key not in own:
            raise refusal(key, "nothing", OPTIONS[key])
    host = int(own.get("host", "0"))
    if host >= count:
        raise refusal("host", host, f"0 to {count - 1}, with --hosts {count}")
    return Hosts(count, host, own.get("head", "localhost"), int(own["port"]), own["id"])
