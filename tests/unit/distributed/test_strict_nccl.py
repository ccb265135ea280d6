"""The batched transport over a strict model of NCCL: the bits of one process, and mistakes that are caught."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pytest
import strict_nccl
import torch
from nobody_else import NobodyElse
from strict_nccl import Communicator

from dfl_dist.distributed import nccl
from dfl_dist.distributed.nccl import BatchedTransport
from dfl_dist.distributed.positions import SilenceError
from dfl_dist.distributed.transport import Incoming, Outgoing, Transport
from dfl_dist.topology.graph import Graph, make_graph
from dfl_dist.training.clients import Clients
from dfl_dist.training.exchange import PushSum
from dfl_dist.training.layout import lay_out

SIZE, ROUNDS = 37, 15
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def model_of_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl, "dist", strict_nccl)


def graph_of(round_idx: int, clients: int) -> Graph:
    """Another graph each round; in each, some clients are alone, some only send and some only receive."""
    rng = np.random.default_rng(round_idx)
    roles = rng.permutation(clients)
    alone, sending, receiving = (set(roles[start:clients:6].tolist()) for start in (0, 1, 2))
    receivers = [client for client in range(clients) if client not in alone | sending]
    out = []
    for client in range(clients):
        others = [other for other in receivers if other != client]
        quiet = client in alone | receiving or not others
        out.append([] if quiet else rng.choice(others, size=min(3, len(others)), replace=False).tolist())
    return make_graph(out)


def train(rank: int, ranks: int, clients: int, transport: Transport, *, overlap: int, steps: int) -> Clients:
    """The rounds of one rank, whose local steps are some arithmetic."""
    layout = lay_out(clients, ranks)
    hosted = Clients.at_start(layout.blocks[rank], torch.linspace(-1, 1, SIZE), [])
    exchange = PushSum(hosted, transport, layout, rank, overlap=overlap, gossip_steps=steps)
    for round_idx in range(ROUNDS):
        graph = graph_of(round_idx, clients)
        exchange.expect(round_idx, graph)
        for row, client in enumerate(hosted.block):
            hosted.x[row] += torch.sin(hosted.x[row] * (client + 1) + round_idx)
        exchange.mix(round_idx, graph)
        if round_idx % 7 == 3:
            exchange.sum_in_flight()  # as an evaluation does
    exchange.drain()
    exchange.flush()
    return hosted


def on_threads(ranks: int, body: Callable[[int], object]) -> None:
    """Run something on every rank; the first error that one of them has is raised."""
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            body(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads)


def batched(world: Communicator, rank: int, timeout_s: float = 20.0) -> BatchedTransport:
    return BatchedTransport(world.rank(rank), timeout_s=timeout_s, device=CPU)  # type: ignore[arg-type]


@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.parametrize(("overlap", "steps"), [(0, 1), (1, 1), (2, 1), (0, 3), (1, 2)])
@pytest.mark.parametrize(("ranks", "clients"), [(8, 8), (16, 16), (9, 23)])
def test_bits_are_those_of_one_process(ranks: int, clients: int, overlap: int, steps: int, connected: bool) -> None:
    alone = train(0, 1, clients, NobodyElse(), overlap=overlap, steps=steps)
    world, found = Communicator(ranks, stuck_s=20.0), dict[int, Clients]()
    if connected:
        world.connect_all()

    def body(rank: int) -> None:
        found[rank] = train(rank, ranks, clients, batched(world, rank), overlap=overlap, steps=steps)

    on_threads(ranks, body)
    assert torch.equal(torch.cat([found[rank].x for rank in range(ranks)]), alone.x)
    assert torch.equal(torch.cat([found[rank].w for rank in range(ranks)]), alone.w)
    assert (world.contacts == 0) is connected, "only the first message of a pair connects it"


def test_a_timeout_counts_from_the_wait_for_what_was_issued_a_round_ago() -> None:
    """With overlap the local steps of a round lie between the two, and may take longer than the timeout."""
    world = Communicator(2)
    world.connect_all()

    def body(rank: int) -> None:
        transport = batched(world, rank, 0.3)
        time.sleep(0.4 * rank)
        transport.expect(0, [Incoming(1 - rank, 8)])
        transport.push([Outgoing(1 - rank, torch.zeros(8, dtype=torch.uint8))])
        time.sleep(0.2 * (1 - rank))
        list(transport.arrivals())

    on_threads(2, body)


# Mistakes that NCCL punishes by silence or by wrong numbers.


def test_a_frame_that_changes_in_flight_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frames of an exchange in flight were used again."""
    monkeypatch.setattr(PushSum, "_free_frames", reuse_all)
    world = Communicator(8, stuck_s=1.0)
    with pytest.raises(AssertionError, match="the buffer of a send was touched in flight"):
        on_threads(8, lambda rank: train(rank, 8, 8, batched(world, rank, 1.0), overlap=2, steps=1))


def reuse_all(exchange: PushSum) -> None:
    for buffer in exchange.pushed:
        exchange.pool.give_back(buffer)
    exchange.pushed.clear()
    exchange.scaled.clear()


def test_receives_before_sends_one_by_one_never_end() -> None:
    """Two ranks that each wait for the other's message before they send theirs."""
    world = Communicator(2, stuck_s=0.3)
    world.connect_all()

    def body(rank: int) -> None:
        group, buffers = world.rank(rank), torch.zeros(2, 8, dtype=torch.uint8)
        for kind, buffer in ((strict_nccl.irecv, buffers[0]), (strict_nccl.isend, buffers[1])):
            work = strict_nccl.batch_isend_irecv([strict_nccl.P2POp(kind, buffer, 1 - rank, group)])
        work[0].wait(timedelta(seconds=0.3))

    with pytest.raises(RuntimeError, match="timed out"):
        on_threads(2, body)


def test_a_message_of_another_size_is_caught() -> None:
    world = Communicator(2)

    def body(rank: int) -> None:
        transport = batched(world, rank, 1.0)
        transport.expect(0, [Incoming(1 - rank, 8 if rank else 16)])
        transport.push([Outgoing(1 - rank, torch.zeros(8, dtype=torch.uint8))])
        list(transport.arrivals())

    with pytest.raises(AssertionError, match="beyond a buffer"):
        on_threads(2, body)


def test_a_rank_that_does_not_come_is_told_by_the_timeout() -> None:
    world = Communicator(2)
    world.connect_all()

    def body(rank: int) -> None:
        if rank == 0:
            transport = batched(world, rank, 0.2)
            transport.expect(3, [Incoming(1, 8)])
            transport.push([])
            list(transport.arrivals())

    with pytest.raises(SilenceError, match=r"waited for the frames of ranks 1 in round 4: nothing came within 0\.2 s"):
        on_threads(2, body)
