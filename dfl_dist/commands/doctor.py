"""`dfl-dist doctor`: whether this machine can run a job; `dfl-dist launch --doctor`: whether all its hosts can."""

import os
import sys
from collections.abc import Sequence

from dfl_dist import launched, runtime
from dfl_dist.commands.doctor_host import FAILED, OK, WARNING, Finding, examine
from dfl_dist.commands.doctor_network import (
    SILENT_S,
    Board,
    compare_software,
    gather_hosts,
    judge_speed,
    measure,
    try_folder,
    try_ports,
)
from dfl_dist.config import refusal
from dfl_dist.runtime import World
from dfl_dist.waiting import PeerError

USAGE = """\
usage: dfl-dist doctor                                                   this machine
       dfl-dist launch --doctor [-n RANKS]                               and what is between its ranks
       dfl-dist launch --doctor --head ADDRESS --hosts N --host K        all hosts, on each of which it is started

Each line is ok, warning or failed, and says what to do. The exit code is 1 where something failed."""


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if {"-h", "--help"} & set(argv):
        print(USAGE)
        return 0
    if argv:
        raise refusal("doctor", argv[0], "nothing; --help shows how to look at several hosts")
    world = World.from_environment()
    if not world.torchrun:
        findings = examine(world)
        tell("this machine", findings)
        return conclude(findings)
    runtime.set_up_logging(world.rank)
    launcher = launched.Launcher.from_environment(world.local_rank)
    try:
        code = look_around(world)
    except PeerError as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        cure = f"see that every host is started, and reaches {where} and all other ports of the others"
        tell(f"rank {world.rank}", [Finding(FAILED, "meeting", f"{error}; {cure}")])
        code = 1
    launcher.tell_ending(launched.FAILED if code else launched.FINISHED)
    return 0 if launcher.is_there else code


def look_around(world: World) -> int:
    """All ranks together: every host by itself, then what is between them. Rank 0 tells, everybody knows the end."""
    board = Board(runtime.meet(world, runtime.open_store(world, SILENT_S), SILENT_S), world)
    hosts = gather_hosts(board)
    firsts = [host.ranks[0] for host in hosts]
    board.put("host", [finding.as_list() for finding in examine(world)] if world.rank in firsts else [])
    findings = []
    for host, lines in zip(hosts, board.take("host", firsts), strict=True):
        own = [Finding(*line) for line in lines]
        findings += own
        if world.rank == 0:
            tell(f"{host}, {describe_ranks(host.ranks)}", own)
    several = len(hosts) > 1
    between = [compare_software(hosts), try_ports(board, hosts), try_folder(board, hosts)] if several else []
    if world.size > 1 and all(finding.subject != "ports" or finding.state == OK for finding in between):
        try:
            runtime.make_group(world, board.store)
            between += judge_speed(*measure(world), hosts)
        except PeerError as error:
            between.append(
                Finding(FAILED, "messages", f"{error}; ports are open, so look at the interface and its MTU")
            )
    if world.rank == 0:
        tell("all together", between)
    code = conclude([*findings, *between]) if world.rank == 0 else 0
    (code,) = board.gather("code", code)[:1]
    runtime.disconnect()
    return int(code)


def describe_ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def tell(title: str, findings: Sequence[Finding]) -> None:
    print(title)
    for finding in findings:
        print(f"  {finding.state:<8} {finding.subject:<14} {finding.text}", flush=True)


def conclude(findings: Sequence[Finding]) -> int:
    """Sum up; the exit code."""
    counts = {state: sum(finding.state == state for finding in findings) for state in (OK, WARNING, FAILED)}
    print(", ".join(f"{count} {state}" for state, count in counts.items()), flush=True)
    return 1 if counts[FAILED] else 0


if __name__ == "__main__":
    sys.path.append(os.getcwd())
    sys.exit(main())
