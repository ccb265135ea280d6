"""A plain NumPy simulation of every algorithm: matrices X, w, P and a hand-written softmax gradient.

It reads what a run recorded (shards, graphs, start values, settings) and computes what its clients must be. It is
written from the equations, not from the trainer: the two share only the random streams and the order of the batches.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from launching import client_states, lines

from dfl_dist.data.datasets import digits
from dfl_dist.data.shard import batches
from dfl_dist.randomness import stream

FEATURES, CLASSES = 64, 10


@dataclass(frozen=True)
class Mistake:
    """Ways to get the algorithm wrong; the comparison must notice each."""

    # the local steps
    ascend_sign: float = 1.0
    descend_sign: float = 1.0
    ignore_w: bool = False
    keep_momentum: bool = False
    unscaled_step: bool = False
    decay_before_clip: bool = False
    decay_at_x: bool = False
    decay_in_ascent: bool = False
    gradient_at_step: bool = False
    loss_after_ascent: bool = False
    loss_unweighted: bool = False
    # the exchange
    freeze_w: bool = False
    transpose: bool = False
    equal_shares: bool = False
    gossip_once: bool = False
    # what is in flight
    nothing_in_flight: bool = False
    at_once_within: int = 1
    own_share_late: bool = False
    w_at_once: bool = False
    w_lost: bool = False
    late_by_one: bool = False
    steps_mixed_up: bool = False
    no_drain: bool = False
    # the server
    server_unweighted: bool = False
    server_of_all: bool = False
    server_lr_ignored: bool = False
    server_reaches_trained_only: bool = False


NO_MISTAKE = Mistake()


@dataclass(frozen=True)
class Pushed:
    """What one gossip step sends to other clients: `P[j, i] · (X[i], w[i])` is on its way from i to j."""

    P: np.ndarray
    X: np.ndarray
    w: np.ndarray


InFlight = dict[tuple[int, int], Pushed]  # by the round at whose end it is mixed in, and the gossip step


@dataclass(frozen=True)
class State:
    """All clients after a round: X [n, d], w [n], what is in flight to them, their losses [n] (NaN: none yet)."""

    X: np.ndarray
    w: np.ndarray
    in_flight: InFlight
    losses: np.ndarray

    def drained(self) -> "State":
        X = self.X + sum(pushed.P @ pushed.X for pushed in self.in_flight.values())
        w = self.w + sum(pushed.P @ pushed.w for pushed in self.in_flight.values())
        return State(X, w, {}, self.losses)

    def mass(self) -> float:
        """Σ w, with what is in flight."""
        return float(self.drained().w.sum())

    def mean(self) -> np.ndarray:
        """x̄, with what is in flight."""
        return np.asarray(self.drained().X.mean(axis=0))

    def consensus_distance(self) -> float:
        """The mean of ‖z_i − x̄‖."""
        return float(np.linalg.norm(self.X / self.w[:, None] - self.mean(), axis=1).mean())


@dataclass(frozen=True)
class Simulation:
    """The state after each round, from 0 rounds on; the last one drained, if the run ends there."""

    states: list[State]
    before_drain: State

    @property
    def end(self) -> State:
        return self.states[-1]


class Problem:
    """What a run recorded of its settings, its data and its graphs."""

    def __init__(self, run_folder: Path) -> None:
        self.config: dict[str, Any] = yaml.safe_load((run_folder / "resolved.yaml").read_text())
        self.local: dict[str, Any] = self.config["local"]
        self.num_clients: int = self.config["num_clients"]
        data, shards = digits(), np.load(run_folder / "partition.npz")
        rows = [shards[f"client_{i:04d}"] for i in range(self.num_clients)]
        self.shards = [(data.train_inputs[r].astype(np.float64), data.train_targets[r]) for r in rows]
        self.sizes = np.array([len(r) for r in rows])
        self.graphs = lines(run_folder / "topology.jsonl")
        self.start = np.stack([state["x"].numpy().astype(np.float64) for state in client_states(run_folder, 0)])


def simulate(run_folder: Path, rounds: int, mistake: Mistake = NO_MISTAKE) -> Simulation:
    """So many rounds of the run, from its start values on."""
    problem = Problem(run_folder)
    n = problem.num_clients
    state = State(problem.start, np.ones(n), {}, np.full(n, np.nan))
    states, velocities = [state], np.zeros_like(state.X)
    for t in range(rounds):
        graph = problem.graphs[t]
        X, losses = state.X.copy(), state.losses.copy()
        for i in graph["clients"] if graph["weights"] == "server" else range(n):
            X[i], losses[i] = local_round(problem, t, i, X[i], state.w[i], velocities[i], mistake)
        if graph["weights"] == "server":
            lr = 1.0 if mistake.server_lr_ignored else problem.config["server_lr"]
            X = server_average(state.X, X, graph["clients"], problem.sizes, lr, mistake)
            state = State(X, state.w, {}, losses)
        else:
            state = exchange(problem, t, State(X, state.w, state.in_flight, losses), mistake)
        states.append(state)
    if rounds == problem.config["rounds"] and not mistake.no_drain:
        states[-1] = state.drained()
    return Simulation(states, state)


def local_round(
    problem: Problem, t: int, i: int, x: np.ndarray, w: float, v: np.ndarray, mistake: Mistake
) -> tuple[np.ndarray, float]:
    """The local steps of client i: its x, and the mean loss at z over the samples that it saw."""
    local, (inputs, targets) = problem.local, problem.shards[i]
    w = 1.0 if mistake.ignore_w else w
    if not mistake.keep_momentum:
        v[:] = 0
    frozen = x / w if local["gradient_at"] == "round" and not mistake.gradient_at_step else None
    factor = {
        "exponential": local["lr_decay"] ** t,
        "cosine": 0.5 * (1 + np.cos(np.pi * t / problem.config["rounds"])),
        "constant": 1.0,
    }[local["schedule"]]
    lr = local["lr"] * factor * min(1.0, (t + 1) / max(1, local["warmup_rounds"]))
    rng, losses, counts = stream(problem.config["seed"], "batches", client=i, round_idx=t), [], []
    for b in batches(len(targets), local["batch_size"], epochs=local["epochs"], steps=local["steps"], rng=rng):
        z = x / w if frozen is None else frozen
        if mistake.loss_after_ascent:
            z = ascend(z, inputs[b], targets[b], local, mistake)
        losses.append(softmax_loss(z, inputs[b], targets[b]))
        counts.append(1 if mistake.loss_unweighted else len(b))
        x, v[:] = step(x, w, v, inputs[b], targets[b], lr, local, mistake, z=frozen)
    return x, float(np.average(losses, weights=counts))


def step(
    x: np.ndarray,
    w: float,
    v: np.ndarray,
    inputs: np.ndarray,
    targets: np.ndarray,
    lr: float,
    local: dict[str, Any],
    mistake: Mistake,
    *,
    z: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """One local step; z is where the gradient is taken, if not at x/w."""
    z = x / w if z is None else z
    g = softmax_gradient(ascend(z, inputs, targets, local, mistake), inputs, targets)
    decay = local["weight_decay"] * (x if mistake.decay_at_x else z)
    if mistake.decay_before_clip:
        g, decay = g + decay, np.zeros_like(g)
    if local["clip_norm"] and np.linalg.norm(g) > local["clip_norm"]:  # 0 is off
        g = g * local["clip_norm"] / np.linalg.norm(g)
    v = local["momentum"] * v + g + decay
    scale = lr * w if local["step"] == "z" and not mistake.unscaled_step else lr
    return x - mistake.descend_sign * scale * v, v


def ascend(
    z: np.ndarray, inputs: np.ndarray, targets: np.ndarray, local: dict[str, Any], mistake: Mistake
) -> np.ndarray:
    """z' = z + rho · g1/‖g1‖."""
    if local["rho"] == 0:
        return z
    g = softmax_gradient(z, inputs, targets)
    if mistake.decay_in_ascent:
        g = g + local["weight_decay"] * z
    norm = np.linalg.norm(g)
    return z + mistake.ascend_sign * local["rho"] * g / norm if norm > 0 else z


