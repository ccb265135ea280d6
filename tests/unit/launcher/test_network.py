"""Which interface leads to the head."""

import socket

import pytest

from dfl_dist.errors import ConfigError
from dfl_dist.launcher import network
from dfl_dist.launcher.network import Interface, interface_towards, interfaces, is_address

LO, ETH, IB = Interface("lo", "127.0.0.1"), Interface("eth0", "10.1.0.5"), Interface("ib0", "10.2.0.5")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Names that have an address here, beside addresses themselves."""
    known: dict[str, str] = {}

    def look_up(name: str, *arguments: object, **options: object) -> list[tuple[object, ...]]:
        address = known.get(name, name)
        if not is_address(address):
            raise socket.gaierror("Name or service not known")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 17, "", (address, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known


def test_the_real_interfaces_are_found() -> None:
    assert LO in interfaces()
    assert interface_towards("127.0.0.1") == LO
    assert interface_towards("127.0.0.9").name == "lo"


@pytest.mark.parametrize("have", [[LO, ETH]], ids=["one way out"])
def test_a_name_that_is_only_this_hosts_own(
    names: dict[str, str], monkeypatch: pytest.MonkeyPatch, have: list[Interface]
) -> None:
    names["node1"] = "127.0.1.1"
    monkeypatch.setattr(network, "interfaces", lambda: have)
    assert interface_towards("node1") == ETH


@pytest.mark.parametrize(
    ("have", "told"), [([LO, ETH, IB], r"eth0 \(10.1.0.5\), ib0 \(10.2.0.5\)"), ([LO], "it has none")]
)
def test_no_sensible_answer_is_refused(
    names: dict[str, str], monkeypatch: pytest.MonkeyPatch, have: list[Interface], told: str
) -> None:
    names["node1"] = "127.0.1.1"
    monkeypatch.setattr(network, "interfaces", lambda: have)
    with pytest.raises(ConfigError, match=f"head: given node1, which is 127.0.1.1 here, .*allowed: an address.*{told}"):
        interface_towards("node1")


def test_a_name_without_an_address_is_refused(names: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="head: given nowhere, allowed: an IPv4 address, or a name that has one here"):
        interface_towards("nowhere")
