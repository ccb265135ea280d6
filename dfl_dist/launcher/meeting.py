"""What hosts that have come together tell each other before their ranks are started, and what they refuse then."""

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dfl_dist.system import free_ports

TOLD_WITHIN = timedelta(seconds=30)
REACHED_WITHIN_S = 10.0


class MeetingError(RuntimeError):
    """Hosts have met, and cannot do more together than that."""


@dataclass(frozen=True)
class Table:
    """Where each host lays what it has to say."""

    store: Any  # of this meeting
    place: int
    places: int

    def exchange(self, topic: str, text: str) -> list[str]:
        """What all hosts say, once each has said something."""
        keys = [f"dfl_dist/{topic}/{place}" for place in range(self.places)]
        self.store.set(keys[self.place], text)
        self.store.wait(keys, TOLD_WITHIN)
        return [found.decode() for found in self.store.multi_get(keys)]


def check_complete(came: int, hosts: int) -> None:
    """Refuse to go on with fewer hosts than there are to be, as the engine does where it takes one for dead."""
    if came != hosts:
        cause = "the clocks of the hosts may differ by more than a few seconds: set them alike"
        raise MeetingError(f"only {came} of {hosts} hosts are taken to be there; {cause}")


def wrong_numbers(hosts: list[int]) -> str:
    """What is wrong with the hosts' own numbers, where they do not fit together."""
    if hosts == list(range(len(hosts))):
        return ""
    allowed = f"each of 0 to {len(hosts) - 1} on one host"
    return f"host: given {', '.join(map(str, hosts))} on {len(hosts)} hosts, allowed: {allowed}"


def first_refusal(told: list[dict[str, Any]]) -> str:
    """Why a host starts nothing, as the first of those that refuse tells."""
    refusing = (host for host in told if host.get("refused"))
    return next((f"host {host['host']} ({host['name']}) refuses: {host['refused']}" for host in refusing), "")


def unreached(table: Table, host: int, address: str, head: tuple[str, int]) -> str:
    """Which host does not reach the ranks' store on the head, and why; each host tries, all hosts know."""
    problem = ""
    try:
        socket.create_connection(head, timeout=REACHED_WITHIN_S).close()
    except OSError as error:
        late = f"no answer within {REACHED_WITHIN_S:g} s"
        why = late if isinstance(error, TimeoutError) else error.strerror or str(error)
        own = f"host {host} ({os.uname().nodename}, {address})"
        problem = f"{own} does not reach the head, {head[0]}, at port {head[1]} ({why})"
    found = next(filter(None, table.exchange("reached", problem)), "")
    return f"{found}: open TCP ports {free_ports()} between the hosts, in both directions" if found else ""
