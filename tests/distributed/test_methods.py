"""Methods and options as whole runs: the same bits on any layout and after a resume, overlap, warnings, records."""

import shutil
from pathlib import Path

import pytest
from launching import (
    TRAINER,
    assert_same_clients,
    assert_same_run,
    client_states,
    lines,
    ranks,
    run,
    running,
    train,
    wait_for_rounds,
)

AFTER_8 = Path("checkpoints") / "round-000008"
SHORT = ("--num_clients", "5", "--rounds", "6", "--local.epochs", "1", "--checkpoint.every", "3")
VARIANTS = {
    "chosen by loss": "--algorithm dfedsgpsm-s --graph.out_degree 2",
    "AsyNG": "--algorithm asyng --graph.out_degree 2 --overlap 1",
    "unequal weights": "--algorithm dfedsam --graph.kind erdos_renyi --graph.p 0.6",
    "overlap and gossip": "--overlap 2 --graph.gossip_steps 2 --graph.out_degree 2",
    "unequal weights in flight": "--algorithm dfedavgm --graph.out_degree 3 --overlap 1",
    "server": "--algorithm fedavg --participation 0.6 --server_lr 0.8",
}


@pytest.fixture(scope="module", params=VARIANTS.values(), ids=VARIANTS.keys())
def straight(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Six rounds of five clients, one a rank, and the arguments that make the variant."""
    arguments = str(request.param).split()
    return train(5, tmp_path_factory.mktemp("five") / "run", *SHORT, *arguments), arguments


def test_the_same_bits_on_another_layout_and_after_a_resume(straight: tuple[Path, list[str]], tmp_path: Path) -> None:
    """On a coordinator and two ranks the whole run, on one rank its second half, from a checkpoint of five ranks."""
    folder, arguments = straight
    other = train(3, tmp_path / "other", *SHORT, *arguments, "--rank0", "coordinator", "--window", "1")
    assert_same_clients(folder, other, 3)
    assert_same_clients(folder, other, 6)
    assert lines(folder / "topology.jsonl") == lines(other / "topology.jsonl")
    half = Path(shutil.copytree(folder, tmp_path / "half"))
    done = run(ranks(1, TRAINER, "--resume", str(half / "checkpoints" / "round-000003")), tmp_path)
    assert done.code == 0, done.err
    assert_same_run(folder, half, 6)


def test_all_mass_is_recorded(straight: tuple[Path, list[str]]) -> None:
    """Σ w with what is in flight is the number of clients, in every round; nothing is in flight at the end."""
    folder, arguments = straight
    assert [line["push_weight_sum"] for line in lines(folder / "metrics.jsonl")] == pytest.approx([5.0] * 6, abs=1e-9)
    states = client_states(folder, 6)
    assert sum(state["w"] for state in states) == pytest.approx(5.0, abs=1e-9)
    assert not any(state["in_flight"] for state in states)
    halfway = client_states(folder, 3)
    in_flight = [parcel for state in halfway for parcel in state["in_flight"]]
    assert bool(in_flight) == ("--overlap" in arguments)
    assert sum(state["w"] for state in halfway) + sum(parcel["w"] for parcel in in_flight) == pytest.approx(
        5.0, abs=1e-9
    )
    assert all(parcel["due"] >= 3 for parcel in in_flight), "pushed in rounds 0 to 2, and not mixed in yet"


def test_an_overlapped_run_can_be_made_longer_and_shorter(tmp_path: Path) -> None:
    """As if it had been asked for so many rounds from the start, though what is in flight is mixed in at an end."""
    arguments = ("--num_clients", "5", "--overlap", "2", "--graph.out_degree", "2", "--local.steps", "1")
    arguments += ("--eval.every", "4", "--eval.clients_every", "4", "--checkpoint.every", "4", "--checkpoint.keep", "0")
    short = train(2, tmp_path / "short", "--rounds", "8", *arguments)
    long = train(2, tmp_path / "long", "--rounds", "11", *arguments)
    longer = Path(shutil.copytree(short, tmp_path / "longer"))
    shorter = Path(shutil.copytree(long, tmp_path / "shorter"))
    for changed in (("--resume", str(longer), "--rounds", "11"), ("--resume", str(shorter / AFTER_8), "--rounds", "8")):
        done = run(ranks(3, TRAINER, *changed), tmp_path)
        assert done.code == 0, done.err
    assert_same_run(long, longer, 11)
    assert_same_run(short, shorter, 8)
    assert not any(state["in_flight"] for state in client_states(shorter, 8))


def test_an_overlapped_run_that_was_stopped_goes_on_to_the_bit(tmp_path: Path) -> None:
    """Plans and reports are under way further ahead there, and a checkpoint has models in flight."""
    arguments = ("--num_clients", "5", "--overlap", "3", "--graph.out_degree", "2", "--local.steps", "1")
    arguments += ("--checkpoint.every", "0")
    folder = tmp_path / "stopped"
    with running(ranks(3, TRAINER, "--out", str(folder), "--rounds", "2000", *arguments), tmp_path) as job:
        wait_for_rounds(folder, 4)
        (folder / "STOP").touch()
        done = job.finish()
    assert done.code == 0, done.err
    count = len(lines(folder / "metrics.jsonl"))
    assert f"stopped by a STOP file after round {count} of 2000" in done.out
    assert any(state["in_flight"] for state in client_states(folder, count))
    goal = ("--rounds", str(count + 4), "--checkpoint.every", str(count + 4))
    again = run(ranks(2, TRAINER, "--resume", str(folder), *goal), tmp_path)
    assert again.code == 0, again.err
    straight = train(1, tmp_path / "straight", *arguments, *goal)
    assert_same_run(straight, folder, count + 4)


def test_records_of_a_server(tmp_path: Path) -> None:
    folder = train(2, tmp_path / "run", *SHORT, "--algorithm", "fedavg", "--participation", "0.4")
    assert len(lines(folder / "topology.jsonl")) == 6
    for graph, line in zip(lines(folder / "topology.jsonl"), lines(folder / "metrics.jsonl"), strict=True):
        assert list(graph) == ["round", "out", "clients", "weights"]
        assert (graph["out"], graph["weights"], len(graph["clients"])) == (None, "server", 2)
        assert line["bytes_sent"] == 2 * 2 * 55210 * 4
        assert line["push_weight_min"] == line["push_weight_max"] == 1
    trained = {client for graph in lines(folder / "topology.jsonl")[3:] for client in graph["clients"]}
    before, after = client_states(folder, 3), client_states(folder, 6)
    changed = {a["client"] for a, b in zip(before, after, strict=True) if a["train_loss"] != b["train_loss"]}
    assert changed == trained, "only those that train have a new loss"
    last = [after[client]["train_loss"] for client in lines(folder / "topology.jsonl")[-1]["clients"]]
    assert lines(folder / "metrics.jsonl")[-1]["train_loss"] == pytest.approx(sum(last) / 2, rel=1e-12)
    assert all(state["x"].equal(after[0]["x"]) for state in after), "all clients get the average"


def test_frames_are_in_flight_while_the_next_round_is_trained(tmp_path: Path) -> None:
    """Rank 1 begins to push round 3 only after rank 0 has finished that round: with overlap nobody waits for it."""
    arguments = ("--rounds", "5", "--local.steps", "1", "--graph.kind", "full")
    late = ranks(2, "broken_trainer:late_in_round_3", *arguments, "--timeout_s", "20", "--overlap", "1")
    done = run(late, tmp_path)
    assert done.code == 0, done.err
    (tmp_path / "rank-0-is-through").unlink()
    waiting = run(ranks(2, "broken_trainer:late_in_round_3", *arguments, "--timeout_s", "1"), tmp_path)
    assert waiting.code == 1, "without overlap the two wait for each other"
    assert "waited for" in waiting.err


def test_quickstart_with_overlap_reaches_90_percent(tmp_path: Path) -> None:
    folder = train(None, tmp_path / "run", "--overlap", "1", "--graph.out_degree", "3")
    assert lines(folder / "metrics.jsonl")[-1]["test_accuracy"] >= 0.9


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--graph.out_degree 0", "the graphs of 2 rounds together are not strongly connected"),
        ("--algorithm asyng --graph.out_degree 0", "the graphs of 2 rounds together are not strongly connected"),
        (
            "--graph.kind one_peer_exponential --num_clients 3",
            "graph: one_peer_exponential, strongly connected over every round",
        ),
        ("--graph.kind file --graph.file twice.jsonl", "graph: file, strongly connected over every 2 rounds in a row"),
        ("--algorithm fedavg --participation 0.5", "graph: none, a server averages 2 of 4 clients per round"),
    ],
)
def test_a_run_knows_whether_its_graphs_connect_all(tmp_path: Path, arguments: str, told: str) -> None:
    (tmp_path / "twice.jsonl").write_text('{"out": [[1], [2], [3], []]}\n{"out": [[], [], [], [0]]}\n')
    common = ("--num_clients", "4", "--rounds", "2", "--local.steps", "1", "--out", "run")
    done = run(ranks(1, TRAINER, *common, *arguments.split()), tmp_path)
    assert done.code == 0, done.err
    assert done.err.count("connected") == told.count("connected")
    assert told in done.err


def test_a_changed_file_of_graphs_is_refused_on_resume(tmp_path: Path) -> None:
    graphs = tmp_path / "graphs.jsonl"
    graphs.write_text('{"out": [[1], [2], [0]]}')
    arguments = ("--num_clients", "3", "--graph.file", str(graphs), "--local.steps", "1")
    folder = train(1, tmp_path / "run", "--rounds", "2", *arguments)
    graphs.write_text('{"out": [[2], [0], [1]]}')
    refused = run(ranks(1, TRAINER, "--resume", str(folder), "--rounds", "3"), tmp_path)
    assert refused.code == 2
    assert "graph.file: given" in refused.err
    assert "the graphs that the run had; that of round 1 is another" in refused.err
    graphs.write_text('{"out": [[1], [2], [0]]}\n{"out": [[1], [2], [0]]}')
    assert run(ranks(1, TRAINER, "--resume", str(folder), "--rounds", "3"), tmp_path).code == 0


def test_parts_of_a_row_can_be_overridden(tmp_path: Path) -> None:
    arguments = ("--num_clients", "4", "--rounds", "2", "--local.steps", "1")
    folder = train(2, tmp_path / "run", "--algorithm", "dfedsgpm", "--graph.kind", "directed_ring", *arguments)
    assert [graph["out"] for graph in lines(folder / "topology.jsonl")] == [[[0, 1], [1, 2], [2, 3], [0, 3]]] * 2