def log_odds(params: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """The logarithms of a linear classifier's probabilities: weight [10, 64] first, then bias [10]."""
    weight, bias = params[: FEATURES * CLASSES].reshape(CLASSES, FEATURES), params[FEATURES * CLASSES :]
    logits = inputs @ weight.T + bias
    logits = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))


def softmax_loss(params: np.ndarray, inputs: np.ndarray, targets: np.ndarray) -> float:
    """The mean cross-entropy of the linear classifier."""
    return float(-log_odds(params, inputs)[np.arange(len(targets)), targets].mean())


def softmax_gradient(params: np.ndarray, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The gradient of the mean cross-entropy of the linear classifier."""
    error = np.exp(log_odds(params, inputs))
    error[np.arange(len(targets)), targets] -= 1
    error /= len(targets)
    return np.concatenate([(error.T @ inputs).ravel(), error.sum(axis=0)])


def mixing_matrix(out: list[list[int]], weights: str) -> np.ndarray:
    """P[j, i] for each out-neighbour j of i, itself included: 1/|N_out_i|, or Metropolis–Hastings."""
    n = len(out)
    P = np.zeros((n, n))
    for sender, receivers in enumerate(out):
        P[receivers, sender] = 1 / len(receivers)
    if weights == "out-degree":
        return P
    assert weights == "metropolis", weights
    linked = (P > 0) & ~np.eye(n, dtype=bool)
    assert (linked == linked.T).all(), "Metropolis–Hastings weights are for symmetric graphs"
    degrees = linked.sum(axis=0)
    P = linked / (1 + np.maximum.outer(degrees, degrees))
    return np.asarray(P + np.diag(1 - P.sum(axis=0)))


def exchange(problem: Problem, t: int, state: State, mistake: Mistake) -> State:
    """Push on the graph of round t, as often as asked; what others push is mixed in `overlap` rounds later."""
    overlap, gossip_steps = problem.config["overlap"], problem.config["graph"]["gossip_steps"]
    overlap = 0 if mistake.nothing_in_flight else overlap + mistake.late_by_one
    graph = problem.graphs[t]
    P = mixing_matrix(graph["out"], "out-degree" if mistake.equal_shares else graph["weights"])
    P = P.T if mistake.transpose else P
    for s in range(1 if mistake.gossip_once else gossip_steps):
        due = (t + overlap, gossip_steps - 1 - s if mistake.steps_mixed_up else s)
        state = push(P, state, (t, s), due, mistake)
    return state


def push(matrix: np.ndarray, state: State, now: tuple[int, int], due: tuple[int, int], mistake: Mistake) -> State:
    """One gossip step: a client keeps its own share, pushes the others, and takes in what is due now."""
    P, X, w = matrix, state.X, state.w
    block = np.arange(len(P)) // mistake.at_once_within
    own = np.where(np.equal.outer(block, block), P, 0)
    in_flight = state.in_flight | {due: Pushed(P if mistake.own_share_late else P - own, X, w)}
    arriving = in_flight.pop(now, Pushed(np.zeros_like(P), X, w))
    if mistake.own_share_late and arriving.P.any():
        own = np.zeros_like(P)
    mixed = own @ X + arriving.P @ arriving.X
    mixed_w = own @ w + (0 if mistake.w_lost else arriving.P @ arriving.w)
    if mistake.w_at_once:
        mixed_w = P @ w
    return State(mixed, w if mistake.freeze_w else mixed_w, in_flight, state.losses)


def server_average(
    old: np.ndarray, trained: np.ndarray, clients: list[int], sizes: np.ndarray, lr: float, mistake: Mistake
) -> np.ndarray:
    """x_i ← x_i + lr · (Σ_{j∈S} n_j x_j / Σ_{j∈S} n_j − x_i) for all i, the x_i on the right from before training."""
    S = list(range(len(old))) if mistake.server_of_all else clients
    average = np.average(trained[S], axis=0, weights=None if mistake.server_unweighted else sizes[S])
    X = old + lr * (average - old)
    if mistake.server_reaches_trained_only:
        untouched = np.setdiff1d(np.arange(len(old)), clients)
        X[untouched] = old[untouched]
    return np.asarray(X)


def chosen_by_loss(losses: np.ndarray, out_degree: int, seed: int, t: int) -> list[list[int]]:
    """The graph of round t by Gumbel top-k on |f_i − f_j|, f being the losses of round t − 1."""
    rng, n, out = stream(seed, "graph", round_idx=t), len(losses), []
    for i in range(n):
        keys = np.abs(losses[i] - losses) + rng.gumbel(size=n)
        keys[i] = -np.inf
        out.append(sorted([i, *np.argsort(keys)[n - out_degree :].tolist()]))
    return out
