"""Who waits for whom when nothing goes on, and the rank, host or link at the root: positions in, words out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dfl_dist.text import count, format_table

STALE_S = 2.5  # a rank that is alive is heard of twice a second at such a moment, else once
MOST_ROWS = 20
HEAD = ("rank", "host", "round", "phase", "waits for", "since", "last heard")


class Link(NamedTuple):
    """What a rank's kernel says of its connections to an address, during a wait."""

    unanswered: bool  # what was sent there is sent again and again
    heard: bool  # something came from there nevertheless


@dataclass(frozen=True)
class Position:
    """Where a rank is. Times are seconds since the ranks met, which all count from the same moment."""

    rank: int
    host: int = 0
    name: str = ""  # of the host
    address: str = ""
    round: int = 0  # counted from 1; 0 before the first
    phase: str = "start"
    since: float = 0.0  # when that began
    waits_for: tuple[int, ...] = ()
    what: str = ""  # completes "waits for …"
    waits_since: float = 0.0
    needs: tuple[str, int] | None = None  # the kind of message that it waits for, and which of them
    sent: Mapping[str, int] = field(default_factory=dict)  # how many of each kind this rank has begun to send
    links: Mapping[str, Link] = field(default_factory=dict)  # by address
    at: float = 0.0  # when this was so

    @property
    def waits(self) -> bool:
        return bool(self.waits_for)

    def has_sent(self, needed: tuple[str, int] | None) -> bool:
        return needed is not None and self.sent.get(needed[0], 0) >= needed[1]


@dataclass(frozen=True)
class Root:
    """What is at the root, in words, and the ranks that the table must show for it, first things first."""

    words: str
    ranks: tuple[int, ...] = ()


