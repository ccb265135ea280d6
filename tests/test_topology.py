"""Graphs: self-loops, degrees, column-stochastic weights, reproducible seeds, files."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dfl_dist.randomness import stream
from dfl_dist.topology import SCHEDULES, Graph, from_neighbors, random_directed, read_graphs


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    num_clients = draw(st.integers(1, 40))
    return num_clients, draw(st.integers(0, num_clients - 1))


@given(sizes(), st.integers(0, 2**32), st.integers(0, 1000))
def test_random_directed(size: tuple[int, int], seed: int, round_idx: int) -> None:
    num_clients, out_degree = size
    graph = random_directed(num_clients, stream(seed, "graph", round_idx=round_idx), out_degree=out_degree)
    again = random_directed(num_clients, stream(seed, "graph", round_idx=round_idx), out_degree=out_degree)
    assert graph == again, "a seed and a round give one graph"
    matrix = np.zeros((num_clients, num_clients))
    for sender, receivers in enumerate(graph.out):
        assert sender in receivers, "self-loop"
        assert len(set(receivers)) == len(receivers) == out_degree + 1
        assert list(receivers) == sorted(receivers)
        matrix[list(receivers), sender] = graph.share(sender)
    np.testing.assert_allclose(matrix.sum(axis=0), 1, rtol=1e-14)
    for receiver, senders in enumerate(graph.in_neighbors):
        assert list(senders) == np.flatnonzero(matrix[receiver]).tolist()


def test_graphs_change_every_round_and_with_the_seed() -> None:
    def make(seed: int) -> list[Graph]:
        schedule = SCHEDULES["random_directed"](
            12, lambda t: stream(seed, "graph", round_idx=t), out_degree=3, file=None
        )
        assert schedule.max_edges == 12 * 4
        return [schedule.graph(t) for t in range(20)]

    assert len(set(make(0))) == 20
    assert make(0) == make(0)
    assert not set(make(0)) & set(make(1))


def test_every_neighbour_is_as_likely_as_the_others() -> None:
    counts = np.zeros((6, 6))
    for t in range(3000):
        for sender, receivers in enumerate(random_directed(6, stream(0, "graph", round_idx=t), out_degree=2).out):
            counts[sender, list(receivers)] += 1
    expected = np.full((6, 6), 3000 * 2 / 5)
    np.fill_diagonal(expected, 3000)
    chi_square = ((counts - expected) ** 2 / expected).sum(axis=1)
    assert chi_square.max() < 25, "4 degrees of freedom: above 25 happens once in 20,000"


def write(path: Path, *rows: object) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_file_is_periodic_and_may_leave_out_self_loops(tmp_path: Path) -> None:
    path = write(tmp_path / "g", {"out": [[1], []]}, {"round": 1, "out": [[0], [1, 0]], "weights": "out-degree"})
    schedule = SCHEDULES["file"](2, lambda t: stream(0, "graph"), out_degree=1, file=str(path))
    assert [schedule.graph(t).out for t in (0, 1, 2)] == [((0, 1), (1,)), ((0,), (0, 1)), ((0, 1), (1,))]
    assert schedule.max_edges == 3


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([], "holds no graph"),
        ([{"out": [[1]]}], ":1 must have 2 lists"),
        ([{"out": [[1], [0]]}, {"out": [[1], [2]]}], ":2 must have 2 lists of client numbers 0 to 1"),
        ([{"out": [[1], [0.5]]}], "must have 2 lists"),
        ([{"graph": []}], 'not a JSON object with lists under "out"'),
        ([[1, 2]], "not a JSON object"),
        ([{"out": ["", ""]}], "must have 2 lists"),
        ([{"out": [[1], [0]], "weights": "metropolis"}], ":1 has weights metropolis, allowed: out-degree"),
    ],
)
def test_bad_files_are_refused_by_line(tmp_path: Path, rows: list[object], complaint: str) -> None:
    with pytest.raises(ValueError, match=r"graph\.file") as error:
        read_graphs(write(tmp_path / "g", *rows), 2)
    assert complaint in str(error.value)


def test_from_neighbors_sorts_and_adds_the_client_itself() -> None:
    assert from_neighbors([[2, 1], [], [0, 0]]).out == ((0, 1, 2), (1,), (0, 2))
