"""A plain NumPy simulation of Algorithm 1 with matrices X, w, P and a hand-written softmax gradient.

It reads what a run recorded (shards, graphs, start values, settings) and computes what its clients must be.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from launching import client_states, lines

from dfl_dist.data.datasets import digits
from dfl_dist.local import batches
from dfl_dist.randomness import stream

FEATURES, CLASSES = 64, 10


@dataclass(frozen=True)
class Mistake:
    """Ways to get the algorithm wrong; the comparison must notice each."""

    ascend_sign: float = 1.0
    descend_sign: float = 1.0
    ignore_w: bool = False
    freeze_w: bool = False
    transpose: bool = False
    keep_momentum: bool = False


NO_MISTAKE = Mistake()


def softmax_gradient(params: np.ndarray, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The gradient of the mean cross-entropy of a linear classifier: weight [10, 64] first, then bias [10]."""
    weight, bias = params[: FEATURES * CLASSES].reshape(CLASSES, FEATURES), params[FEATURES * CLASSES :]
    logits = inputs @ weight.T + bias
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    error = odds / odds.sum(axis=1, keepdims=True)
    error[np.arange(len(targets)), targets] -= 1
    error /= len(targets)
    return np.concatenate([(error.T @ inputs).ravel(), error.sum(axis=0)])


def mixing_matrix(out: list[list[int]]) -> np.ndarray:
    """P with P[j, i] = 1/|N_out_i| for each out-neighbour j of i."""
    matrix = np.zeros((len(out), len(out)))
    for sender, receivers in enumerate(out):
        matrix[receivers, sender] = 1 / len(receivers)
    return matrix


def simulate(run_folder: Path, rounds: int, mistake: Mistake = NO_MISTAKE) -> tuple[np.ndarray, np.ndarray]:
    """X: [n, d] and w: [n] after so many rounds."""
    config = yaml.safe_load((run_folder / "resolved.yaml").read_text())
    local, n = config["local"], config["num_clients"]
    data = digits()
    shards = np.load(run_folder / "partition.npz")
    graphs = lines(run_folder / "topology.jsonl")
    X = np.stack([state["x"].numpy().astype(np.float64) for state in client_states(run_folder, 0)])
    w = np.ones(n)
    velocities = np.zeros_like(X)
    for t in range(rounds):
        lr = local["lr"] * local["lr_decay"] ** t
        for i in range(n):
            rows = shards[f"client_{i:04d}"]
            inputs, targets = data.train_inputs[rows].astype(np.float64), data.train_targets[rows]
            divisor = 1.0 if mistake.ignore_w else w[i]
            if not mistake.keep_momentum:
                velocities[i] = 0
            rng = stream(config["seed"], "batches", client=i, round_idx=t)
            for b in batches(len(rows), local["batch_size"], epochs=local["epochs"], steps=local["steps"], rng=rng):
                X[i], velocities[i] = step(X[i], divisor, velocities[i], inputs[b], targets[b], lr, local, mistake)
        P = mixing_matrix(graphs[t]["out"])
        if mistake.transpose:
            P = P.T
        X, w = P @ X, (w if mistake.freeze_w else P @ w)
    return X, w


def step(
    x: np.ndarray,
    w: float,
    v: np.ndarray,
    inputs: np.ndarray,
    targets: np.ndarray,
    lr: float,
    local: dict[str, Any],
    mistake: Mistake,
) -> tuple[np.ndarray, np.ndarray]:
    """One local step."""
    z = x / w
    g = softmax_gradient(z, inputs, targets)
    if local["rho"] > 0 and np.linalg.norm(g) > 0:
        g = softmax_gradient(z + mistake.ascend_sign * local["rho"] * g / np.linalg.norm(g), inputs, targets)
    if local["clip_norm"] is not None:
        g = g * min(1.0, local["clip_norm"] / np.linalg.norm(g))
    g = g + local["weight_decay"] * z
    v = local["momentum"] * v + g
    scale = lr * w if local["step"] == "z" else lr
    return x - mistake.descend_sign * scale * v, v
