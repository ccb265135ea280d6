"""What the ranks of some tests run, called through ranks.py; each returns 0 when all is as it should be."""

import os
import sys
import time
from collections import deque
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from dfl_dist.distributed import groups
from dfl_dist.distributed.control import Control
from dfl_dist.distributed.frames import Frame, FrameFormat, Label
from dfl_dist.distributed.gloo import GlooTransport
from dfl_dist.distributed.nccl import BatchedTransport
from dfl_dist.distributed.transport import Incoming, Outgoing, Transport
from dfl_dist.distributed.world import World
from dfl_dist.errors import PeerError
from dfl_dist.randomness import stream
from dfl_dist.topology.graph import Graph, make_graph
from dfl_dist.topology.kinds import Options, random_directed
from dfl_dist.training.agreement import host_first
from dfl_dist.training.layout import Routes, lay_out, routes
from dfl_dist.training.main import main

CPU = torch.device("cpu")


def connect(timeout_s: float = 60.0) -> tuple[World, Control, dist.ProcessGroup]:
    """Both groups of all ranks."""
    world = World.from_environment()
    control = Control(groups.connect(world), rank=world.rank, world_size=world.size, timeout_s=timeout_s)
    ranks = range(world.size)
    return world, control, groups.data_group(world, ranks, backend="gloo", timeout_s=timeout_s, device=CPU)


def gloo(group: dist.ProcessGroup, *, window: int, timeout_s: float = 60.0) -> GlooTransport:
    return GlooTransport(group, timeout_s=timeout_s, window=window, device=CPU)


def random_graph(num_clients: int, round_idx: int, out_degree: int) -> Graph:
    rng = stream(0, "graph", round_idx=round_idx)
    return make_graph(random_directed(num_clients, round_idx, rng, Options(out_degree=out_degree)))


def transports_agree(arguments: list[str]) -> int:
    """Random graphs over every transport: each row arrives where it should, with the bits it was sent with.

    With an argument, so many exchanges stay in flight, whose frames are taken only then.
    """
    overlap = int(arguments[0]) if arguments else 0
    world, _, group = connect()
    wire, num_clients = FrameFormat(1003, torch.float32), 2 * world.size + 1
    layout = lay_out(num_clients, world.size)

    def both(graph: Graph) -> tuple[Routes, Routes]:
        return routes(graph, layout, world.rank)

    batched = BatchedTransport(group, timeout_s=60, device=CPU)
    kinds: list[Transport] = [gloo(group, window=1), gloo(group, window=4), batched]
    in_flight: dict[int, deque[tuple[int, Routes]]] = {index: deque() for index in range(len(kinds))}
    for round_idx in range(20 + overlap):
        # Out-degree 0 now and then: a rank that neither sends nor receives.
        graph = random_graph(num_clients, round_idx, out_degree=round_idx % 4)
        outgoing, incoming = ({peer: rows for peer, rows in way.items() if peer != world.rank} for way in both(graph))
        for index, transport in enumerate(kinds):
            transport.expect(round_idx, [Incoming(peer, wire.num_bytes(len(rows))) for peer, rows in incoming.items()])
            transport.flush(keep=overlap)
            frames: dict[tuple[int, ...], Frame] = {}  # ranks that get the same rows get the same buffer
            for rows in outgoing.values():
                senders = tuple(row.sender for row in rows)
                if senders not in frames:
                    frames[senders] = filled(wire, Label(round_idx, 0, world.rank, senders))
            transport.push(
                [Outgoing(peer, frames[tuple(row.sender for row in rows)].buffer) for peer, rows in outgoing.items()]
            )
            in_flight[index].append((round_idx, incoming))
            if len(in_flight[index]) > overlap:
                pushed_in, expected = in_flight[index].popleft()
                for (peer, rows), buffer in zip(expected.items(), transport.arrivals(), strict=True):
                    frame = wire.decode(buffer, Label(pushed_in, 0, peer, [row.sender for row in rows]))
                    for number, row in enumerate(rows):
                        assert torch.equal(frame.x[number], row_of(row.sender, pushed_in, wire.size))
                        assert float(frame.w[number]) == row.sender + pushed_in / 7
    for transport in kinds:
        for _ in range(overlap):
            list(transport.arrivals())
        transport.flush(keep=0)
    dist.barrier()
    groups.disconnect()
    return 0


