"""The exchange of a run with a server: the average of those that trained, for all."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dfl_dist.algorithms.mixing import integer_scale, integer_sum
from dfl_dist.distributed.control import Control
from dfl_dist.distributed.frames import FrameFormat
from dfl_dist.run_folder.checkpoint import ClientState
from dfl_dist.topology.graph import Server
from dfl_dist.training.clients import Clients


class ServerAverage:
    """x_i ← x + server_lr · (Σ_{j∈S} n_j x_j / Σ_{j∈S} n_j − x) for all clients i, with the old model x.

    S are those that trained, n_j the sizes of their shards. Nothing is ever in flight and w stays 1. All ranks add up
    integers, so the layout does not show in the bits.
    """

    def __init__(self, clients: Clients, control: Control, sizes: Sequence[int], *, server_lr: float) -> None:
        self.clients, self.control, self.sizes, self.server_lr = clients, control, sizes, server_lr
        self.old = torch.empty_like(clients.x[:1])
        self.format = FrameFormat(clients.x.shape[1], clients.x.dtype)

    def expect(self, round_idx: int, graph: Server) -> None:
        self.old.copy_(self.clients.x[:1])

    def mix(self, round_idx: int, graph: Server) -> None:
        x, block = self.clients.x, self.clients.block
        trained = [client for client in graph.clients if client in block]
        rows = x[[client - block.start for client in trained]]
        own = torch.nan_to_num(rows.abs(), nan=torch.inf).max() if trained else 0.0
        bound = torch.tensor([float(own)], dtype=torch.float64)
        largest = float(self.control.all_reduce(bound, "tell their largest parameter", largest=True))
        if largest == torch.inf:  # somebody diverged; all is left as it is, so that rank 0 sees who
            return
        scale = integer_scale(largest)
        total = sum(self.sizes[client] for client in graph.clients)
        summed = integer_sum(rows, [self.sizes[client] / total for client in trained], scale)
        average = self.control.all_reduce(summed.cpu(), "average their models").double() / scale
        x.copy_(torch.lerp(self.old, average.to(x), self.server_lr))

    def drain(self) -> bool:
        return False

    def bytes_sent(self, graph: Server) -> int:
        """What a server would move: the model to each client that trains, and back."""
        return bytes_served(self.format, graph, self.clients.block)

    def weight_in_flight(self) -> float:
        return 0.0

    def weights_in_flight_to(self) -> Tensor:
        return torch.zeros(0, len(self.sizes), dtype=torch.float64)

    def sum_in_flight(self) -> Tensor:
        return torch.zeros(self.clients.x.shape[1], dtype=torch.float64, device=self.clients.x.device)

    def states(self, round_count: int) -> list[ClientState]:
        clients = zip(self.clients.block, self.clients.losses, self.clients.holdings(), strict=True)
        return [ClientState(client, round_count, loss, held) for client, loss, held in clients]

    def flush(self) -> None:
        """Nothing was sent that has not arrived."""


def bytes_served(wire: FrameFormat, graph: Server, clients: range) -> int:
    """What a server moves in a round between itself and those of these clients that train: the model, both ways."""
    trained = sum(client in clients for client in graph.clients)
    return 2 * trained * wire.model_bytes()
