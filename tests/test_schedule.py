"""Schedules: the graph of each round, frozen, read from a file or a server's choice, and the weights in force."""

import json
import math
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from chi_square import FALSE_ALARM, uniform_p_value
from hypothesis import given
from hypothesis import strategies as st

from dfl_dist.randomness import stream
from dfl_dist.schedule import NAMES, Schedule, draw_clients, make_schedule, read_graphs, weights_in_force
from dfl_dist.topology import KINDS, SYMMETRIC, WEIGHTS, Graph, Options, Server, make_graph

RANDOM = ("random_directed", "random_symmetric", "by_loss", "erdos_renyi")
FOUR = ([[1], [2], [3], [0]], [[1, 2], [0], [0], []])  # two graphs of four clients


def schedule(
    kind: str,
    num_clients: int = 4,
    *,
    seed: int = 0,
    out_degree: int = 2,
    weights: str = "auto",
    static: bool = False,
    file: Path | None = None,
) -> Schedule:
    return make_schedule(
        kind,
        num_clients,
        lambda round_idx: stream(seed, "graph", round_idx=round_idx),
        options=Options(out_degree=out_degree, p=0.5),
        weights=weights,
        static=static,
        file=str(file) if file else None,
        participation=0.5,
    )


def write(path: Path, *rows: object) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.fixture
def four(tmp_path: Path) -> Path:
    return write(tmp_path / "four.jsonl", *({"out": neighbors} for neighbors in FOUR))


# Rounds.


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_of_a_round_depends_on_its_stream_alone(kind: str) -> None:
    losses = (0.1, 0.7, 0.4, 0.2)
    made, weights = schedule(kind, seed=3), "metropolis" if kind in SYMMETRIC else "out-degree"
    for round_idx in (5, 0, 5, 2):
        options = Options(out_degree=2, p=0.5, losses=losses)
        expected = KINDS[kind](4, round_idx, stream(3, "graph", round_idx=round_idx), options)
        assert made.graph(round_idx, losses) == make_graph(expected, weights)


@pytest.mark.parametrize("kind", [*RANDOM, "server"])
def test_random_schedules_change_every_round_and_with_the_seed(kind: str) -> None:
    runs = [[schedule(kind, 20, seed=seed).graph(t, None) for t in range(20)] for seed in range(2)]
    assert len({*runs[0], *runs[1]}) == 40


def test_losses_are_needed_and_used_by_loss_only(four: Path) -> None:
    assert [kind for kind in NAMES if schedule(kind, file=four).needs_losses] == ["by_loss"]
    far = schedule("by_loss", 6, out_degree=1).graph(1, [0.0, 0.0, 0.0, 1000.0, 0.0, 0.0])
    assert isinstance(far, Graph)
    assert all(3 in row for row in far.out), "exp(1000) to 1"


@pytest.mark.parametrize("kind", NAMES)
def test_static_freezes_the_graph_of_round_0(kind: str, four: Path) -> None:
    moving, frozen = (schedule(kind, seed=1, static=static, file=four) for static in (False, True))
    losses = [0.0, 10.0, 20.0, 30.0]
    assert {frozen.graph(t, losses) for t in (7, 0, *range(20))} == {moving.graph(0, None)}
    assert not frozen.needs_losses
    changing = kind in {*RANDOM, "one_peer_exponential", "file", "server"}
    assert (len({moving.graph(t, None) for t in range(20)}) > 1) == changing, "there was something to freeze"


# Weights.


@pytest.mark.parametrize("kind", NAMES)
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
            with pytest.raises(ValueError, match=r"^graph\.weights") as error:
                weights_in_force(kind, weights)
            choices = " or ".join(allowed)
            line = f"graph.weights: given {weights}, allowed: {choices}, with graph.kind {kind}; metropolis is for"
            assert str(error.value).startswith(line)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_schedule_uses_the_weights_in_force(kind: str) -> None:
    assert schedule(kind, weights="out-degree").graph(0, None).weights == "out-degree"
    assert schedule(kind).graph(0, None).weights == weights_in_force(kind, "auto")
    if kind in SYMMETRIC:
        assert schedule(kind, weights="metropolis").graph(0, None).weights == "metropolis"
    else:
        with pytest.raises(ValueError, match=f"metropolis.* with graph.kind {kind}"):
            schedule(kind, weights="metropolis")


