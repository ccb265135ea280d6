"""`dfl-dist doctor`: what it finds on a host and in the network, and what it says to do."""

import importlib.metadata
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dfl_dist.commands.doctor import host
from dfl_dist.commands.doctor.host import FAILED, OK, WARNING
from dfl_dist.commands.doctor.network import Host, compare_software, judge_speed
from dfl_dist.commands.main import main
from dfl_dist.distributed.probe import tournament
from dfl_dist.distributed.world import World
from dfl_dist.launcher.network import Interface

SEVERAL = World(rank=0, size=8, local_rank=0, local_size=2, torchrun=True)


def test_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert f"  ok       versions       dfl_dist 0.1.0, Python 3.{told.partition('Python 3.')[2][:2]}" in told
    assert "  ok       torchvision " in told
    assert told.splitlines()[-1].endswith("0 failed")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_fails_and_sets_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(host.shutil, "disk_usage", lambda path: SimpleNamespace(free=20e6))
    assert main(["doctor"]) == 1
    assert "  failed   disk           0.0 GB free in" in capsys.readouterr().out
    monkeypatch.setattr(host.shutil, "disk_usage", lambda path: SimpleNamespace(free=2e9))
    assert host.disk(World()).state == WARNING


def test_a_check_that_fails_itself_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[Interface]:
        raise OSError("no such device")

    monkeypatch.setattr(host, "interfaces", broken)
    found = {finding.subject: finding for finding in host.examine(World())}
    assert found["interface"].state == FAILED
    assert "no such device" in found["interface"].text


@pytest.mark.parametrize(
    ("requires", "state"),
    [(["numpy", "torch==2.13.0"], OK), (["torch (==1.9.0)"], FAILED), (["torch>=2"], OK)],
)
def test_torchvision_for_another_torch(monkeypatch: pytest.MonkeyPatch, requires: list[str], state: str) -> None:
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    made = SimpleNamespace(requires=requires, version="0.1")
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: made)
    found = host.torchvision(World())
    assert found.state == state
    assert state == OK or "is made for torch 1.9.0, here is 2.13.0; install the two together" in found.text


@pytest.mark.parametrize(
    ("world", "address", "given", "state"),
    [
        (SEVERAL, "127.0.1.1", None, FAILED),
        (SEVERAL, "127.0.1.1", "eth0", OK),
        (SEVERAL, "10.0.0.1", None, OK),
        (World(), "127.0.1.1", None, OK),
    ],
)
def test_a_host_name_that_nobody_else_can_use(
    monkeypatch: pytest.MonkeyPatch, world: World, address: str, given: str | None, state: str
) -> None:
    monkeypatch.setattr(host.socket, "getaddrinfo", lambda *words, **options: [(0, 0, 0, "", (address, 0))])
    monkeypatch.delenv(host.INTERFACE, raising=False)
    if given:
        monkeypatch.setenv(host.INTERFACE, given)
    assert host.hostname(world).state == state


def test_an_interface_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(host.INTERFACE, "ib7")
    found = host.interface(World())
    assert found.state == FAILED
    assert "GLOO_SOCKET_IFNAME is ib7, which is not up" in found.text
    assert "lo (127.0.0.1)" in found.text


@pytest.mark.parametrize(("gpus", "ranks", "state"), [(0, 4, OK), (4, 4, OK), (2, 4, WARNING)])
def test_gpus_for_the_ranks(monkeypatch: pytest.MonkeyPatch, gpus: int, ranks: int, state: str) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "H100")
    assert host.devices(World(local_size=ranks)).state == state


def test_too_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))
    found = host.open_files(World(size=100))
    assert found.state == WARNING
    assert found.text.endswith("ulimit -n 656")


@pytest.mark.parametrize("size", range(2, 12))
def test_everybody_meets_everybody_once(size: int) -> None:
    rounds = tournament(size)
    met = [pair for pairs in rounds for pair in pairs]
    assert sorted(met) == [(a, b) for a in range(size) for b in range(a + 1, size)]
    for pairs in rounds:
        busy = [rank for pair in pairs for rank in pair]
        assert len(busy) == len(set(busy)), "nobody is in two places"


def four_hosts() -> list[Host]:
    return [Host(n, "node", f"10.0.0.{n}", [2 * n, 2 * n + 1], "torch 2") for n in range(4)]


def speeds(slow: dict[tuple[int, int], float]) -> list[tuple[str, str, str]]:
    """What is said of links that all have 500 MB/s but for some, given by hosts."""
    rates = torch.full((8, 8), 500e6, dtype=torch.float64)
    for (a, b), rate in slow.items():
        rates[2 * a : 2 * a + 2, 2 * b : 2 * b + 2] = rate
    found = judge_speed(rates, torch.full((8, 8), 1e-3), four_hosts())
    return [(finding.state, finding.subject, finding.text) for finding in found]


def test_links_that_are_alike_are_fine() -> None:
    assert [state for state, _, _ in speeds({})] == [OK, OK]
    assert [state for state, _, _ in speeds({(0, 1): 200e6})] == [OK, OK], "not that much slower"


def test_slow_links_are_named() -> None:
    one = speeds({(0, 1): 90e6})
    assert one[2:] == [
        (
            WARNING,
            "slow link",
            "from host 0 (node, 10.0.0.0) to host 1 (node, 10.0.0.1): 90 MB/s; look at what is between them",
        )
    ]
    sends = speeds({(3, other): 2e6 for other in range(3)})
    assert len(sends) == 3
    assert sends[2][2].startswith("all that host 3 (node, 10.0.0.3) sends: 2 MB/s at best, 500 MB/s elsewhere")
    both = speeds({(3, 0): 2e6, (3, 1): 2e6, (3, 2): 2e6, (0, 3): 2e6, (1, 3): 2e6, (2, 3): 2e6})
    assert [text.partition(":")[0] for _, _, text in both[2:]] == [
        "all that host 3 (node, 10.0.0.3) sends",
        "all that host 3 (node, 10.0.0.3) gets",
    ]
    everywhere = speeds({(a, b): 3e6 for a in range(4) for b in range(4) if a != b})
    assert len(everywhere) == 2 + 12, "slow for any model, though alike"


def test_hosts_with_other_versions() -> None:
    hosts = four_hosts()
    assert compare_software(hosts).state == OK
    other = Host(9, "old", "10.0.0.9", [8], "torch 1")
    found = compare_software([*hosts, other])
    assert found.state == WARNING
    assert "host 9 (old, 10.0.0.9) has torch 1" in found.text
