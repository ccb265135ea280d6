"""`dfl-dist doctor`: whether this machine can run a job; `dfl-dist launch --doctor`: whether all its hosts can."""

import os
from collections.abc import Sequence

from dfl_dist.commands.doctor.host import FAILED, OK, WARNING, Finding, examine
from dfl_dist.commands.doctor.network import (
    Host,
    compare_software,
    gather_hosts,
    judge_speed,
    try_folder,
    try_ports,
)
from dfl_dist.distributed import groups
from dfl_dist.distributed.probe import SILENT_S, Board, measure
from dfl_dist.distributed.world import World
from dfl_dist.errors import PeerError, refusal
from dfl_dist.run_folder import status
from dfl_dist.run_folder.status import Status
from dfl_dist.text import help_page
from dfl_dist.training.screen import set_up_logging


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(help_text())
        return 0
    if argv:
        raise refusal("doctor", argv[0], "nothing; --help shows how to check several hosts")
    world = World.from_environment()
    if world.torchrun:
        return examine_as_rank(world)
    findings = examine(world)
    print_findings("this machine", findings)
    return print_summary(findings)


def help_text() -> str:
    return help_page(
        "usage: dfl-dist doctor",
        "This machine; beside it there are",
        {
            "dfl-dist launch --doctor [-n RANKS]": "this machine, and the network between its ranks",
            "dfl-dist launch --doctor --head ADDRESS --hosts N --host K": "all hosts: start it on each of them",
        },
        "Each line is ok, warning or failed, and says what to do. The exit code is 1 where something failed.",
    )


def examine_as_rank(world: World) -> int:
    """This rank's part of examining a job; the exit code."""
    set_up_logging(world.rank, tells=world.rank == 0)
    launcher = Status.from_environment(world.local_rank)
    try:
        code = examine_job(world)
    except PeerError as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        cure = f"see that every host is started, and reaches {where} and all other ports of the others"
        print_findings(f"rank {world.rank}", [Finding(FAILED, "meeting", f"{error}; {cure}")])
        code = 1
    launcher.tell_ending(status.FAILED if code else status.FINISHED)
    return code


def examine_job(world: World) -> int:
    """All ranks together: every host by itself, then the network. Rank 0 prints, every rank returns its exit code."""
    board = Board(groups.meet(world, groups.open_store(world, SILENT_S), SILENT_S), world)
    hosts = gather_hosts(board)
    findings = [*examine_hosts(board, hosts), *(between := examine_network(board, hosts))]
    code = 0
    if world.rank == 0:
        print_findings("all together", between)
        code = print_summary(findings)
    (code,) = board.gather("code", code)[:1]
    groups.disconnect()
    return int(code)


def examine_hosts(board: Board, hosts: Sequence[Host]) -> list[Finding]:
    """What the first rank of each host finds on it."""
    firsts, rank = [host.ranks[0] for host in hosts], board.world.rank
    board.put("host", [finding.as_list() for finding in examine(board.world)] if rank in firsts else [])
    findings = []
    for host, lines in zip(hosts, board.take("host", firsts), strict=True):
        own = [Finding(*line) for line in lines]
        findings += own
        if rank == 0:
            print_findings(f"{host}, {describe_ranks(host.ranks)}", own)
    return findings


def examine_network(board: Board, hosts: Sequence[Host]) -> list[Finding]:
    """What there is to say of the network between all ranks."""
    several = len(hosts) > 1
    findings = [compare_software(hosts), try_ports(board, hosts), try_folder(board, hosts)] if several else []
    if board.world.size > 1 and all(finding.subject != "ports" or finding.state == OK for finding in findings):
        try:
            groups.make_group(board.world, board.store)
            findings += judge_speed(*measure(board.world), hosts)
        except PeerError as error:
            findings.append(
                Finding(FAILED, "messages", f"{error}; ports are open, so look at the interface and its MTU")
            )
    return findings


def describe_ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def print_findings(title: str, findings: Sequence[Finding]) -> None:
    print(title)
    for finding in findings:
        print(f"  {finding.state:<8} {finding.subject:<14} {finding.text}", flush=True)


def print_summary(findings: Sequence[Finding]) -> int:
    """Print how many findings there are of each state; the exit code."""
    counts = {state: sum(finding.state == state for finding in findings) for state in (OK, WARNING, FAILED)}
    print(", ".join(f"{count} {state}" for state, count in counts.items()), flush=True)
    return 1 if counts[FAILED] else 0
