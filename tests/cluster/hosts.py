"""Several hosts on one machine: network namespaces on a bridge, each with an address of its own."""

import contextlib
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

PROGRAMS = ("ip", "tc", "iptables")


def none_to_be_had() -> str | None:
    """Why the kernel gives no network namespace; None where it does."""
    name = f"dfl-{secrets.token_hex(3)}"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        return f"no network namespaces: {done.stderr.strip()}"
    call("ip", "netns", "delete", name)
    return None


def call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


@dataclass(frozen=True)
class Host:
    """A network namespace with an address on the bridge."""

    name: str
    address: str

    def command(self, *words: str) -> list[str]:
        """A command, run on this host."""
        return ["ip", "netns", "exec", self.name, *words]

    def limit(self, rate: str) -> None:
        """Let it send, and be sent, no faster than this."""
        shaped = ("root", "tbf", "rate", rate, "burst", "32kb", "latency", "400ms")
        call(*self.command("tc", "qdisc", "replace", "dev", "eth0", *shaped))

    def refuse_connections(self) -> None:
        """Let nobody connect to this host; what it has connected to itself may answer."""
        for rule in ("-i lo -j ACCEPT", "-p tcp ! --syn -j ACCEPT", "-p tcp -j REJECT --reject-with tcp-reset"):
            call(*self.command("iptables", "-A", "INPUT", *rule.split()))


@contextlib.contextmanager
def running_hosts(count: int) -> Iterator[list[Host]]:
    """Make hosts that reach one another and nothing else, and take them away afterwards.

    The bridge has a namespace of its own, so that nothing of it is seen on this machine.
    """
    mark = secrets.token_hex(3)
    switch, hosts = f"dfl-{mark}-switch", [Host(f"dfl-{mark}-{n}", f"10.77.0.{n + 1}") for n in range(count)]
    try:
        call("ip", "netns", "add", switch)
        call("ip", "-n", switch, "link", "add", "bridge0", "type", "bridge")
        call("ip", "-n", switch, "link", "set", "bridge0", "up")
        for number, host in enumerate(hosts):
            call("ip", "netns", "add", host.name)
            ends = ("eth0", "netns", host.name, "type", "veth", "peer", "name", f"port{number}", "netns", switch)
            call("ip", "link", "add", *ends)
            call("ip", "-n", switch, "link", "set", f"port{number}", "master", "bridge0", "up")
            call("ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                call("ip", "-n", host.name, "link", "set", link, "up")
        yield hosts
    finally:
        for name in (*(host.name for host in hosts), switch):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=30, check=False)
