"""What the ranks of some tests run, called through ranks.py; each returns 0 when all is as it should be."""

import os
import signal
import sys
import threading
import time
from collections import deque
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from dfl_dist import checkpoint, clients, exchange, runtime, start
from dfl_dist.control import Control, Decision, Plan
from dfl_dist.evaluate import Evaluator
from dfl_dist.layout import Routes, routes, spread
from dfl_dist.randomness import stream
from dfl_dist.runtime import World
from dfl_dist.start import in_turn
from dfl_dist.topology import KINDS, Graph, Options, Server, make_graph
from dfl_dist.train import main
from dfl_dist.transport import BatchedTransport, Frame, GlooTransport, Transport
from dfl_dist.waiting import PeerError

CPU = torch.device("cpu")


def connect(timeout_s: float = 60.0) -> tuple[World, dist.ProcessGroup]:
    world = World.from_environment()
    runtime.connect(world)
    return world, runtime.data_group(range(world.size), backend="gloo", timeout_s=timeout_s, device=CPU)


def gloo(group: dist.ProcessGroup, size: int, *, window: int, timeout_s: float = 60.0) -> GlooTransport:
    return GlooTransport(group, timeout_s=timeout_s, window=window, size=size, dtype=torch.float32, device=CPU)


def random_graph(num_clients: int, round_idx: int, out_degree: int) -> Graph:
    rng = stream(0, "graph", round_idx=round_idx)
    return make_graph(KINDS["random_directed"](num_clients, round_idx, rng, Options(out_degree=out_degree)))


def transports_agree(arguments: list[str]) -> int:
    """Random graphs over every transport: each row arrives where it should, with the bits it was sent with.

    With an argument, so many exchanges stay under way, whose frames are taken only then.
    """
    overlap = int(arguments[0]) if arguments else 0
    world, group = connect()
    size, num_clients = 1003, 2 * world.size + 1
    layout = spread(num_clients, world.size)

    def both(graph: Graph) -> tuple[Routes, Routes]:
        return routes(graph, layout, world.rank)

    batched = BatchedTransport(group, timeout_s=60, size=size, dtype=torch.float32, device=CPU)
    kinds: list[Transport] = [gloo(group, size, window=1), gloo(group, size, window=4), batched]
    under_way: dict[int, deque[tuple[int, Routes]]] = {index: deque() for index in range(len(kinds))}
    for round_idx in range(20 + overlap):
        # Out-degree 0 now and then: a rank that neither sends nor receives.
        graph = random_graph(num_clients, round_idx, out_degree=round_idx % 4)
        outgoing, incoming = ({peer: rows for peer, rows in way.items() if peer != world.rank} for way in both(graph))
        for index, transport in enumerate(kinds):
            transport.expect(round_idx, 0, [(peer, [row.sender for row in rows]) for peer, rows in incoming.items()])
            transport.flush(keep=overlap)
            frames = []
            for receiver, rows in outgoing.items():
                senders = [row.sender for row in rows]
                frame = Frame.empty(len(senders), size, torch.float32, CPU).seal(round_idx, 0, world.rank, senders)
                for number, client in enumerate(senders):
                    frame.x[number] = row_of(client, round_idx, size)
                    frame.w[number] = client + round_idx / 7
                frames.append((receiver, frame))
            transport.push(frames)
            under_way[index].append((round_idx, incoming))
            if len(under_way[index]) > overlap:
                pushed_in, expected = under_way[index].popleft()
                for rows, frame in zip(expected.values(), transport.arrivals(), strict=True):
                    for number, row in enumerate(rows):
                        assert torch.equal(frame.x[number], row_of(row.sender, pushed_in, size))
                        assert float(frame.w[number]) == row.sender + pushed_in / 7
    for transport in kinds:
        for _ in range(overlap):
            list(transport.arrivals())
        transport.flush(keep=0)
    dist.barrier()
    runtime.disconnect()
    return 0


def row_of(client: int, round_idx: int, size: int) -> torch.Tensor:
    return torch.arange(size, dtype=torch.float32) * (client + 1) + round_idx


