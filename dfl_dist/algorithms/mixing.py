"""The arithmetic of an exchange: what a client pushes, the ordered sum of what was pushed to it, a server's average."""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class Row:
    """One scaled copy (p·x_i, p·w_i) of a client, for the other clients on one rank that it pushes to with weight p."""

    sender: int
    share: float
    receivers: tuple[int, ...]


class Part(NamedTuple):
    """What a client keeps, or what arrived: a row's content, to be added to each receiver."""

    sender: int
    receivers: tuple[int, ...]
    x: Tensor
    w: float


def bundle(edges: Iterable[tuple[int, int, float]]) -> list[Row]:
    """The rows for some edges (sender, receiver, share), in the order of the sending client; both ends agree on it."""
    found: dict[tuple[int, float], list[int]] = {}
    for sender, receiver, share in sorted(edges):
        found.setdefault((sender, share), []).append(receiver)
    return [Row(sender, share, tuple(receivers)) for (sender, share), receivers in found.items()]


def scale_rows(rows: Sequence[Row], first: int, x: Tensor, w: Tensor, *, out_x: Tensor, out_w: Tensor) -> None:
    """Write (p·x_i, p·w_i) for each row; `first` is the client of x[0] and w[0].

    x: [m, d]; w: [m] float64; out_x: [rows, d]; out_w: [rows] float64.
    """
    weights = w.tolist()
    for index, row in enumerate(rows):
        torch.mul(x[row.sender - first], row.share, out=out_x[index])
    out_w.copy_(torch.tensor([row.share * weights[row.sender - first] for row in rows], dtype=torch.float64))


def sum_in_order(kept: Iterable[Part], arrived: Iterable[Part], first: int, *, out_x: Tensor, out_w: Tensor) -> None:
    """Sum what each client keeps and what arrived for it, both given in the order of the sending client.

    So every client's sum runs in the order of the sending client: the bits then depend neither on who arrived first nor
    on who hosts whom. out_x: [m, d]; out_w: [m] float64; `first` is the client of their first row.
    """
    begun: set[int] = set()
    for part in heapq.merge(kept, arrived, key=lambda part: part.sender):
        for receiver in part.receivers:
            row = receiver - first
            if receiver in begun:
                out_x[row] += part.x
                out_w[row] += part.w
            else:
                out_x[row], out_w[row] = part.x, part.w
                begun.add(receiver)


def add(part: Part, first: int, x: Tensor, w: Tensor) -> None:
    """Add a part to each of its receivers."""
    for receiver in part.receivers:
        x[receiver - first] += part.x
        w[receiver - first] += part.w


# The server's average. Integers add up to the same bits in any order, so an all-reduce of them does not depend on the
# layout; in steps of 2^-61 of the largest parameter it loses less than rounding does.


INTEGER_BITS = 61


def integer_scale(largest: float) -> float:
    """The power of two that takes numbers up to `largest` just below 2^61."""
    return math.ldexp(1.0, INTEGER_BITS - max(math.frexp(largest)[1], -900))


def integer_sum(x: Tensor, shares: Sequence[float], scale: float) -> Tensor:
    """Σ_j p_j · x_j over the rows of x: [m, d], in units of 1/scale: [d] int64."""
    total = torch.zeros(x.shape[1], dtype=torch.int64, device=x.device)
    for row, share in zip(x, shares, strict=True):
        total += (row.double() * (share * scale)).round().long()
    return total
