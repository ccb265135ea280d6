"""Whole runs on real ranks: the run folder, layouts, the quickstart, what a person sees."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from launching import (
    TRAINER,
    alone,
    assert_same_clients,
    client_states,
    elastic,
    lines,
    ranks,
    run,
    torchrun,
    train,
)

from dfl_dist.data.datasets import digits
from dfl_dist.models.zoo import digits_mlp

SHORT = ("--rounds", "10", "--local.epochs", "1", "--checkpoint.every", "10")


@pytest.fixture(scope="module")
def eight_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10 rounds of 8 clients, one a rank, with every round evaluated and kept."""
    out = tmp_path_factory.mktemp("eight") / "run"
    every = ("--eval.every", "3", "--eval.clients_every", "5", "--checkpoint.every", "1", "--checkpoint.keep", "0")
    return train(8, out, *SHORT, *every)


@pytest.mark.parametrize(
    ("world_size", "arguments"),
    [(4, ()), (2, ()), (1, ()), (4, ("--rank0", "coordinator")), (3, ("--window", "1"))],
    ids=["4 ranks", "2 ranks", "1 rank", "coordinator and 3 ranks", "3 ranks, window 1"],
)
def test_clients_are_bit_identical_on_any_layout(
    tmp_path: Path, eight_ranks: Path, world_size: int, arguments: tuple[str, ...]
) -> None:
    other = train(world_size, tmp_path / "run", *SHORT, "--num_clients", "8", *arguments)
    assert_same_clients(eight_ranks, other, 10)
    assert lines(eight_ranks / "topology.jsonl") == lines(other / "topology.jsonl")
    mean, other_mean = (torch.load(folder / "model.pt", weights_only=True) for folder in (eight_ranks, other))
    assert all(torch.allclose(mean[name], other_mean[name], atol=1e-6, rtol=0) for name in mean)


def test_run_folder_keeps_the_contract(eight_ranks: Path) -> None:
    asked, resolved = (yaml.safe_load((eight_ranks / name).read_text()) for name in ("config.yaml", "resolved.yaml"))
    assert "out" not in asked
    assert "resume" not in asked
    assert (asked["num_clients"], asked["local"]["rho"], asked["graph"]["kind"]) == (None, None, None)
    assert (resolved["num_clients"], resolved["local"]["rho"], resolved["graph"]["out_degree"]) == (8, 0.1, 3)
    assert (resolved["backend"], resolved["device"], resolved["out"]) == ("gloo", "cpu", str(eight_ranks))
    facts = json.loads((eight_ranks / "environment.json").read_text())
    assert (facts["world_size"], facts["backend"], facts["devices"]) == (8, "gloo", ["cpu"] * 8)
    assert {"versions", "hosts", "threads", "git_commit", "run_id"} <= set(facts)
    with np.load(eight_ranks / "partition.npz") as shards:
        assert sorted(shards) == [f"client_{client:04d}" for client in range(8)]
        assert sorted(np.concatenate(list(shards.values())).tolist()) == list(range(1437))
    names = sorted(path.name for path in (eight_ranks / "checkpoints").iterdir())
    assert names == [f"round-{count:06d}" for count in range(11)], "round 0, every round and the last"
    assert all({"x", "w", "round"} <= set(state) for state in client_states(eight_ranks, 4))


def test_topology_lines(eight_ranks: Path) -> None:
    graphs = lines(eight_ranks / "topology.jsonl")
    assert [graph["round"] for graph in graphs] == list(range(10))
    for graph in graphs:
        assert graph["weights"] == "out-degree"
        assert all(client in row and len(row) == 4 for client, row in enumerate(graph["out"]))


