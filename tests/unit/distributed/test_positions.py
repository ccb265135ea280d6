"""What a rank marks of its position, and what it says when it gives up; several ranks' parts in one process."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from dfl_dist.distributed import positions
from dfl_dist.distributed.positions import OWN, Publisher, SilenceError, at, count_sent, explain, parse, waiting_for
from dfl_dist.distributed.standstill import Position
from dfl_dist.distributed.waiting import wait
from dfl_dist.distributed.world import World
from dfl_dist.errors import PeerError


@pytest.fixture
def store() -> Iterator[Any]:
    yield dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=20))
    positions.stop()


class Never:
    def wait(self, timeout: timedelta = timedelta()) -> bool:
        raise RuntimeError("[/pytorch/gloo/unbound_buffer.cc:81] Timed out waiting 1000ms for recv operation")


def world(rank: int, size: int = 2) -> World:
    return World(rank=rank, size=size, local_rank=rank, local_size=size, torchrun=True)


def gives_up(rank: int = 1) -> PeerError:
    """A wait of this process that times out, as `training.rounds` hands it on."""
    with pytest.raises(SilenceError) as silence:
        wait(Never(), what=f"the frame of rank {rank} in round 3", timeout_s=1.0, peers=(rank,), needs=("frame", 3))
    error = PeerError(f"round 3: {silence.value}")
    error.__cause__ = silence.value
    return error


def told(store: Any, rank: int) -> Position:
    end = time.monotonic() + 10
    while not store.check([f"position/{rank}"]):
        assert time.monotonic() < end, "it tells nothing"
    return parse(store.get(f"position/{rank}"))


def test_a_position_is_told_without_being_asked(store: Any) -> None:
    positions.start(world(0), store)
    count_sent("frame")
    at("exchange", 3)
    with waiting_for((1,), "the frame of rank 1 in round 3", ("frame", 3)):
        end = time.monotonic() + 10
        while not (found := told(store, 0)).waits:
            assert time.monotonic() < end, "it is told once only"
            time.sleep(0.02)
    assert (found.rank, found.round, found.phase, found.sent) == (0, 3, "exchange", {"frame": 1})
    assert (found.waits_for, found.needs) == ((1,), ("frame", 3))
    assert OWN.wait is None, "and it is over"


def test_the_first_to_give_up_tells_of_all_and_the_others_nothing(store: Any) -> None:
    other = Publisher(world(1), store)
    positions.start(world(0), store)
    told(store, 1)
    words = explain(gives_up())
    assert words is not None
    assert words.startswith("round 3: waited for the frame of rank 1 in round 3: nothing came within 1 s (timeout_s); ")
    assert words.count("\n") == 4, "a head, two ranks, the root"
    assert other.ask(lambda: other.give_up("me too")) == ""
    other.end()
    lost = PeerError("waited for the frame of rank 1: the connection is gone")
    assert explain(lost) == "", "which was closed by the one that gave up"


def test_where_nobody_gave_up_a_lost_connection_has_its_own_words(store: Any) -> None:
    positions.start(world(0), store)
    started = time.monotonic()
    assert explain(PeerError("waited for the frame of rank 1: the connection is gone")) is None
    assert time.monotonic() - started < 0.3, "it does not wait for anybody"


def test_without_a_store_the_error_has_its_own_words() -> None:
    positions.stop()
    assert explain(gives_up()) is None


def test_a_store_that_is_gone_is_not_waited_for() -> None:
    served = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    client = dist.TCPStore("127.0.0.1", served.port, is_master=False)
    positions.start(world(0), client)
    told(client, 0)
    del served
    positions.PUBLISHERS[0].thread.join(5)
    assert not positions.PUBLISHERS[0].thread.is_alive(), "it has ended, without a word"
    started = time.monotonic()
    assert explain(gives_up()) is None
    assert time.monotonic() - started < 1
    positions.stop()


def test_a_second_run_begins_anew(store: Any) -> None:
    positions.start(world(0), store)
    count_sent("frame")
    first = positions.PUBLISHERS[0]
    positions.start(world(0), dist.PrefixStore("second", store))  # type: ignore[attr-defined]
    assert not first.thread.is_alive()
    assert not OWN.sent


class SlowStore:
    """A store that stands still for a moment when it is asked what all ranks have told."""

    def __init__(self, content: dict[str, str], pause: Callable[[], None]) -> None:
        self.content, self.pause = content, pause

    def set(self, key: str, value: str) -> None:
        self.content[key] = value

    def add(self, key: str, number: int) -> int:
        return number

    def check(self, keys: list[str]) -> bool:
        return all(key in self.content for key in keys)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self.pause()
        return [self.content[key].encode() for key in keys]


@pytest.mark.parametrize(
    ("what_happens", "gives_up"),
    [
        pytest.param("nothing", True, id="the rank is silent"),
        pytest.param("the store stands still", False, id="nobody could tell anything"),
        pytest.param("the rank has come", False, id="it is not waited for any more"),
    ],
)
def test_a_rank_that_is_silent_at_the_start(monkeypatch: pytest.MonkeyPatch, what_happens: str, gives_up: bool) -> None:
    monkeypatch.setattr(positions, "LATE_S", 0.05)
    monkeypatch.setattr(positions.logging, "shutdown", lambda: None)
    ended: list[int] = []
    monkeypatch.setattr(positions.os, "_exit", ended.append)
    positions.stop()
    OWN.place, OWN.silence_s = (0, positions.START, time.monotonic()), 0.5
    OWN.wait = positions.Wait((1,), "rank 1 to load its data", None, time.monotonic() - 10)

    def pause() -> None:
        if what_happens == "the store stands still":
            time.sleep(0.1)
        if what_happens == "the rank has come":
            OWN.wait = None

    publisher = Publisher(world(0), SlowStore({}, lambda: None))
    publisher.end()  # what its thread does is done here
    publisher.started -= 10
    publisher.store = SlowStore({"position/1": json.dumps(asdict(Position(1)))}, pause)
    publisher._look_for_silence()
    OWN.wait = OWN.silence_s = None
    assert bool(ended) == gives_up
