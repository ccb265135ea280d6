"""Plans of rounds: any graph, a server's choice, or the end; what rank 0 decides and tells."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfl_dist.topology.graph import WEIGHTS, Graph, RoundGraph, Server, make_graph
from dfl_dist.topology.schedule import Losses, Schedule
from dfl_dist.training.plans import NO_ROUND, Planner, decode, encode


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 12))
    rows = st.lists(st.sets(st.integers(0, count - 1)), min_size=count, max_size=count)
    neighbors = draw(rows)
    weights = draw(st.sampled_from(list(WEIGHTS)))
    both_ways = [
        row | {peer for peer in range(count) if client in neighbors[peer]} for client, row in enumerate(neighbors)
    ]
    return make_graph([sorted(row) for row in (both_ways if weights == "metropolis" else neighbors)], weights)


servers = st.sets(st.integers(0, 200), min_size=1).map(lambda clients: Server(tuple(sorted(clients))))


@given(graphs() | servers)
def test_a_plan_tells_the_very_graph(graph: RoundGraph) -> None:
    decision, body = encode(graph)
    assert decision != NO_ROUND
    assert all(type(number) is int and 0 <= number < 2**31 for number in body), "they travel as 32-bit numbers"
    assert decode(decision, list(body)) == graph


def test_that_there_is_no_round_takes_no_body() -> None:
    assert encode(None) == (NO_ROUND, [])
    assert decode(NO_ROUND, []) is None


class Heard:
    """In place of the control group."""

    def __init__(self) -> None:
        self.plans: dict[int, RoundGraph | None] = {}

    def send_plan(self, round_idx: int, decision: int, body: Sequence[int]) -> None:
        self.plans[round_idx] = decode(decision, list(body))


def numbered(round_idx: int, losses: Losses) -> RoundGraph:
    return Server((round_idx,)) if losses is None else Server((round_idx, 1000 + int(losses[0])))


def planner(folder: Path, wishes: Sequence[str | None] = (), *, needs_losses: bool = False) -> tuple[Planner, Heard]:
    heard, left = Heard(), iter(wishes)
    schedule = Schedule(numbered, needs_losses=needs_losses)
    return Planner(heard, schedule, folder, lambda: next(left, None)), heard  # type: ignore[arg-type]


def test_a_drawn_graph_is_announced_to_everybody(tmp_path: Path) -> None:
    made, heard = planner(tmp_path)
    for number in range(2):
        made.draw(number, [3.0])
        made.announce(number, sound=True, first=number == 0)
    assert heard.plans == made.announced == made.graphs == {0: Server((0,)), 1: Server((1,))}
    assert made.stop_reason is None


def test_losses_are_passed_on_only_where_they_are_needed(tmp_path: Path) -> None:
    made, _ = planner(tmp_path, needs_losses=True)
    made.draw(4, [3.0])
    assert made.graphs == {4: Server((4, 1003))}
    assert not made.sees_ahead


@pytest.mark.parametrize("how", ["a fault", "a signal", "a STOP file", "Ctrl-C (SIGINT)"])
def test_no_round_is_announced_after(tmp_path: Path, how: str) -> None:
    made, heard = planner(tmp_path, [how] if how == "a signal" else [])
    if how == "a STOP file":
        (tmp_path / "STOP").touch()
    if "Ctrl-C" in how:  # as a launcher writes it
        (tmp_path / "STOP").write_text("Ctrl-C (SIGINT)\n")
    made.draw(1, None)
    made.announce(1, sound=how != "a fault", first=False)
    assert heard.plans == made.announced == {1: None}
    assert made.stop_reason == (None if how == "a fault" else how)
    made.draw(2, None)
    made.announce(2, sound=how != "a fault", first=False)
    assert heard.plans[2] is None, "once is enough"


def test_the_first_round_of_a_start_takes_place_whatever_is_wished(tmp_path: Path) -> None:
    (tmp_path / "STOP").touch()
    made, heard = planner(tmp_path, ["a signal"])
    made.draw(5, None)
    made.announce(5, sound=True, first=True)
    assert heard.plans == {5: Server((5,))}