def test_metrics_lines_can_be_recomputed(eight_ranks: Path) -> None:
    recorded = lines(eight_ranks / "metrics.jsonl")
    assert [line["round"] for line in recorded] == list(range(10))
    always = {"round", "lr", "train_loss", "bytes_sent", "seconds_local", "seconds_exchange", "seconds_total"}
    always |= {"push_weight_min", "push_weight_max", "push_weight_sum"}
    mean_only, clients_too = {"test_accuracy", "test_loss", "consensus_distance"}, {"mean", "min", "max", "worst_tenth"}
    for line in recorded:
        t, states = line["round"], client_states(eight_ranks, line["round"] + 1)
        each_client = t in (4, 9)
        evaluated = each_client or t in (2, 5, 8)
        extra = {f"client_accuracy_{word}" for word in clients_too} if each_client else set()
        assert set(line) == always | (mean_only if evaluated else set()) | extra
        weights = [state["w"] for state in states]
        assert line["lr"] == 0.03 * 0.998**t
        assert (line["push_weight_min"], line["push_weight_max"]) == (min(weights), max(weights))
        assert line["push_weight_sum"] == pytest.approx(8, abs=1e-12)
        assert line["train_loss"] == pytest.approx(np.mean([state["train_loss"] for state in states]), rel=1e-12)
        assert line["bytes_sent"] == 8 * 3 * (55210 * 4 + 8)
        if evaluated:
            check_scores(line, states, each_client=each_client)


def check_scores(line: dict[str, float], states: list[dict[str, torch.Tensor]], *, each_client: bool) -> None:
    mean = torch.stack([state["x"].double() for state in states]).mean(dim=0)
    own = [state["x"].double() / state["w"] for state in states]
    accuracy, loss = evaluate_plainly(mean)
    assert line["test_accuracy"] == accuracy
    assert line["test_loss"] == pytest.approx(loss, rel=1e-5)
    assert line["consensus_distance"] == pytest.approx(np.mean([float((z - mean).norm()) for z in own]), rel=1e-5)
    if each_client:
        scores = [evaluate_plainly(z)[0] for z in own]
        found = [line[f"client_accuracy_{word}"] for word in ("mean", "min", "max", "worst_tenth")]
        assert found == pytest.approx([np.mean(scores), min(scores), max(scores), min(scores)], rel=1e-12)


def evaluate_plainly(params: torch.Tensor) -> tuple[float, float]:
    model, data = digits_mlp(), digits()
    torch.nn.utils.vector_to_parameters(params.float(), model.parameters())
    with torch.no_grad():
        outputs, targets = model(torch.from_numpy(data.test_inputs)), torch.from_numpy(data.test_targets)
    loss = torch.nn.functional.cross_entropy(outputs.double(), targets)
    return float((outputs.argmax(1) == targets).double().mean()), float(loss)


def test_model_file_is_an_ordinary_state_dict(eight_ranks: Path) -> None:
    plain = digits_mlp()
    plain.load_state_dict(torch.load(eight_ranks / "model.pt", weights_only=True))
    params = torch.cat([parameter.detach().reshape(-1) for parameter in plain.parameters()])
    assert evaluate_plainly(params)[0] == lines(eight_ranks / "metrics.jsonl")[-1]["test_accuracy"]


def test_all_clients_start_equal(eight_ranks: Path) -> None:
    start = client_states(eight_ranks, 0)
    assert all(torch.equal(state["x"], start[0]["x"]) and state["w"] == 1 for state in start)


@pytest.mark.parametrize(("seed", "world_size"), [(0, 8), (1, None), (2, None)])
def test_quickstart_reaches_94_percent(tmp_path: Path, seed: int, world_size: int | None) -> None:
    """8 clients, on as many ranks and in one process, which is the same by bits."""
    folder = train(world_size, tmp_path / "run", "--seed", str(seed))
    assert lines(folder / "metrics.jsonl")[-1]["test_accuracy"] >= 0.94


def test_torchrun_without_arguments_again_and_again(tmp_path: Path) -> None:
    """Each run gets its own folder, says where it is, and runs/latest follows; the second is forked, so faster."""
    for number, command in enumerate((torchrun(4, "--rounds", "2"), elastic(4, 0, TRAINER, "--rounds", "2")), start=1):
        done = run(command, tmp_path)
        assert done.code == 0, done.err
        name = f"runs/dfedsgpsm-digits-00{number}"
        assert f"results: {name} (model.pt, metrics.jsonl" in done.out
        assert "finished after round 2 of 2" in done.out
        assert (tmp_path / "runs" / "latest").resolve() == (tmp_path / name).resolve()
        assert "round 2/2  loss" in done.err
        assert "[rank 0]" in done.err
        assert not any(f"[rank {rank}]" in done.err for rank in (1, 2, 3)), "the others stay silent"
    first, second = (tmp_path / f"runs/dfedsgpsm-digits-00{number}" for number in (1, 2))
    assert_same_clients(first, second, 2)


