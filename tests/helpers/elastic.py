"""The project's own launcher around any function: its fork server, its agent, its restarts."""

import secrets

from dfl_dist.launcher.jobs import Program
from dfl_dist.launcher.launch import Hosts, Launch, run
from dfl_dist.signals import signals_caught

ALONE = Hosts(count=1, own=0, head="localhost", port=0, job_id="")


def main(arguments: list[str]) -> int:
    """WORLD_SIZE RESTARTS TARGET [ARGUMENT ...]: the exit code of a job that calls the target on so many ranks."""
    world_size, restarts, target, *rest = arguments
    program = Program(target, rest, int(world_size), int(restarts))
    with signals_caught() as interrupt:
        return run(Launch(program, ALONE, command="dfl-dist launch", token=secrets.token_hex(8)), interrupt)


def on_host(arguments: list[str]) -> int:
    """HOST HOSTS PORT TARGET [ARGUMENT ...]: one host's part of a job; it has as many ranks as its number plus one."""
    host, count, port, target, *rest = arguments
    program = Program(target, rest, int(host) + 1, restarts=1)
    hosts = Hosts(count=int(count), own=int(host), head="127.0.0.1", port=int(port), job_id="hosts")
    with signals_caught() as interrupt:
        return run(Launch(program, hosts, command="dfl-dist launch", token="hosts"), interrupt)
