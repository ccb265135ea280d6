"""Four hosts without a scheduler: `launch/multi_node.sh` on each, in network namespaces."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from cluster_runs import MODEL, undisturbed
from hosts import Host
from launching import ROOT, assert_same_run, children, wait_for_rounds

ROUNDS = ("--rounds", "12", "--checkpoint.every", "4")
PATIENCE_S = 240.0


@contextlib.contextmanager
def launched(
    hosts: Sequence[Host], project: Path, *arguments: str, **environment: str
) -> Iterator[list["subprocess.Popen[str]"]]:
    """The same command on every host, but for its number; two ranks each."""
    started = []
    try:
        for number, host in enumerate(hosts):
            place = ["--head", hosts[0].address, "--hosts", str(len(hosts)), "--host", str(number), "-n", "2"]
            command = host.command(str(ROOT / "launch" / "multi_node.sh"), *place, *arguments)
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            env = os.environ | {"DFL_HOST": str(number)} | environment
            started.append(subprocess.Popen(command, cwd=project, env=env, text=True, **pipes))  # type: ignore[call-overload]
        yield started
    finally:
        for process in started:
            process.terminate()  # the launcher ends what it has started
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()


def ends(started: Sequence["subprocess.Popen[str]"]) -> list[str]:
    """What each host said; all must end well."""
    told = [process.communicate(timeout=PATIENCE_S)[0] for process in started]
    assert [process.returncode for process in started] == [0] * len(started), "\n".join(told)
    return told


@pytest.mark.timeout(400)
def test_four_hosts_with_a_slow_link_end_with_the_bits_of_one(
    four_hosts: list[Host], project: Path, tmp_path: Path
) -> None:
    four_hosts[2].limit("20mbit")
    with launched(four_hosts, project, *ROUNDS, *MODEL, "--out", "run") as started:
        ends(started)
    assert_same_run(undisturbed(tmp_path, 8, 12, *ROUNDS[2:]), project / "run", 12)


@pytest.mark.timeout(400)
def test_the_doctor_names_the_slow_link(four_hosts: list[Host], project: Path) -> None:
    four_hosts[2].limit("20mbit")
    with launched(four_hosts, project, "--doctor") as started:
        told = ends(started)
    findings = [line for line in "".join(told).splitlines() if line.startswith("  ")]
    (sends,) = [line for line in findings if "warning  slow link" in line and "sends:" in line]
    assert f"all that host 2 ({os.uname().nodename}, {four_hosts[2].address}) sends: 2." in sends
    assert any("ok       ports" in line for line in findings)
    assert any("ok       run folder" in line for line in findings)
    assert not any(" failed " in line for line in findings)
    assert list(project.iterdir()) == [project / "launch"], "it leaves nothing behind"


@pytest.mark.timeout(400)
def test_a_rank_killed_on_one_host_costs_a_restart_on_all(
    four_hosts: list[Host], project: Path, tmp_path: Path
) -> None:
    with launched(four_hosts, project, *ROUNDS, *MODEL, "--out", "run", DFL_TEST_PASS_S="0.1") as started:
        wait_for_rounds(project / "run", 6)
        os.kill(rank_of(host=3), signal.SIGKILL)
        told = "".join(ends(started))
    assert "goes on after 4 rounds" in told
    assert_same_run(undisturbed(tmp_path, 8, 12, *ROUNDS[2:]), project / "run", 12)


def rank_of(host: int) -> int:
    """The second rank that a host has started: its fork server's third child, after the agent and the first rank."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            started = children(int(path.parent.name))
            if len(started) == 3 and f"DFL_HOST={host}".encode() in path.read_bytes().split(b"\0"):
                return started[2]
    raise AssertionError(f"host {host} has no rank")


@pytest.mark.timeout(200)
def test_a_host_that_cannot_be_reached_is_told(four_hosts: list[Host], project: Path) -> None:
    """The second host's firewall refuses connections; the host itself may connect to the others."""
    four_hosts[1].refuse_connections()
    with launched(four_hosts[:2], project, "--doctor") as started:
        told = [process.communicate(timeout=150)[0] for process in started]
        codes = [process.returncode for process in started]
    assert codes == [1, 1], told
    first, second = (f"host {n} ({os.uname().nodename}, {four_hosts[n].address})" for n in (0, 1))
    assert f"failed   ports          {first} does not reach {second} at port" in "".join(told)
    assert f"{second} does not reach" not in "".join(told)
