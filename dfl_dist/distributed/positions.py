"""Where each rank is: kept in memory, put into the store once a second, and collected when a wait has timed out.

A rank marks what it does (`at`), whom it waits for (`waiting_for`) and what it has sent (`count_sent`): a few
assignments, no traffic. A thread of its own, with its own connection to the store, tells the others.
"""

import atexit
import contextlib
import json
import logging
import os
import queue
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypeVar

from dfl_dist.distributed.links import Watch
from dfl_dist.distributed.standstill import STALE_S, Link, Position, Standstill
from dfl_dist.distributed.world import World
from dfl_dist.errors import PeerError

log = logging.getLogger(__name__)
BEAT_S = 1.0
TICK_S = 0.4  # how soon a question is heard
ANSWER_S = 0.6  # how long the others have to answer it
TOLD_WITHIN_S = 1.2  # how long ranks stay for the one that prints the table
STORE_WITHIN_S = 1.8
END_S = 0.5
LATE_S = 0.5  # an answer of the store
LONG_S = 1.0  # a wait from which on somebody may be about to give up
ASKED, TOLD = "asked", "told"
START = "start"  # the phase before the first round
T = TypeVar("T")


class SilenceError(PeerError):
    """Nothing came within the timeout."""


class ToldElsewhereError(PeerError):
    """What another rank of this host meets too, and tells."""


class Wait(NamedTuple):
    """Whom this rank waits for, and which message of theirs, if it is one."""

    peers: tuple[int, ...]
    what: str
    needs: tuple[str, int] | None
    since: float


@dataclass
class Own:
    """This rank's position; each field is replaced as a whole, since another thread reads them."""

    place: tuple[int, str, float] = (0, START, 0.0)
    wait: Wait | None = None
    silence_s: float | None = None  # at the start: how long a rank may be silent, however long others wait for it
    sent: Counter[str] = field(default_factory=Counter)


OWN = Own()


def at(phase: str, round_number: int) -> None:
    """Mark what this rank does from here on; rounds are counted from 1."""
    OWN.place = (round_number, phase, time.monotonic())


def count_sent(kind: str) -> None:
    """Mark that another message of this kind was sent, to all that expect one."""
    OWN.sent[kind] += 1


@contextlib.contextmanager
def waiting_for(peers: Sequence[int], what: str, needs: tuple[str, int] | None = None) -> Iterator[None]:
    """Mark a wait; where it fails, it stays marked."""
    before = OWN.wait
    OWN.wait = Wait(tuple(peers), what, needs, time.monotonic())
    yield
    OWN.wait = before


def limit_silence(timeout_s: float) -> None:
    """Let the process end where a rank that it waits for at the start is silent for so long: stopped, or gone.

    Waits are long there, since data may take minutes to load; but a rank that loads it is heard of once a second.
    """
    OWN.silence_s = timeout_s


def waits_long() -> bool:
    wait = OWN.wait
    return wait is not None and time.monotonic() - wait.since > LONG_S


