"""Graphs from a file: read back as they were recorded; anything else is refused by line."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from graphs import DRAWN, draw
from hypothesis import given, settings
from hypothesis import strategies as st

from dfl_dist.errors import ArgumentError
from dfl_dist.topology.graph import WEIGHTS, make_graph
from dfl_dist.topology.graph_file import read_graphs
from dfl_dist.topology.schedule import weights_in_force


def write(path: Path, *rows: object) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_lines_may_leave_out_self_loops(tmp_path: Path) -> None:
    path = write(tmp_path / "g", {"out": [[1], []]}, {"round": 1, "out": [[0], [1, 0]], "weights": "out-degree"})
    assert read_graphs(path, 2) == [make_graph([[0, 1], [1]]), make_graph([[0], [0, 1]])]


def test_file_may_have_empty_lines_which_count_in_complaints(tmp_path: Path) -> None:
    path = tmp_path / "g"
    path.write_text('\n{"out": [[1], []]}\r\n   \n{"out": [[], [0]]}\n\n')
    assert [graph.out for graph in read_graphs(path, 2)] == [((0, 1), (1,)), ((0,), (0, 1))]
    path.write_text('\n{"out": [[1], []]}\n\n{"out": [[2], [0]]}\n')
    with pytest.raises(ArgumentError, match="g, whose line 4 must have"):
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
        return [graph.weights for graph in read_graphs(path, 3, asked)]

    assert weights("auto") == ["out-degree", "metropolis", "out-degree"]
    assert weights("metropolis") == ["metropolis"] * 3
    assert weights("out-degree") == ["out-degree"] * 3


def test_out_degree_overrides_metropolis_on_a_directed_line(tmp_path: Path) -> None:
    path = write(tmp_path / "g", {"out": [[1], []], "weights": "metropolis"})
    assert read_graphs(path, 2, "out-degree") == [make_graph([[1], []])]


def test_metropolis_for_a_file_with_a_directed_line_is_refused_by_line(tmp_path: Path) -> None:
    path = write(tmp_path / "g", {"out": [[1], [2], [0]]})
    with pytest.raises(ArgumentError, match="line 1 has weights metropolis and is not symmetric, allowed: out-degree"):
        read_graphs(path, 3, "metropolis")


SERVER_LINE = {"round": 0, "out": None, "clients": [0], "weights": "server"}


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([], "which holds no graph, allowed: one JSON object per line"),
        ([{"out": []}], "whose line 1 must have 2 lists"),
        ([{"out": [[1]]}], "whose line 1 must have 2 lists"),
        ([{"out": [[1], [0], []]}], "whose line 1 must have 2 lists"),
        ([{"out": [[1], [0]]}, {"out": [[1], [2]]}], "whose line 2 must have 2 lists of client numbers 0 to 1"),
        ([{"out": [[-1], [0]]}], "whose line 1 must have 2 lists"),
        ([{"out": [[1], [0.5]]}], "whose line 1 must have 2 lists"),
        ([{"out": [[1], [0.0]]}], "whose line 1 must have 2 lists"),
        ([{"out": [[1], [False]]}], "whose line 1 must have 2 lists"),
        ([{"out": [[1], ["0"]]}], "whose line 1 must have 2 lists"),
        ([{"out": ["", ""]}], "whose line 1 must have 2 lists"),
        ([{"out": [[1], {}]}], "whose line 1 must have 2 lists"),
        ([{"out": None}], "whose line 1 must have 2 lists"),
        ([{"graph": []}], 'whose line 1 is not a JSON object with lists under "out"'),
        ([{"out": [[1], []]}, [1, 2]], "whose line 2 is not a JSON object"),
        (["out"], "whose line 1 is not a JSON object"),
        ([None], "whose line 1 is not a JSON object"),
        ([3], "whose line 1 is not a JSON object"),
        ([{"out": [[1], []], "weights": "metropolis"}], "whose line 1 has weights metropolis and is not symmetric"),
        (
            [{"out": [[1], []]}, {"out": [[], []], "weights": "equal"}],
            "whose line 2 has weights equal, allowed: ",
        ),
        ([{"out": [[], []], "weights": None}], "whose line 1 has weights None"),
        ([{"out": [[], []]}, SERVER_LINE], "whose line 2 has weights server, allowed: out-degree or metropolis"),
        ([{"out": [[], []], "weights": ["metropolis"]}], "whose line 1 has weights"),
    ],
)
def test_bad_files_are_refused_by_line(tmp_path: Path, rows: list[object], complaint: str) -> None:
    path = write(tmp_path / "g", *rows)
    with pytest.raises(ArgumentError) as error:
        read_graphs(path, 2)
    assert str(error.value).startswith(f"file: given {path}, {complaint}")
    assert error.value.argument == "file"


def test_a_servers_round_is_refused_whatever_weights_are_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "g", SERVER_LINE)
    for weights in ("auto", *WEIGHTS):
        with pytest.raises(ArgumentError, match="g, whose line 1 "):
            read_graphs(path, 2, weights)


@pytest.mark.parametrize("content", [b"{", b'{"out": [[1], []]', b'{"out": [[1], []]} {"out"', b"nonsense"])
def test_a_torn_line_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "g"
    path.write_bytes(b'{"out": [[1], []]}\n' + content)
    with pytest.raises(ArgumentError, match="g, whose line 2 is not a JSON object"):
        read_graphs(path, 2)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "absent", tmp_path, tmp_path / "bytes"):
        with pytest.raises(ArgumentError, match=r"^file: given .* cannot be read"):
            read_graphs(path, 2)


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(0, 2**32), st.sampled_from(DRAWN))
def test_what_a_run_records_reads_back_as_its_graphs(num_clients: int, seed: int, kind: str) -> None:
    k, weights = min(2, num_clients - 1), weights_in_force(kind, "auto")
    graphs = [make_graph(draw(kind, num_clients, seed=seed, round_idx=t, out_degree=k), weights) for t in range(3)]
    lines = [json.loads(json.dumps({"round": t, **graph.record()})) for t, graph in enumerate(graphs)]
    assert [set(line) for line in lines] == [{"round", "out", "weights"}] * 3
    assert all(client in row for line in lines for client, row in enumerate(line["out"])), "itself included"
    with TemporaryDirectory() as folder:
        assert read_graphs(write(Path(folder) / "topology.jsonl", *lines), num_clients) == graphs