# Files.


def test_file_is_periodic_and_may_leave_out_self_loops(tmp_path: Path) -> None:
    path = write(tmp_path / "g", {"out": [[1], []]}, {"round": 1, "out": [[0], [1, 0]], "weights": "out-degree"})
    made = schedule("file", 2, file=path)
    expected = [make_graph([[0, 1], [1]]), make_graph([[0], [0, 1]])]
    assert [made.graph(t, None) for t in (0, 1, 2, 3, 100, 101)] == expected * 3


def test_file_may_have_empty_lines_which_count_in_complaints(tmp_path: Path) -> None:
    path = tmp_path / "g"
    path.write_text('\n{"out": [[1], []]}\r\n   \n{"out": [[], [0]]}\n\n')
    assert [graph.out for graph in read_graphs(path, 2)] == [((0, 1), (1,)), ((0,), (0, 1))]
    path.write_text('\n{"out": [[1], []]}\n\n{"out": [[2], [0]]}\n')
    with pytest.raises(ValueError, match="g:4 must have"):
        read_graphs(path, 2)


def test_lines_name_their_weights_and_the_setting_overrides_them(tmp_path: Path) -> None:
    both_ways = [[1], [0, 2], [1]]
    path = write(
        tmp_path / "g",
        {"out": both_ways},
        {"out": both_ways, "weights": "metropolis"},
        {"out": both_ways, "weights": "out-degree"},
    )

    def weights(asked: str) -> list[str]:
        return [schedule("file", 3, file=path, weights=asked).graph(t, None).weights for t in range(3)]

    assert weights("auto") == ["out-degree", "metropolis", "out-degree"]
    assert weights("metropolis") == ["metropolis"] * 3
    assert weights("out-degree") == ["out-degree"] * 3


def test_out_degree_overrides_metropolis_on_a_directed_line(tmp_path: Path) -> None:
    path = write(tmp_path / "g", {"out": [[1], []], "weights": "metropolis"})
    assert read_graphs(path, 2, "out-degree") == [make_graph([[1], []])]


def test_metropolis_for_a_file_with_a_directed_line_is_refused_by_line(four: Path) -> None:
    with pytest.raises(ValueError, match=r"jsonl:1 has weights metropolis and is not symmetric, allowed: out-degree"):
        schedule("file", file=four, weights="metropolis")


SERVER_LINE = {"round": 0, "out": None, "clients": [0], "weights": "server"}


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([], "holds no graph"),
        ([{"out": []}], ":1 must have 2 lists"),
        ([{"out": [[1]]}], ":1 must have 2 lists"),
        ([{"out": [[1], [0], []]}], ":1 must have 2 lists"),
        ([{"out": [[1], [0]]}, {"out": [[1], [2]]}], ":2 must have 2 lists of client numbers 0 to 1"),
        ([{"out": [[-1], [0]]}], "must have 2 lists"),
        ([{"out": [[1], [0.5]]}], "must have 2 lists"),
        ([{"out": [[1], [0.0]]}], "must have 2 lists"),
        ([{"out": [[1], [False]]}], "must have 2 lists"),
        ([{"out": [[1], ["0"]]}], "must have 2 lists"),
        ([{"out": ["", ""]}], "must have 2 lists"),
        ([{"out": [[1], {}]}], "must have 2 lists"),
        ([{"out": None}], "must have 2 lists"),
        ([{"graph": []}], ':1 is not a JSON object with lists under "out"'),
        ([{"out": [[1], []]}, [1, 2]], ":2 is not a JSON object"),
        (["out"], "is not a JSON object"),
        ([None], "is not a JSON object"),
        ([3], "is not a JSON object"),
        ([{"out": [[1], []], "weights": "metropolis"}], ":1 has weights metropolis and is not symmetric"),
        ([{"out": [[1], []]}, {"out": [[], []], "weights": "equal"}], ":2 has weights equal, allowed: out-degree or"),
        ([{"out": [[], []], "weights": None}], ":1 has weights None"),
        ([{"out": [[], []]}, SERVER_LINE], ":2 has weights server, allowed: out-degree or metropolis"),
        ([{"out": [[], []], "weights": ["metropolis"]}], ":1 has weights"),
    ],
)
def test_bad_files_are_refused_by_line(tmp_path: Path, rows: list[object], complaint: str) -> None:
    path = write(tmp_path / "g", *rows)
    with pytest.raises(ValueError, match=r"^graph\.file: ") as error:
        schedule("file", 2, file=path)
    assert complaint in str(error.value)
    assert str(path) in str(error.value)