def wrong_frame_is_refused(arguments: list[str]) -> int:
    """Rank 1 sends the frame of another round; rank 0 must say what it got and what it expected."""
    world, group = connect()
    transport = gloo(group, 5, window=2)
    if world.rank == 1:
        transport.expect(8, 0, [])
        transport.push([(0, Frame.empty(1, 5, torch.float32, CPU).seal(8, 0, 1, [1]))])
        transport.flush(keep=0)
    else:
        transport.expect(7, 0, [(1, [1])])
        with pytest.raises(PeerError, match="the frame from rank 1 in round 7 has round 8, expected 7"):
            next(transport.arrivals())
    dist.barrier()
    runtime.disconnect()
    return 0


def silent_peer_is_named(arguments: list[str]) -> int:
    """One rank waits for something that the other never does; the wait ends at the timeout and blames it."""
    (what,) = arguments
    world, group = connect(timeout_s=1.0)
    control = Control(rank=world.rank, world_size=world.size, timeout_s=1.0)
    control.prepare(2, ahead=0)
    transport = gloo(group, 5, window=2, timeout_s=1.0)

    def frame() -> None:
        transport.expect(3, 0, [(0, [0])])
        next(transport.arrivals())

    def plan() -> None:
        control.expect_plan(4)
        control.receive_plan(4)

    waiting_rank, words, action = {
        "frame": (1, "waited for the frame of rank 0 in round 3", frame),
        "plan": (1, "waited for the plan of round 4 from rank 0", plan),
        "scalars": (
            0,
            "waited for the scalars of round 2 from rank 1",
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
    """Plans of any size up to the agreed one, decisions, scalars, texts."""
    world, _ = connect()
    control = Control(rank=world.rank, world_size=world.size, timeout_s=60)
    control.prepare(9, ahead=0)
    full = make_graph([range(9)] * 9, "metropolis")
    graphs = [random_graph(9, t, out_degree=t) for t in range(7)] + [full, Server((2, 3, 8))]
    for t, graph in enumerate(graphs):
        if world.rank == 0:
            control.send_plan(t, Plan(Decision.GO_ON, graph))
            coming = control.expect_reports(t, [2] * world.size)
            reports = control.read_reports(coming)
            assert [report.tolist() for report in reports] == [[t, rank] for rank in range(1, world.size)]
        else:
            control.expect_plan(t)
            assert control.receive_plan(t) == Plan(Decision.GO_ON, graph)
            control.send_report(t, torch.tensor([t, world.rank], dtype=torch.float64))
    if world.rank == 0:
        control.send_plan(9, Plan(Decision.STOP))
    else:
        control.expect_plan(9)
        assert control.receive_plan(9) == Plan(Decision.STOP)
    assert control.broadcast_text("größe" if world.rank == 0 else "", "a word") == "größe"
    texts = control.gather_text(f"rank {world.rank} ✓", "tell its name")
    assert texts == ([f"rank {rank} ✓" for rank in range(world.size)] if world.rank == 0 else [])
    assert control.agree("no disk" if world.rank == world.size - 1 else None, "write") == "no disk"
    assert control.agree(None, "write") is None
    assert float(control.all_reduce(torch.tensor([1.0 * world.rank]), "count")) == sum(range(world.size))
    control.finish()
    runtime.disconnect()
    return 0


# The trainer with something broken on one rank.


def raise_in_round_3(arguments: list[str]) -> int:
    """The trainer, with a bug that shows on rank 2 in round 3."""
    original = clients.Clients.step

    def step(self, round_idx, model, work, training):  # type: ignore[no-untyped-def]
        if round_idx == 3 and os.environ["RANK"] == "2":
            raise ValueError("the disk of this client is on fire")
        original(self, round_idx, model, work, training)

    clients.Clients.step = step  # type: ignore[method-assign]
    return main(arguments)


def late_in_round_2(arguments: list[str]) -> int:
    """The trainer, with a rank 1 that trains in round 2 until rank 0 is through with that round."""
    step, mix, through = clients.Clients.step, exchange.PushSum.mix, Path("rank-0-is-through")

    def late_step(self, round_idx, model, work, training):  # type: ignore[no-untyped-def]
        step(self, round_idx, model, work, training)
        end = time.monotonic() + 10
        while round_idx == 2 and os.environ["RANK"] == "1" and not through.exists() and time.monotonic() < end:
            time.sleep(0.02)

    def marked_mix(self, round_idx, graph):  # type: ignore[no-untyped-def]
        mix(self, round_idx, graph)
        if round_idx == 2 and os.environ["RANK"] == "0":
            through.touch()

    clients.Clients.step, exchange.PushSum.mix = late_step, marked_mix  # type: ignore[method-assign]
    return main(arguments)


def lose_mass(arguments: list[str]) -> int:
    """The trainer, with a rank that forgets a part of its w in round 4."""
    original = exchange.PushSum.mix

    def forget(self, round_idx, graph):  # type: ignore[no-untyped-def]
        original(self, round_idx, graph)
        if round_idx == 4 and os.environ["RANK"] == "1":
            self.clients.w *= 0.9

    exchange.PushSum.mix = forget  # type: ignore[method-assign]
    return main(arguments)


def killed(arguments: list[str]) -> int:
    """The trainer, of which one rank is killed once: MOMENT RANK COUNT, the moment the COUNT-th time that it comes."""
    moment, rank, count, *arguments = arguments
    if os.environ["RANK"] == rank and not Path("killed").exists():
        coming = iter(range(int(count) - 1, -1, -1))
        owner, name = MOMENTS[moment]
        original = getattr(owner, name)

        def at_that_moment(*words, **options):  # type: ignore[no-untyped-def]
            if next(coming) == 0:
                Path("killed").touch()
                if moment == "local steps":  # in the midst of them
                    threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGKILL)).start()
                else:
                    if moment == "frames pushed":
                        original(*words, **options)
                    os.kill(os.getpid(), signal.SIGKILL)
            return original(*words, **options)

        setattr(owner, name, at_that_moment)
    return main(arguments)


