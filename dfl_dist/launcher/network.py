"""The interfaces of this host, and which of them leads to another host."""

import fcntl
import ipaddress
import socket
import struct
from array import array
from dataclasses import dataclass

from dfl_dist.errors import ConfigError, refusal

SIOCGIFCONF = 0x8912  # asks Linux for all interfaces that have an IPv4 address
ENTRY, MOST_ENTRIES = 40, 256  # bytes of an answer to it: a name of 16, then a socket address with the IPv4 one at 20
ANY_PORT = 9  # to look up a route only: nothing is sent


@dataclass(frozen=True)
class Interface:
    """An interface and one of its addresses."""

    name: str
    address: str

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.address)

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def is_address(text: str) -> bool:
    """Whether this is an address, not a name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def interfaces() -> list[Interface]:
    """Those that are up, once for each of their IPv4 addresses."""
    room = array("B", bytes(ENTRY * MOST_ENTRIES))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe, SIOCGIFCONF, struct.pack("iL", len(room), room.buffer_info()[0]))
    used, _ = struct.unpack("iL", answer)
    entries = [room[start : start + ENTRY].tobytes() for start in range(0, used, ENTRY)]
    return [Interface(entry.partition(b"\0")[0].decode(), socket.inet_ntoa(entry[20:24])) for entry in entries]


def address_of(name: str) -> str:
    """The IPv4 address of a host; refused where there is none."""
    try:
        return str(socket.getaddrinfo(name, None, family=socket.AF_INET, type=socket.SOCK_DGRAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        raise refusal("head", name, f"an IPv4 address, or a name that has one here ({error})") from error


def interface_towards(head: str) -> Interface:
    """The interface by which this host reaches the head; on the head itself, the one by which it is reached."""
    target = address_of(head)
    if is_loopback(target) and not is_address(head):  # many a system's own name: useless to the others
        return only_interface(head, target)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target, ANY_PORT))
        except OSError as error:
            raise ConfigError(f"head: given {head}, to which there is no route from here: {error}") from error
        own = probe.getsockname()[0]
    found = [interface.name for interface in interfaces() if interface.address == own]
    if not found and not is_loopback(own):  # any of 127.0.0.0/8 is lo's
        raise ConfigError(f"head: given {head}, reached from {own}, which no interface has; set GLOO_SOCKET_IFNAME")
    return Interface(found[0] if found else "lo", own)


def only_interface(head: str, target: str) -> Interface:
    """The one interface that others can reach; refused where there is a choice."""
    outward = [interface for interface in interfaces() if not interface.is_loopback]
    if len(outward) != 1:
        have = ", ".join(map(str, outward)) or "none"
        raise refusal(
            "head",
            f"{head}, which is {target} here, where nobody else reaches it",
            f"an address that all hosts reach, such as one of this host's (it has {have})",
        )
    return outward[0]