class Standstill:
    """The last known positions of all ranks at a moment."""

    def __init__(self, positions: Sequence[Position], now: float) -> None:
        self.by_rank = {position.rank: position for position in positions}
        self.now = now
        self.several_hosts = len({position.host for position in positions}) > 1

    def silent_s(self, rank: int) -> float:
        """For how long nothing was heard of a rank; 0 where it is there."""
        age = self.now - self.by_rank[rank].at
        return age if age > STALE_S else 0.0

    def awaited(self, position: Position) -> list[int]:
        """Those whom a rank waits for and who have not done their part; most suspect first."""
        others = [self.by_rank[rank] for rank in position.waits_for if rank != position.rank]
        missing = [other for other in others if self.silent_s(other.rank) or not other.has_sent(position.needs)]
        missing.sort(key=lambda other: (not self.silent_s(other.rank), other.waits, other.waits_since, other.rank))
        return [other.rank for other in missing]

    # The root.

    def root(self) -> Root | None:
        """None where nobody waits."""
        return self._find_cut() or self._end_of_chain()

    def cut_link(self) -> str | None:
        """What the kernels say of the links between hosts; None where they carry."""
        found = self._find_cut()
        return found.words if found else None

    def _end_of_chain(self) -> Root | None:
        """From the rank that has waited longest to the one that it waits for, and so on to the end."""
        waiting = [each for each in self.by_rank.values() if each.waits and not self.silent_s(each.rank)]
        if not waiting:
            return None
        at = min(waiting, key=lambda each: (each.waits_since, each.rank))
        chain = [at.rank]
        while True:
            if silent := self.silent_s(at.rank):
                where = f"it was in {self._place(at)} then"
                words = f"nothing was heard of it for {silent:.0f} s (stopped, or its host is); {where}"
                return self._blame(at, words, chain)
            if not at.waits:
                return self._blame(at, f"it has been in {self._place(at)} for {self.now - at.since:.0f} s", chain)
            awaited = self.awaited(at)
            if not awaited:
                return self._lost_message(at, chain)
            at = self.by_rank[awaited[0]]
            if at.rank in chain:
                return self._circle(chain[chain.index(at.rank) :])
            chain.append(at.rank)

    def _blame(self, position: Position, words: str, chain: Sequence[int]) -> Root:
        return Root(f"{self._who(position)} is at the root: {words}", tuple(reversed(chain)))

    def _lost_message(self, receiver: Position, chain: Sequence[int]) -> Root:
        """All that a rank waits for was sent."""
        senders = [self.by_rank[rank] for rank in receiver.waits_for if rank != receiver.rank]
        if len(senders) != 1:
            words = f"a link between the ranks does not carry: all have come so far that what {self._who(receiver)}"
            return Root(f"{words} waits for could be there ({receiver.what})", tuple(reversed(chain)))
        (sender,) = senders
        shown = (receiver.rank, sender.rank, *(rank for rank in reversed(chain) if rank != receiver.rank))
        words = f"what {self._who(sender)} sends does not reach {self._who(receiver)}"
        return Root(f"{words}: the link between them carries in one direction only, or not at all", shown)

    def _circle(self, ranks: Sequence[int]) -> Root:
        names = ", ".join(self._who(self.by_rank[rank]) for rank in sorted(ranks))
        words = f"{names} wait for one another: a link between them carries in one direction only, or not at all"
        return Root(words, tuple(ranks))

    def _find_cut(self) -> Root | None:
        found: list[tuple[int, Root]] = []
        for one in self.by_rank.values():
            for address, link in one.links.items():
                others = [each for each in self.by_rank.values() if each.address == address]
                if link.unanswered and others and not self.silent_s(one.rank):
                    found.append(self._cut_between(one, others[0], link))
        return min(found, key=lambda each: each[0])[1] if found else None

    def _cut_between(self, one: Position, other: Position, link: Link) -> tuple[int, Root]:
        """What is known of a link over which a rank gets no answer; the lower the number, the surer."""
        here, there, ranks = self._host(one), self._host(other), (one.rank, other.rank)
        if link.heard:
            return 0, Root(f"what {here} sends does not reach {there}, the other direction works", ranks)
        if not self.silent_s(other.rank):
            return 1, Root(f"nothing gets through between {here} and {there}, in either direction", ranks)
        words = f"{there} does not answer {here}: it is down, or what it sends does not arrive"
        return 2, Root(words, ranks)

    # Words.

    def _who(self, position: Position) -> str:
        return f"rank {position.rank}" + (f" (host {position.host}, {position.name})" if self.several_hosts else "")

    def _host(self, position: Position) -> str:
        return f"host {position.host} ({position.name}, {position.address})"

    def _place(self, position: Position) -> str:
        return f"the {position.phase}" + (f" of round {position.round}" if position.round else "")

    def table(self, first: Sequence[int] = ()) -> str:
        """A row per rank: these, those that are silent or wait for nobody, then those that have waited longest."""

        def order(position: Position) -> tuple[int, bool, bool, float, int]:
            place = first.index(position.rank) if position.rank in first else len(first)
            rest = not self.silent_s(position.rank), position.waits, position.waits_since, position.rank
            return place, *rest

        rows = [self._row(position) for position in sorted(self.by_rank.values(), key=order)]
        left_out = len(rows) - MOST_ROWS
        more = f"\n… and {count(left_out, 'more rank')}" if left_out > 0 else ""
        return format_table(HEAD, rows[:MOST_ROWS]) + more

    def _row(self, position: Position) -> tuple[str, ...]:
        since = self.now - (position.waits_since if position.waits else position.since)
        silent = self.silent_s(position.rank)
        return (
            str(position.rank),
            f"{position.host} ({position.name})" if self.several_hosts else position.name,
            str(position.round or "–"),
            position.phase,
            position.what if position.waits else "–",
            f"{since:.0f} s",
            f"{silent:.0f} s ago" if silent else "now",
        )

    def describe(self, told: str) -> str:
        """What is printed: what the rank that gave up first says, the table, the root."""
        root = self.root() or Root("no rank waits any more")
        return f"{told}; all ranks:\n{self.table(root.ranks)}\n{root.words}"