def test_a_servers_round_is_refused_whatever_weights_are_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "g", SERVER_LINE)
    for weights in ("auto", *WEIGHTS):
        with pytest.raises(ValueError, match="g:1 "):
            read_graphs(path, 2, weights)


@pytest.mark.parametrize("content", [b"{", b'{"out": [[1], []]', b'{"out": [[1], []]} {"out"', b"nonsense"])
def test_a_torn_line_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "g"
    path.write_bytes(b'{"out": [[1], []]}\n' + content)
    with pytest.raises(ValueError, match=r"graph\.file: .*g:2 is not a JSON object"):
        read_graphs(path, 2)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "absent", tmp_path, tmp_path / "bytes"):
        with pytest.raises(ValueError, match=r"^graph\.file: given .* cannot be read"):
            read_graphs(path, 2)


@given(st.integers(1, 12), st.integers(0, 2**32), st.sampled_from(sorted(KINDS)))
def test_what_a_run_records_reads_back_as_its_graphs(num_clients: int, seed: int, kind: str) -> None:
    made = schedule(kind, num_clients, seed=seed, out_degree=min(2, num_clients - 1))
    graphs = [made.graph(t, None) for t in range(3)]
    lines = [json.loads(json.dumps({"round": t, **graph.record()})) for t, graph in enumerate(graphs)]
    assert [set(line) for line in lines] == [{"round", "out", "weights"}] * 3
    assert all(client in row for line in lines for client, row in enumerate(line["out"])), "itself included"
    with TemporaryDirectory() as folder:
        assert read_graphs(write(Path(folder) / "topology.jsonl", *lines), num_clients) == graphs


# A server's choice of clients.


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
    assert len(draw_clients(num_clients, stream(0, "graph"), participation).clients) == count


@given(st.integers(1, 60), st.integers(1, 64), st.integers(0, 2**32))
def test_clients_are_sorted_and_distinct(num_clients: int, of_64: int, seed: int) -> None:
    server = draw_clients(num_clients, stream(seed, "graph"), of_64 / 64)
    assert server == draw_clients(num_clients, stream(seed, "graph"), of_64 / 64)
    assert list(server.clients) == sorted(set(server.clients))
    assert set(server.clients) <= set(range(num_clients))
    assert len(server.clients) == max(1, math.floor(Fraction(of_64, 64) * num_clients + Fraction(1, 2)))


@pytest.mark.parametrize("participation", [0.1, 0.5, 0.9])
def test_every_set_of_clients_is_as_likely(participation: float) -> None:
    made = [draw_clients(6, stream(0, "graph", round_idx=t), participation).clients for t in range(2000)]
    assert uniform_p_value(made, combinations(range(6), len(made[0]))) > FALSE_ALARM


def test_a_server_schedule_draws_its_clients_each_round() -> None:
    made = schedule("server", 10)
    graph = made.graph(4, None)
    assert graph == draw_clients(10, stream(0, "graph", round_idx=4), 0.5)
    assert isinstance(graph, Server)
    line = json.loads(json.dumps({"round": 4, **graph.record()}))
    assert line == {"round": 4, "out": None, "clients": list(graph.clients), "weights": "server"}
