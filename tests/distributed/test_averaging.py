"""Push-sum without learning finds the mean of any start values, on every kind of graph, as the simulation does."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from launching import client_states, train
from oracle_checks import BASE, EXACT, compare, graph_file, resume

from dfl_dist.topology.kinds import KINDS

# How many clients and rounds, and what is given. Any other kind of graph that there
# is has as many rounds as the slowest.
AVERAGING: dict[str, tuple[int, int, str]] = {
    "random_directed": (6, 40, "--graph.out_degree 2"),
    "directed_ring": (6, 110, ""),
    "exponential": (6, 40, ""),
    "one_peer_exponential": (6, 50, ""),
    "by_loss": (6, 40, "--graph.out_degree 2"),
    "file": (5, 45, ""),
    "random_symmetric": (5, 30, "--graph.out_degree 3"),
    "ring": (6, 50, ""),
    "grid": (6, 40, ""),
    "erdos_renyi": (6, 50, "--graph.p 0.5"),
    "full": (6, 5, ""),
    "random_directed, overlap 2": (6, 80, "--graph.out_degree 2 --overlap 2"),
    "ring, overlap 1": (6, 100, "--overlap 1"),
}
AVERAGING |= {name: (6, 110, "") for name, kind in KINDS.items() if name not in AVERAGING and not kind.is_server}
SYMMETRIC = ("random_symmetric", "ring", "grid", "erdos_renyi", "full")
ON_RANKS = {"random_directed": 3, "file": 2, "ring, overlap 1": 2}  # the others in one process


def start_without_learning(name: str, folder: Path) -> Path:
    """A round of a kind of graph without learning, for the sake of the checkpoint before it."""
    num_clients, _, given = AVERAGING[name]
    kind = name.partition(",")[0]
    graph = ["--graph.file", str(graph_file(folder))] if kind == "file" else ["--graph.kind", kind]
    settings = ["--num_clients", str(num_clients), "--rounds", "1", "--local.lr", "0", "--local.steps", "1"]
    seldom = ["--dtype", "float64", "--checkpoint.every", "1000", "--eval.every", "1000"]
    return train(None, folder / "run", *BASE, *settings, *seldom, *graph, *given.split())


def start_apart(checkpoint: Path) -> np.ndarray:
    """Give each client of a checkpoint its own start value; return them."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    start = np.random.default_rng(3).normal(size=(manifest["num_clients"], manifest["parameters"]))
    for x, (name, entry) in zip(start, sorted(manifest["files"].items()), strict=True):
        torch.save(torch.load(checkpoint / name, weights_only=True) | {"x": torch.from_numpy(x)}, checkpoint / name)
        content = (checkpoint / name).read_bytes()
        entry |= {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
    return start


@pytest.mark.parametrize("name", AVERAGING)
def test_push_sum_alone_finds_the_mean_of_the_start_values(tmp_path: Path, name: str) -> None:
    folder, (_, rounds, _) = start_without_learning(name, tmp_path), AVERAGING[name]
    start = start_apart(folder / "checkpoints" / "round-000000")
    resume(ON_RANKS.get(name), folder / "checkpoints" / "round-000000", "--rounds", str(rounds))
    states = client_states(folder, rounds)
    x, w = np.stack([state["x"].numpy() for state in states]), np.array([[state["w"]] for state in states])
    mean = start.mean(axis=0)
    spread = np.linalg.norm(start - mean, axis=1).max()
    assert np.linalg.norm(x / w - mean, axis=1).max() < 1e-6 * spread
    assert compare(folder, rounds) < EXACT
    assert w.sum() == pytest.approx(len(w), rel=0, abs=EXACT)
    assert np.abs(w - 1).max() < EXACT or name not in SYMMETRIC
    if name == "file":
        assert np.linalg.norm(x - mean, axis=1).max() > 1e-3 * spread, "what the division by w is for"
