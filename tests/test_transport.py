"""Frames: their layout in memory, their checks, and their way between real ranks."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from launching import ranks, run
from rank_programs import random_graph

from dfl_dist import transport
from dfl_dist.layout import routes, spread
from dfl_dist.transport import ALIGN, HEADER, BatchedTransport, Frame, GlooTransport
from dfl_dist.waiting import PeerError

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_frame_layout(rows: int, dtype: torch.dtype) -> None:
    frame = Frame.empty(rows, 7, dtype, CPU).seal(5, 0, 2, list(range(4, 4 + rows)))
    frame.x.copy_(torch.arange(rows * 7).view(rows, 7))
    frame.w.copy_(torch.arange(rows))
    assert frame.x.data_ptr() % ALIGN == frame.buffer.data_ptr() % ALIGN
    copy = Frame(frame.buffer.clone(), rows, 7, dtype)
    copy.check(5, 0, 2, list(range(4, 4 + rows)))
    assert torch.equal(copy.x, frame.x)
    assert copy.w.dtype == torch.float64
    assert len(frame.buffer) == Frame.num_bytes(rows, 7, dtype)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda frame: frame.seal(6, 0, 2, [1]), "round 6, expected 5"),
        (lambda frame: frame.seal(5, 1, 2, [1]), "gossip step 1, expected 0"),
        (lambda frame: frame.seal(5, 0, 3, [1]), "sender rank 3, expected 2"),
        (lambda frame: frame.seal(5, 0, 2, [9]), "clients [9], expected [1]"),
        (lambda frame: frame.buffer[: HEADER.size].fill_(0), "magic b'\\x00"),
    ],
)
def test_a_frame_that_is_not_the_expected_one_is_refused(change, complaint: str) -> None:  # type: ignore[no-untyped-def]
    frame = Frame.empty(1, 7, torch.float32, CPU).seal(5, 0, 2, [1])
    frame.check(5, 0, 2, [1])
    change(frame)
    with pytest.raises(PeerError) as error:
        frame.check(5, 0, 2, [1])
    assert complaint in str(error.value)


@pytest.mark.parametrize(
    ("world_size", "program"),
    [
        (4, ["transports_agree"]),
        (4, ["transports_agree", "2"]),
        (2, ["wrong_frame_is_refused"]),
        (2, ["silent_peer_is_named", "frame"]),
    ],
)
def test_between_real_ranks(tmp_path: Path, world_size: int, program: list[str]) -> None:
    done = run(ranks(world_size, f"rank_programs:{program[0]}", *program[1:]), tmp_path)
    assert done.code == 0, done.err


# What cannot be run without GPUs: the order of NCCL's operations, and pinned memory.


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
    monkeypatch.setattr(transport, "dist", fake)
    layout, size = spread(2 * world_size + 1, world_size), 5
    batched = BatchedTransport(None, timeout_s=1.0, size=size, dtype=torch.float32, device=CPU)  # type: ignore[arg-type]
    for number in range(exchanges):
        graph = random_graph(layout.num_clients, number, out_degree=number % 3)
        outgoing, incoming = (
            {peer: [row.sender for row in rows] for peer, rows in way.items() if peer != rank}
            for way in routes(graph, layout, rank)
        )
        batched.expect(number, 0, list(incoming.items()))
        before = len(issued)
        batched.push([(peer, Frame.empty(len(rows), size, torch.float32, CPU)) for peer, rows in outgoing.items()])
        if len(issued) == before:
            issued.append([])
    return issued


def test_nccl_gets_one_batch_an_exchange_in_an_order_fixed_by_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
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
                assert peers == sorted(set(peers)), "one frame a pair, by rank"
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


@pytest.mark.parametrize(("device", "pinned"), [("cpu", False), ("cuda", True)])
def test_frames_of_a_gpu_go_through_pinned_memory(monkeypatch: pytest.MonkeyPatch, device: str, pinned: bool) -> None:
    asked: list[bool] = []
    empty = torch.empty

    def remember(*words: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        asked.append(pin_memory)
        return empty(*words, **options)

    monkeypatch.setattr(torch, "empty", remember)
    settings = {"timeout_s": 1.0, "window": 2, "size": 5, "dtype": torch.float32, "device": torch.device(device)}
    over_gloo = GlooTransport(None, **settings)  # type: ignore[arg-type]
    buffer = over_gloo._take_buffer(100)
    assert asked == [pinned]
    assert over_gloo._on_host(buffer) is buffer, "not copied where it is on the host already"