def test_config_file_of_a_run_repeats_it(tmp_path: Path, eight_ranks: Path) -> None:
    again = train(8, tmp_path / "run", "--config", str(eight_ranks / "config.yaml"))
    assert_same_clients(eight_ranks, again, 10)
    assert (again / "config.yaml").read_text() == (eight_ranks / "config.yaml").read_text()


def test_one_process_without_torchrun_hosts_eight_clients(tmp_path: Path) -> None:
    done = run(alone("--rounds", "1", "--local.steps", "1", "--out", "run"), tmp_path)
    assert done.code == 0, done.err
    assert len(client_states(tmp_path / "run", 1)) == 8


def test_a_model_with_dropout_is_reproducible_on_any_layout(tmp_path: Path) -> None:
    arguments = ("--model.name", "small_models:with_dropout", "--rounds", "3", "--num_clients", "4")
    one, two = train(4, tmp_path / "a", *arguments), train(2, tmp_path / "b", *arguments)
    assert_same_clients(one, two, 3)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--local.rho", "-1"], "dfl_dist: local.rho: given -1.0, allowed: a number, 0 or more | null"),
        (
            ["--num_clients", "2"],
            "dfl_dist: num_clients: given 2, allowed: 3 or more: there are 3 ranks that host clients",
        ),
        (
            ["--model.name", "small_models:with_batch_norm"],
            "dfl_dist: model.name: given a model with the floating-point buffer",
        ),
        (
            ["--model.name", "small_models:misfit"],
            "dfl_dist: model.name: given small_models:misfit, which does not take",
        ),
        (
            ["--data.name", "digit"],
            "dfl_dist: data.name: given digit, allowed: digits, mnist, fashion_mnist, cifar10, cifar100 or",
        ),
        (["--backend", "nccl", "--device", "cpu"], "dfl_dist: backend: given nccl, allowed: gloo or auto"),
    ],
)
def test_a_mistake_is_told_once_and_leaves_nothing(tmp_path: Path, arguments: list[str], line: str) -> None:
    done = run(ranks(3, TRAINER, *arguments), tmp_path)
    assert done.code == 2
    assert done.err.count("dfl_dist: ") == 1
    assert line in done.err
    assert not (tmp_path / "runs").exists()


def test_a_mistake_under_torchrun_is_told_once(tmp_path: Path) -> None:
    done = run(torchrun(3, "--model.name", "small_models:misfit"), tmp_path)
    assert done.code == 1, "whatever the ranks return, torchrun returns 1"
    assert done.err.count("dfl_dist: ") == 1
    assert "dfl_dist: model.name: given small_models:misfit, which does not take" in done.err
    assert "exitcode  : 2" in done.err
    assert not (tmp_path / "runs").exists()


def test_a_mistake_without_torchrun_ends_with_2(tmp_path: Path) -> None:
    done = run(alone("--local.rh", "2"), tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err == "dfl_dist: local.rh: unknown key, allowed: those of --help (did you mean local.rho?)\n"


def test_help_is_printed_by_one_of_several_ranks(tmp_path: Path) -> None:
    done = run(elastic(2, 0, TRAINER, "--help"), tmp_path)
    assert done.code == 0, done.err
    assert done.out.count("--local.rho") == 1


def test_a_folder_that_holds_a_run_is_refused(eight_ranks: Path) -> None:
    before = (eight_ranks / "metrics.jsonl").read_text()
    done = run(ranks(1, TRAINER, "--out", str(eight_ranks)), eight_ranks.parent)
    assert done.code == 2
    assert f"out: given {eight_ranks}, which already holds a run" in done.err
    assert (eight_ranks / "metrics.jsonl").read_text() == before