def filled(wire: FrameFormat, label: Label) -> Frame:
    """A frame whose rows follow from its label."""
    frame = wire.encode(torch.empty(wire.num_bytes(len(label.clients)), dtype=torch.uint8), label)
    for number, client in enumerate(label.clients):
        frame.x[number] = row_of(client, label.round_idx, wire.size)
        frame.w[number] = client + label.round_idx / 7
    return frame


def row_of(client: int, round_idx: int, size: int) -> torch.Tensor:
    return torch.arange(size, dtype=torch.float32) * (client + 1) + round_idx


def wrong_frame_is_refused(arguments: list[str]) -> int:
    """Rank 1 sends the frame of another round; rank 0 must say what it got and what it expected."""
    world, _, group = connect()
    wire, transport = FrameFormat(5, torch.float32), gloo(group, window=2)
    if world.rank == 1:
        transport.expect(8, [])
        transport.push([Outgoing(0, filled(wire, Label(8, 0, 1, [1])).buffer)])
        transport.flush(keep=0)
    else:
        transport.expect(7, [Incoming(1, wire.num_bytes(1))])
        with pytest.raises(PeerError, match="the frame from rank 1 in round 8 has round 9, expected 8"):
            wire.decode(next(transport.arrivals()), Label(7, 0, 1, [1]))
    dist.barrier()
    groups.disconnect()
    return 0


def silent_peer_is_named(arguments: list[str]) -> int:
    """One rank waits for something that the other never does; the wait ends at the timeout and blames it."""
    (what,) = arguments
    world, control, group = connect(timeout_s=1.0)
    transport = gloo(group, window=2, timeout_s=1.0)

    def frame() -> None:
        transport.expect(3, [Incoming(0, 100)])
        next(transport.arrivals())

    def plan() -> None:
        control.expect_plan(4)
        control.receive_plan(4)

    waiting_rank, words, action = {
        "frame": (1, "waited for the frame of rank 0 in round 4", frame),
        "plan": (1, "waited for the plan of round 5 from rank 0", plan),
        "report": (
            0,
            "waited for the report of round 3 from rank 1",
            lambda: control.read_reports(control.expect_reports(2, [3, 3])),
        ),
        "sum": (
            0,
            "waited for all ranks to sum their models",
            lambda: control.all_reduce(torch.zeros(5), "sum their models"),
        ),
    }[what]
    over = Path("over")  # in the test's own folder
    if world.rank != waiting_rank:
        while not over.exists():
            time.sleep(0.05)
        os._exit(0)
    started = time.monotonic()
    with pytest.raises(PeerError) as error:
        action()
    assert str(error.value) == f"{words}: nothing came within 1 s (timeout_s)"
    assert time.monotonic() - started < 20
    over.touch()
    os._exit(0)  # the timeout has closed the group; there is nobody left to say goodbye to


