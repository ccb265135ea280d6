"""The batched transport: the order of NCCL's operations, which cannot be run without GPUs."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rank_programs import random_graph

from dfl_dist.distributed import nccl
from dfl_dist.distributed.frames import FrameFormat
from dfl_dist.distributed.nccl import BatchedTransport
from dfl_dist.distributed.transport import Incoming, Outgoing
from dfl_dist.training.layout import lay_out, routes

CPU = torch.device("cpu")


def operations_of(rank: int, world_size: int, exchanges: int, monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The batches that a rank would hand to NCCL, each operation as (what, peer, bytes)."""
    issued: list[list[Any]] = []

    def issue(operations: list[Any]) -> list[Any]:
        assert operations, "an empty batch is an error of torch's"
        issued.append(operations)
        return [SimpleNamespace(wait=lambda timeout: True)]

    def operation(what: str, buffer: torch.Tensor, peer: int, group: object) -> tuple[str, int, int]:
        return what, peer, len(buffer)

    fake = SimpleNamespace(isend="send", irecv="receive", P2POp=operation, batch_isend_irecv=issue)
    monkeypatch.setattr(nccl, "dist", fake)
    layout, wire = lay_out(2 * world_size + 1, world_size), FrameFormat(5, torch.float32)
    batched = BatchedTransport(None, timeout_s=1.0, device=CPU)  # type: ignore[arg-type]
    for number in range(exchanges):
        graph = random_graph(layout.num_clients, number, out_degree=number % 3)
        outgoing, incoming = (
            {peer: wire.num_bytes(len(rows)) for peer, rows in way.items() if peer != rank}
            for way in routes(graph, layout, rank)
        )
        batched.expect(number, [Incoming(peer, size) for peer, size in incoming.items()])
        before = len(issued)
        pushed = [Outgoing(peer, torch.empty(size, dtype=torch.uint8)) for peer, size in outgoing.items()]
        batched.push(pushed[::-1])  # in whatever order they are handed over
        if len(issued) == before:
            issued.append([])
    return issued


def test_nccl_gets_one_batch_per_exchange_in_an_order_fixed_by_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL knows no tags: the n-th message from a to b must be the n-th that b expects of a, in the same batch."""
    world_size, exchanges = 5, 12
    issued = [operations_of(rank, world_size, exchanges, monkeypatch) for rank in range(world_size)]
    for number in range(exchanges):
        batch = [issued[rank][number] for rank in range(world_size)]
        for operations in batch:
            kinds = [what for what, _, _ in operations]
            assert kinds == sorted(kinds, key=["send", "receive"].index)
            for kind in ("send", "receive"):
                peers = [peer for what, peer, _ in operations if what == kind]
                assert peers == sorted(set(peers)), "one frame per pair, by rank"
        sent = Counter(
            (rank, peer, size) for rank in range(world_size) for what, peer, size in batch[rank] if what == "send"
        )
        due = Counter(
            (peer, rank, size) for rank in range(world_size) for what, peer, size in batch[rank] if what == "receive"
        )
        assert sent == due
    assert any(not operations for batches in issued for operations in batches), (
        "a rank with nothing to do is among them"
    )
