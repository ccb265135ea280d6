"""The arithmetic of push-sum: what a client pushes, and the ordered sum of what was pushed to it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dfl_dist.topology import Graph


def scale_rows(graph: Graph, clients: Sequence[int], x: Tensor, w: Tensor, *, out_x: Tensor, out_w: Tensor) -> None:
    """Write (p·x_i, p·w_i) of each client i: made once, the same for all its out-neighbours.

    x, out_x: [m, d]; w, out_w: [m] float64.
    """
    shares = [graph.share(client) for client in clients]
    for row, share in enumerate(shares):
        torch.mul(x[row], share, out=out_x[row])
    out_w.copy_(w * torch.tensor(shares, dtype=torch.float64))


def add_rows(
    graph: Graph, senders: Sequence[int], rows_x: Tensor, rows_w: Tensor, receivers: range, sum_x: Tensor, sum_w: Tensor
) -> None:
    """Add the pushed rows of `senders` to those of the hosted `receivers` that they push to.

    Called with ascending senders, it makes every client's sum run in the order of the sending client: the bits
    then depend neither on who arrived first nor on who hosts whom.
    rows_x: [len(senders), d]; sum_x: [len(receivers), d]; the w's are float64.
    """
    for row, sender in enumerate(senders):
        for receiver in graph.out[sender]:
            if receiver in receivers:
                sum_x[receiver - receivers.start] += rows_x[row]
                sum_w[receiver - receivers.start] += rows_w[row]


def expected_push_weights(graph: Graph, w: Sequence[float]) -> list[float]:
    """What every client's w must be after the exchange, given what it was before."""
    return [sum(graph.share(sender) * w[sender] for sender in senders) for senders in graph.in_neighbors]