def plans_arrive(arguments: list[str]) -> int:
    """Plans of any size, decisions, reports, texts."""
    world, control, _ = connect()
    bodies = [list(range(size)) for size in (0, 1, 2, 90, 100_000, 3, 0)]
    for t, body in enumerate(bodies):
        if world.rank == 0:
            control.send_plan(t, t % 3, body)
            coming = control.expect_reports(t, [2] * world.size)
            assert control.read_reports(coming) == [[t, rank] for rank in range(1, world.size)]
        else:
            control.expect_plan(t)
            assert control.receive_plan(t) == (t % 3, body)
            control.send_report(t, [t, world.rank])
    if world.rank == 0:
        control.send_plan(7, 0, [])
        control.send_plan(8, 1, [1, 2])
    else:
        for t in (7, 8):
            control.expect_plan(t)
        with pytest.raises(PeerError, match="rank 0 sent the plan of round 8, expected round 9"):
            control.receive_plan(8)
        control.drop_plans()
    assert control.broadcast_text("größe" if world.rank == 0 else "", "a word") == "größe"
    texts = control.gather_text(f"rank {world.rank} ✓", "tell its name")
    assert texts == ([f"rank {rank} ✓" for rank in range(world.size)] if world.rank == 0 else [])
    assert control.agree("no disk" if world.rank == world.size - 1 else None, "write") == "no disk"
    assert control.agree(None, "write") is None
    assert float(control.all_reduce(torch.tensor([1.0 * world.rank]), "count")) == sum(range(world.size))
    assert float(control.all_reduce(torch.tensor([1.0 * world.rank]), "count", largest=True)) == world.size - 1
    control.finish()
    groups.disconnect()
    return 0


def meet_again(arguments: list[str]) -> int:
    """Meet in a store in which ranks of an earlier start have left their words, three times in one process."""
    world = World.from_environment()
    os.environ["TORCHELASTIC_RESTART_COUNT"] = str(world.rank)
    store = groups.open_store(world, 60.0)
    if world.rank == 0:
        for rank in range(1, world.size):
            store.set(f"dfl_dist/hello/{rank}", "an old word")
        store.set("dfl_dist/start/an old word", "an old start")
        store.set("ready", "")
    store.wait(["ready"])
    for _ in range(3):
        groups.connect(world)
        total = torch.ones(1)
        dist.all_reduce(total)
        assert total.item() == world.size
        groups.disconnect()
    return 0


def tell_who_decoded(arguments: list[str]) -> int:
    """Train, and say whether this rank has decoded the data itself, for which torchvision is imported."""
    code = main(arguments)
    how = "decoded" if "torchvision" in sys.modules else "mapped"
    os.write(1, f"rank {World.from_environment().rank} {how}\n".encode())  # at once: other ranks write there too
    return code


def tell_who_decoded_on_two_hosts(arguments: list[str]) -> int:
    """The same, with ranks 2 and 3 on a host of their own, which has another folder in the same place."""
    rank = int(os.environ["RANK"])
    os.environ |= {"LOCAL_RANK": str(rank % 2), "LOCAL_WORLD_SIZE": "2"}
    if rank >= 2:
        os.chdir("host-b")
    return tell_who_decoded(arguments)


def impatient(arguments: list[str]) -> int:
    """The trainer, whose ranks do not wait long for one another at the start."""
    groups.STARTUP_TIMEOUT_S = 2.0
    return main(arguments)


def slow_loader_is_named(arguments: list[str]) -> int:
    """Rank 0 takes longer to load than the other waits, which says for whom it waited."""
    world, control, _ = connect()
    control.timeout_s = 1.0 if world.rank else 60.0

    def load() -> str:
        if world.rank == 0:
            time.sleep(2.5)
        return "data"

    if world.rank == 0:
        with pytest.raises(PeerError):
            host_first(control, world, load, "load the data")
        return 0
    with pytest.raises(PeerError, match="waited for rank 0 to load the data: nothing came within 1 s"):
        host_first(control, world, load, "load the data")
    return 0


def stay(arguments: list[str]) -> int:
    """A rank that would be there for minutes."""
    time.sleep(600)
    return 0


def tell(arguments: list[str]) -> int:
    """Who and where this rank is, and what it was given."""
    who = f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} in {Path.cwd()}"
    os.write(1, f"{who}: {arguments}, {os.environ.get('DFL_TEST_WORD')}\n".encode())
    return 0


def tell_threads(arguments: list[str]) -> int:
    """What a rank has from the server."""
    threads = len(list(Path("/proc/self/task").iterdir()))
    imported = "is" if "torchvision" in sys.modules else "is not"
    print(f"{threads} thread, torchvision {imported} imported")
    return 0
