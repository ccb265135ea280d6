"""How good the mean model and the clients' own models are, and how far apart."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from dfl_dist.control import Control
from dfl_dist.flat import FlatModel
from dfl_dist.local import Shard

CHUNK = 1000  # test samples a forward pass


@dataclass(frozen=True)
class EvalSchedule:
    """Which rounds are evaluated."""

    every: int
    clients_every: int

    def each_client(self, round_idx: int, *, last: bool) -> bool:
        return self.clients_every > 0 and (last or (round_idx + 1) % self.clients_every == 0)

    def due(self, round_idx: int, *, last: bool) -> bool:
        return last or (round_idx + 1) % self.every == 0 or self.each_client(round_idx, last=last)


@dataclass(frozen=True)
class Evaluation:
    """What an evaluated round adds to the metrics, and the mean model it is about."""

    mean: Tensor
    scores: dict[str, float]


@torch.no_grad()
def score(model: FlatModel, params: Tensor, test: Shard) -> tuple[int, float]:
    """Correct predictions and summed loss of a flat parameter vector on some test data."""
    model.params.copy_(params)
    model.model.eval()
    correct, loss = 0, 0.0
    for start in range(0, len(test), CHUNK):
        outputs, targets = model.model(test.inputs[start : start + CHUNK]), test.targets[start : start + CHUNK]
        correct += int((outputs.argmax(dim=1) == targets).sum())
        loss += float(functional.cross_entropy(outputs.double(), targets, reduction="sum"))
    model.model.train()
    return correct, loss


def mean_model(control: Control, x: Tensor, num_clients: int) -> Tensor:
    """x̄ = (1/n) Σ x_i over the clients of all ranks; x: [m, d]."""
    total = control.all_reduce(x.sum(dim=0, dtype=torch.float64).cpu(), "sum their models")
    return (total / num_clients).to(device=x.device, dtype=x.dtype)


def evaluate(
    control: Control,
    model: FlatModel,
    x: Tensor,
    w: Tensor,
    clients: range,
    num_clients: int,
    test: Shard,
    my_part: slice,
    *,
    each_client: bool,
) -> Evaluation:
    """Accuracy and loss of x̄, the test set divided over the ranks; the mean ‖z_i − x̄‖; on request each z_i."""
    mean = mean_model(control, x, num_clients)
    sums = torch.zeros(3 + num_clients, dtype=torch.float64)
    part = Shard(test.inputs[my_part], test.targets[my_part])
    sums[0], sums[1] = score(model, mean, part)
    for row, client in enumerate(clients):
        z = x[row] / float(w[row])
        sums[2] += float(torch.linalg.vector_norm(z - mean, dtype=torch.float64))
        if each_client:
            sums[3 + client] = score(model, z, test)[0] / len(test)
    control.all_reduce(sums, "add up their scores")
    scores = {
        "test_accuracy": float(sums[0]) / len(test),
        "test_loss": float(sums[1]) / len(test),
        "consensus_distance": float(sums[2]) / num_clients,
    }
    if each_client:
        own = sums[3:]
        scores |= {
            "client_accuracy_mean": float(own.mean()),
            "client_accuracy_min": float(own.min()),
            "client_accuracy_max": float(own.max()),
        }
    return Evaluation(mean, scores)
