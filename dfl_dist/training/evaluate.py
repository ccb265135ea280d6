"""How good the mean model and the clients' own models are, and how far apart."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dfl_dist.data.shard import Shard
from dfl_dist.distributed.control import Control
from dfl_dist.models.flat import FlatModel
from dfl_dist.models.task import Score
from dfl_dist.run_folder.metrics import score_clients
from dfl_dist.training.layout import Layout

CHUNK = 100  # test samples per forward pass: the same ones together on any number of ranks, so that scores are equal


@dataclass(frozen=True)
class Evaluation:
    """What an evaluated round adds to the metrics, and the mean model it is about."""

    mean: Tensor
    scores: dict[str, float]


@torch.no_grad()
def score(model: FlatModel, params: Tensor, test: Shard) -> Score:
    """What a flat parameter vector reaches on some test data."""
    model.params.copy_(params)
    model.model.eval()
    correct, loss = 0, 0.0
    for start in range(0, len(test), CHUNK):
        inputs, targets = test.take(slice(start, start + CHUNK))
        found = model.task.score(model.model, inputs, targets)
        correct, loss = correct + found.correct, loss + found.loss
    model.model.train()
    return Score(correct, loss)


class Evaluator:
    """Evaluates the clients of all ranks together; each rank takes its part of the test set."""

    def __init__(self, control: Control, model: FlatModel, test: Shard, layout: Layout) -> None:
        self.control, self.model, self.test = control, model, test
        self.num_clients, self.block = layout.num_clients, layout.blocks[control.rank]
        hosts, rank = layout.client_ranks, control.rank
        first, last = (hosts.index(rank), hosts.index(rank) + 1) if self.block else (0, 0)
        chunks = -(-len(test) // CHUNK)
        self.part = test.part(slice(*(chunks * bound // len(hosts) * CHUNK for bound in (first, last))))

    def mean_model(self, x: Tensor, in_flight: Tensor) -> Tensor:
        """x̄ = (1/n) Σ x_i over the clients of all ranks, with what is in flight to them; x: [m, d], in_flight: [d]."""
        own = x.sum(dim=0, dtype=torch.float64) + in_flight
        total = self.control.all_reduce(own.cpu(), "sum their models")
        return (total / self.num_clients).to(device=x.device, dtype=x.dtype)

    def evaluate(self, x: Tensor, w: Tensor, in_flight: Tensor, *, each_client: bool) -> Evaluation:
        """Accuracy and loss of x̄, the mean ‖z_i − x̄‖, and on request the accuracy of every z_i."""
        mean, size = self.mean_model(x, in_flight), len(self.test)
        correct, loss = score(self.model, mean, self.part)
        distance, own = 0.0, torch.zeros(self.num_clients, dtype=torch.float64)
        for row, client in enumerate(self.block):
            z = x[row] / float(w[row])
            distance += float(torch.linalg.vector_norm(z - mean, dtype=torch.float64))
            if each_client:
                own[client] = score(self.model, z, self.test).correct / size
        sums = torch.cat([torch.tensor([correct, loss, distance], dtype=torch.float64), own])
        correct, loss, distance, *accuracies = self.control.all_reduce(sums, "add up their scores").tolist()
        scores = {"test_accuracy": correct / size, "test_loss": loss / size}
        scores["consensus_distance"] = distance / self.num_clients
        return Evaluation(mean, scores | (score_clients(accuracies) if each_client else {}))
