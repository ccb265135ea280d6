"""Schedules: the graph of each round, frozen, from a file or a server's choice, and the weights in force."""

import json
import math
from fractions import Fraction
from itertools import combinations

import pytest
from chi_square import FALSE_ALARM, uniform_p_value
from graphs import DRAWN, SYMMETRIC, draw
from hypothesis import given
from hypothesis import strategies as st

from dfl_dist.errors import ArgumentError
from dfl_dist.randomness import stream
from dfl_dist.topology.graph import WEIGHTS, Graph, Server, make_graph
from dfl_dist.topology.kinds import KINDS, Options, server
from dfl_dist.topology.schedule import Schedule, make_schedule, weights_in_force

RANDOM = ("random_directed", "random_symmetric", "by_loss", "erdos_renyi")
FOUR = [make_graph([[1], [2], [3], [0]]), make_graph([[1, 2], [0], [0], []])]  # as if from a file


def schedule(
    kind: str,
    num_clients: int = 4,
    *,
    seed: int = 0,
    out_degree: int = 2,
    weights: str = "auto",
    static: bool = False,
) -> Schedule:
    return make_schedule(
        KINDS[kind],
        num_clients,
        lambda round_idx: stream(seed, "graph", round_idx=round_idx),
        options=Options(out_degree=out_degree, p=0.5, graphs=FOUR, participation=0.5),
        weights=weights_in_force(kind, weights),
        static=static,
    )


# Rounds.


@pytest.mark.parametrize("kind", DRAWN)
def test_the_graph_of_a_round_depends_on_its_stream_alone(kind: str) -> None:
    losses = (0.1, 0.7, 0.4, 0.2)
    made, weights = schedule(kind, seed=3), "metropolis" if kind in SYMMETRIC else "out-degree"
    for round_idx in (5, 0, 5, 2):
        expected = draw(kind, 4, seed=3, round_idx=round_idx, out_degree=2, p=0.5, losses=losses)
        assert made.graph(round_idx, losses) == make_graph(expected, weights)


@pytest.mark.parametrize("kind", [*RANDOM, "server"])
def test_random_schedules_change_every_round_and_with_the_seed(kind: str) -> None:
    runs = [[schedule(kind, 20, seed=seed).graph(t, None) for t in range(20)] for seed in range(2)]
    assert len({*runs[0], *runs[1]}) == 40


def test_losses_are_needed_and_used_by_loss_only() -> None:
    assert [kind for kind in KINDS if schedule(kind).needs_losses] == ["by_loss"]
    far = schedule("by_loss", 6, out_degree=1).graph(1, [0.0, 0.0, 0.0, 1000.0, 0.0, 0.0])
    assert isinstance(far, Graph)
    assert all(3 in row for row in far.out), "exp(1000) to 1"


@pytest.mark.parametrize("kind", KINDS)
def test_static_freezes_the_graph_of_round_0(kind: str) -> None:
    moving, frozen = (schedule(kind, seed=1, static=static) for static in (False, True))
    losses = [0.0, 10.0, 20.0, 30.0]
    assert {frozen.graph(t, losses) for t in (7, 0, *range(20))} == {moving.graph(0, None)}
    assert not frozen.needs_losses
    changing = not KINDS[kind].fixed
    assert (len({moving.graph(t, None) for t in range(20)}) > 1) == changing, "there was something to freeze"


# Weights.


@pytest.mark.parametrize("kind", KINDS)
def test_weights_in_force(kind: str) -> None:
    allowed = {"auto": "metropolis" if kind in SYMMETRIC else "out-degree", "out-degree": "out-degree"}
    if kind in SYMMETRIC:
        allowed |= {"metropolis": "metropolis"}
    if kind == "file":
        allowed = {name: name for name in ("auto", *WEIGHTS)}
    if kind == "server":
        allowed = {"auto": "auto"}
    for weights in ("auto", *WEIGHTS, "server", "metropolls", ""):
        if weights in allowed:
            assert weights_in_force(kind, weights) == allowed[weights]
        else:
            with pytest.raises(ArgumentError) as error:
                weights_in_force(kind, weights)
            choices = " or ".join(allowed)
            line = f"weights: given {weights}, allowed: {choices}, with graph.kind {kind}; metropolis is for"
            assert str(error.value).startswith(line)


@pytest.mark.parametrize("kind", DRAWN)
def test_a_schedule_uses_the_weights_in_force(kind: str) -> None:
    assert schedule(kind, weights="out-degree").graph(0, None).weights == "out-degree"
    assert schedule(kind).graph(0, None).weights == weights_in_force(kind, "auto")
    if kind in SYMMETRIC:
        assert schedule(kind, weights="metropolis").graph(0, None).weights == "metropolis"
    else:
        with pytest.raises(ArgumentError, match=f"metropolis.* with graph.kind {kind}"):
            schedule(kind, weights="metropolis")


def test_a_file_is_periodic() -> None:
    made = schedule("file")
    assert [made.graph(t, None) for t in (0, 1, 2, 3, 100, 101)] == FOUR * 3


# A server's choice of clients.


def draw_clients(num_clients: int, participation: float, *, seed: int = 0, round_idx: int = 0) -> Server:
    rng = stream(seed, "graph", round_idx=round_idx)
    return server(num_clients, round_idx, rng, Options(participation=participation))


@pytest.mark.parametrize(
    ("participation", "num_clients", "count"),
    [
        (0.1, 100, 10),
        (0.1, 15, 2),  # 1.5
        (0.25, 10, 3),  # 2.5
        (0.35, 10, 4),  # 3.5
        (0.1, 14, 1),
        (0.1, 5, 1),  # 0.5
        (0.1, 1, 1),
        (0.0001, 10, 1),
        (0.99, 10, 10),
        (1.0, 7, 7),
    ],
)
def test_participation_rounds_half_up_and_to_one_at_least(participation: float, num_clients: int, count: int) -> None:
    assert len(draw_clients(num_clients, participation).clients) == count


@given(st.integers(1, 60), st.integers(1, 64), st.integers(0, 2**32))
def test_clients_are_sorted_and_distinct(num_clients: int, of_64: int, seed: int) -> None:
    found = draw_clients(num_clients, of_64 / 64, seed=seed)
    assert found == draw_clients(num_clients, of_64 / 64, seed=seed)
    assert list(found.clients) == sorted(set(found.clients))
    assert set(found.clients) <= set(range(num_clients))
    assert len(found.clients) == max(1, math.floor(Fraction(of_64, 64) * num_clients + Fraction(1, 2)))


@pytest.mark.parametrize("participation", [0.1, 0.5, 0.9])
def test_every_set_of_clients_is_as_likely(participation: float) -> None:
    made = [draw_clients(6, participation, round_idx=t).clients for t in range(2000)]
    assert uniform_p_value(made, combinations(range(6), len(made[0]))) > FALSE_ALARM


def test_a_server_schedule_draws_its_clients_each_round() -> None:
    made = schedule("server", 10)
    graph = made.graph(4, None)
    assert graph == draw_clients(10, 0.5, round_idx=4)
    assert isinstance(graph, Server)
    line = json.loads(json.dumps({"round": 4, **graph.record()}))
    assert line == {"round": 4, "out": None, "clients": list(graph.clients), "weights": "server"}
