"""Links between hosts that are blocked or cut: named soon, with the direction. Hosts are network namespaces."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from cluster_runs import MODEL
from hosts import Host, call
from launching import wait_for_rounds

PORT = 29417
NODE = os.uname().nodename
COMMAND = "import sys; from dfl_dist.commands.main import main; sys.exit(main())"
LONG = (*MODEL, "--rounds", "2000", "--checkpoint.every", "0", "--timeout_s", "7", "--out", "run")


def block(at: Host, rule: str) -> None:
    """A rule of a host's firewall for what comes to it."""
    call(*at.command("iptables", "-A", "INPUT", *rule.split()))


@contextlib.contextmanager
def launched(hosts: Sequence[Host], project: Path, *arguments: str) -> Iterator[list[Path]]:
    """One rank on each host; where each host's output goes. All are ended together, at the end."""
    logs, started = [project / f"host-{number}.log" for number in range(len(hosts))], []
    try:
        for number, host in enumerate(hosts):
            place = ["--head", hosts[0].address, "--port", str(PORT), "--hosts", str(len(hosts)), "--host", str(number)]
            command = host.command(sys.executable, "-c", COMMAND, "launch", *place, "-n", "1", *arguments)
            with logs[number].open("w") as log:
                both = {"stdout": log, "stderr": log}
                started.append(subprocess.Popen(command, cwd=project, start_new_session=True, **both))  # type: ignore[call-overload]
        yield logs
    finally:
        for host in hosts:  # at once: there is nothing to wait for over a link that is cut
            found = subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, text=True, check=True)
            for pid in found.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        for process in started:
            process.wait(20)


def wait_for_words(words: str, logs: Sequence[Path], within_s: float) -> str:
    """The line that has these words, wherever it is said."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        for line in "".join(log.read_text() for log in logs).splitlines():
            if words in line:
                return line
        time.sleep(0.05)
    raise AssertionError("\n".join(log.read_text() for log in logs))


def test_a_firewall_that_lets_only_the_meeting_through_is_named(four_hosts: list[Host], project: Path) -> None:
    """Both hosts drop whatever comes from the other but what belongs to the port at which they meet."""
    one, other = four_hosts[:2]
    for host, peer in ((one, other), (other, one)):
        block(host, f"-s {peer.address} -p tcp -m multiport --ports {PORT} -j ACCEPT")
        block(host, f"-s {peer.address} -j DROP")
    ports = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    with launched([one, other], project, *LONG) as logs:
        line = wait_for_words("does not reach", logs, within_s=45)
    assert f"open TCP ports {'-'.join(ports)} between the hosts" in line
    assert other.address in line
    assert one.address in line


def test_a_host_that_takes_no_connections_is_named_with_the_direction(four_hosts: list[Host], project: Path) -> None:
    """At the start, between two hosts of which neither is the head."""
    three = four_hosts[:3]
    block(three[2], f"-s {three[1].address} -p tcp --syn -j DROP")
    with launched(three, project, *LONG) as logs:
        line = wait_for_words("does not reach", logs, within_s=45)
    first, second = (f"host {n} ({NODE}, {three[n].address})" for n in (1, 2))
    assert f"{first} does not reach {second} at port" in line
    assert "the other direction works: open TCP ports" in line
    assert line.count("does not reach") == 1


@pytest.mark.parametrize(
    ("sender", "receiver"),
    [
        pytest.param(0, 1, id="from the head"),
        pytest.param(1, 0, id="to the head"),
        pytest.param(1, 2, id="between others"),
    ],
)
def test_a_link_that_stops_carrying_in_one_direction_is_named(
    four_hosts: list[Host], project: Path, sender: int, receiver: int
) -> None:
    """In the middle of a run. To or from the head nothing is heard of the other host, whose ranks may name it too."""
    hosts = four_hosts[: max(sender, receiver) + 1]
    with launched(hosts, project, *LONG) as logs:
        wait_for_rounds(project / "run", 3)
        block(hosts[receiver], f"-s {hosts[sender].address} -j DROP")
        started = time.monotonic()
        one, other = (f"host {n} ({NODE}, {hosts[n].address})" for n in (sender, receiver))
        wait_for_words(f"what {one} sends does not reach {other}, the other direction works", logs, within_s=20)
        assert time.monotonic() - started < 7 + 5
        assert f"what {other} sends" not in "".join(log.read_text() for log in logs), "not the wrong direction"