class Publisher:
    """Tells this rank's position to the others, and collects theirs on request.

    `firsts` has a position of the first rank of every host, for when the store cannot be reached any more; `lines` are
    connections to other hosts that are there to be watched.
    """

    def __init__(
        self, world: World, store: Any, firsts: Sequence[Position] = (), lines: Sequence[socket.socket] = ()
    ) -> None:
        self.world, self.store, self.firsts = world, store, firsts
        self.name, self.started, self.ended = socket.gethostname(), time.monotonic(), False
        self.answers_since = 0.0  # the store, without a pause
        self.address = next((each.address for each in firsts if each.host == world.host), "")
        self.watch = Watch(waits_long, lines) if len(firsts) > 1 else None
        self.requests: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, name="positions", daemon=True)
        self.thread.start()

    def ask(self, action: Callable[[], T]) -> T | None:
        """Let the thread do something with its connection; None where the store does not answer."""
        answer: queue.SimpleQueue[T] = queue.SimpleQueue()
        self.requests.put(lambda: answer.put(action()))
        with contextlib.suppress(queue.Empty):
            return answer.get(timeout=STORE_WITHIN_S if self.thread.is_alive() else 0.0)
        return None

    def end(self) -> None:
        self.ended = True
        self.requests.put(None)
        self.thread.join(END_S)
        if self.watch:
            self.watch.end()

    # What the thread does.

    def _run(self) -> None:
        """Never fails loudly: a store that is gone has nobody who listens."""
        with contextlib.suppress(Exception):
            beat, asked = 0.0, False
            while not self.ended:
                if time.monotonic() >= beat:
                    self._publish()
                    self._look_for_silence()
                    beat = time.monotonic() + BEAT_S
                with contextlib.suppress(queue.Empty):
                    if action := self.requests.get(timeout=TICK_S):
                        action()
                with self._noting_late_answers():
                    if not asked and self.store.check([ASKED]):
                        beat, asked = 0.0, True

    def _publish(self) -> None:
        with self._noting_late_answers():
            self.store.set(f"position/{self.world.rank}", json.dumps(asdict(self.position())))

    @contextlib.contextmanager
    def _noting_late_answers(self) -> Iterator[None]:
        """Where the store itself stood still, with the agent that serves it, nobody could tell anything meanwhile."""
        asked = time.monotonic()
        yield
        if time.monotonic() - asked > LATE_S:
            self.answers_since = self.since_start(time.monotonic())

    def _look_for_silence(self) -> None:
        wait, limit_s = OWN.wait, OWN.silence_s
        if OWN.place[1] != START or not limit_s or not wait or time.monotonic() - wait.since < limit_s:
            return
        with self._noting_late_answers():
            found = list(self._read())
        now = self.since_start(time.monotonic())
        heard = {each.rank: max(each.at, self.answers_since) for each in found}
        silent = [rank for rank in wait.peers if rank in heard and now - heard[rank] > max(limit_s, STALE_S)]
        if silent and OWN.wait is wait:  # it waits for them still
            told = f"waited for {wait.what}: nothing was heard of rank {silent[0]} for {limit_s:g} s (timeout_s)"
            if words := self.give_up(told):
                log.error("%s", words)
            logging.shutdown()
            os._exit(1)  # the main thread waits, and cannot be woken

    def give_up(self, told: str) -> str:
        """The standstill in words for the first rank that gives up; nothing for those after it."""
        self._publish()
        if int(self.store.add(ASKED, 1)) > 1:
            self._is_there(TOLD, TOLD_WITHIN_S)
            return ""
        standstill = self._collect()
        self.store.set(TOLD, "")
        return standstill.describe(told)

    def others_gave_up(self, patience_s: float) -> bool:
        """Whether another rank has given up; if so, once it has told."""
        return self._is_there(ASKED, patience_s) and (self._is_there(TOLD, TOLD_WITHIN_S) or True)

    def _is_there(self, key: str, patience_s: float) -> bool:
        end = time.monotonic() + patience_s
        while not (there := bool(self.store.check([key]))) and time.monotonic() < end:
            time.sleep(TICK_S / 20)
        return there

    def _collect(self) -> Standstill:
        """What all ranks were last heard to do; those that live have a moment to tell."""
        asked = self.since_start(time.monotonic())
        while True:
            found = [*self._read(), self.position()]
            now = self.since_start(time.monotonic())
            if now - asked > ANSWER_S or all(each.at >= asked for each in found):
                return Standstill(found, now)
            time.sleep(TICK_S / 8)

    def _read(self) -> Iterator[Position]:
        """The others' positions; of a rank that never told there is none but its number."""
        others = [rank for rank in range(self.world.size) if rank != self.world.rank]
        told = [rank for rank in others if self.store.check([f"position/{rank}"])]
        yield from (Position(rank) for rank in others if rank not in told)
        if told:
            yield from map(parse, self.store.multi_get([f"position/{rank}" for rank in told]))

    # What this rank knows by itself.

    def position(self) -> Position:
        number, phase, since = OWN.place
        wait = OWN.wait
        return Position(
            rank=self.world.rank,
            host=self.world.host,
            name=self.name,
            address=self.address,
            round=number,
            phase=phase,
            since=self.since_start(since),
            waits_for=wait.peers if wait else (),
            what=wait.what if wait else "",
            waits_since=self.since_start(wait.since) if wait else 0.0,
            needs=wait.needs if wait else None,
            sent=dict(OWN.sent),
            links=dict(self.watch.found) if self.watch else {},
            at=self.since_start(time.monotonic()),
        )

    def since_start(self, moment: float) -> float:
        return max(0.0, moment - self.started)

    def own_view(self) -> str | None:
        """What is wrong with the links of this host, as far as it can tell; None where nothing is."""
        others = [each for each in self.firsts if each.host != self.world.host]
        return Standstill([self.position(), *others], self.since_start(time.monotonic())).cut_link()


def parse(text: bytes) -> Position:
    """A position as it was told."""
    fields = json.loads(text)
    fields["waits_for"] = tuple(fields["waits_for"])
    fields["needs"] = tuple(fields["needs"]) if fields["needs"] else None
    fields["links"] = {address: Link(*link) for address, link in fields["links"].items()}
    return Position(**fields)


# One at a time: a script may run several times in a process.

PUBLISHERS: list[Publisher] = []


def start(world: World, store: Any, firsts: Sequence[Position] = (), lines: Sequence[socket.socket] = ()) -> None:
    """Begin to tell this rank's position, in a store of this start; its connection is used by a thread from here on."""
    stop()
    OWN.place, OWN.wait, OWN.sent = (0, START, time.monotonic()), None, Counter()
    OWN.silence_s = None
    PUBLISHERS.append(Publisher(world, store, firsts, lines))


@atexit.register
def stop() -> None:
    """End the thread, before the interpreter or the store goes."""
    while PUBLISHERS:
        PUBLISHERS.pop().end()


def explain(error: PeerError) -> str | None:
    """What to say of an error that ends this rank, once for all ranks.

    Where its wait has timed out and it is the first: the table of all ranks and the root of the standstill. Where
    another rank tells that, an empty text: there is nothing to add. None where the error's own words are all there is.
    """
    if isinstance(error, ToldElsewhereError):
        return ""
    if not PUBLISHERS:
        return None
    publisher = PUBLISHERS[-1]
    if not has_timed_out(error):
        patience_s = LONG_S if waits_long() else 0.0  # a rank that gives up closes its connections, and tells later
        return "" if publisher.ask(lambda: publisher.others_gave_up(patience_s)) else None
    words = publisher.ask(lambda: publisher.give_up(str(error)))
    if words is None and (found := publisher.own_view()):
        return f"{error}; {found}"
    return words


def has_timed_out(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, SilenceError):
        error = error.__cause__
    return error is not None