def meet_again(arguments: list[str]) -> int:
    """Meet in a store in which ranks of an earlier start have left their words, three times in one process."""
    world = World.from_environment()
    os.environ["TORCHELASTIC_RESTART_COUNT"] = str(world.rank)
    store = runtime.open_store(world, 60.0)
    if world.rank == 0:
        for rank in range(1, world.size):
            store.set(f"dfl_dist/hello/{rank}", "an old word")
        store.set("dfl_dist/start/an old word", "an old start")
        store.set("ready", "")
    store.wait(["ready"])
    for _ in range(3):
        runtime.connect(world)
        total = torch.ones(1)
        dist.all_reduce(total)
        assert total.item() == world.size
        runtime.disconnect()
    return 0


MOMENTS: dict[str, tuple[object, str]] = {
    "start": (start, "load_clients"),
    "local steps": (clients.Clients, "step"),
    "frames pushed": (GlooTransport, "push"),
    "evaluation": (Evaluator, "evaluate"),
    "a client's file": (checkpoint, "write_atomic"),
    "manifest": (checkpoint, "write_manifest"),
    "old checkpoints": (checkpoint, "prune"),
}


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
    runtime.STARTUP_TIMEOUT_S = 2.0
    return main(arguments)


def slow_loader_is_named(arguments: list[str]) -> int:
    """Rank 0 takes longer to load than the other waits, which says for whom it waited."""
    world, _ = connect()
    control = Control(rank=world.rank, world_size=world.size, timeout_s=1.0 if world.rank else 60.0)

    def load() -> str:
        if world.rank == 0:
            time.sleep(4.0)
        return "data"

    if world.rank == 0:
        with pytest.raises(PeerError):
            in_turn(control, world, load, "load the data")
        return 0
    with pytest.raises(PeerError, match="waited for rank 0 to load the data: nothing came within 1 s"):
        in_turn(control, world, load, "load the data")
    return 0


if __name__ == "__main__":  # under torchrun: rank_programs.py NAME arguments
    sys.exit(globals()[sys.argv[1]](sys.argv[2:]))
