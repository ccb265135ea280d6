"""What happens between the local steps of two rounds: the interface, and the push-sum exchange."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from dfl_dist.algorithms.mixing import Part, Row, add, scale_rows, sum_in_order
from dfl_dist.distributed.frames import BufferPool, Frame, FrameFormat, Label
from dfl_dist.distributed.transport import Incoming, Outgoing, Transport
from dfl_dist.run_folder.checkpoint import ClientState, Holdings, Parcel
from dfl_dist.topology.graph import Graph
from dfl_dist.training.clients import Clients
from dfl_dist.training.layout import Layout, Routes, routes


class Exchange(Protocol):
    """The part of a round in which clients learn from one another; every rank has one, also one without clients."""

    def expect(self, round_idx: int, graph: Any) -> None:
        """Prepare the exchange of a round, before its local steps."""

    def mix(self, round_idx: int, graph: Any) -> None:
        """Do the exchange of a round, after its local steps."""

    def drain(self) -> bool:
        """Mix in what is still in flight, at the end of a run; whether anything can be."""

    def bytes_sent(self, graph: Any) -> int:
        """What this rank's clients move in a round, whatever the layout."""

    def weight_in_flight(self) -> float:
        """The part of Σ w that this rank's clients have pushed and that is not mixed in yet."""

    def weights_in_flight_to(self) -> Tensor:
        """What is in flight to each of all clients from every exchange, as far as hosted here: [exchanges, n]."""

    def sum_in_flight(self) -> Tensor:
        """The part of Σ x that is in flight to this rank's clients: [d] float64."""

    def states(self, round_count: int) -> list[ClientState]:
        """What a checkpoint after this number of rounds keeps of each hosted client."""

    def flush(self) -> None:
        """Wait until everything sent has left this rank."""


@dataclass
class Flight:
    """What was pushed in one exchange and is not mixed in yet."""

    round_idx: int  # in which it was pushed
    due: int  # the round at whose end it is mixed in
    step: int
    incoming: Routes
    hosted: Frame | None  # what the clients of this rank pushed to one another
    weight: float
    landed: list[Part] | None = None  # set when it had to be looked at before it is due


class PushSum:
    """The push-sum exchange of a rank's clients.

    A client keeps its own share and mixes it in at once. With `overlap` τ, what a gossip step of round t pushes is
    mixed in by the same step of round t + τ. `in_flight` is what a checkpoint says is in flight to the clients.
    """

    def __init__(
        self,
        clients: Clients,
        transport: Transport,
        layout: Layout,
        rank: int,
        *,
        overlap: int = 0,
        gossip_steps: int = 1,
        in_flight: Sequence[Flight] = (),
    ) -> None:
        self.clients, self.transport, self.layout, self.rank = clients, transport, layout, rank
        self.overlap, self.gossip_steps = overlap, gossip_steps
        self.capacity = overlap * gossip_steps  # exchanges in flight after a round
        self.format = FrameFormat(clients.x.shape[1], clients.x.dtype)
        self.pool = BufferPool(clients.x.device)
        self.pushed: list[Tensor] = []  # the buffers of the last exchange's frames
        self.graph: Graph | None = None  # the one that the routes are for
        self.outgoing: Routes = {}
        self.incoming: Routes = {}
        self.scaled: dict[tuple[int, float], Tensor] = {}  # p·x of this exchange, by client and weight
        self.scratch = torch.empty(clients.x.shape[1], dtype=clients.x.dtype, device=clients.x.device)
        self.flights = deque(in_flight)
        self.before_drain: list[Holdings] = []

    def expect(self, round_idx: int, graph: Graph) -> None:
        if graph != self.graph:
            self.graph, (self.outgoing, self.incoming) = graph, routes(graph, self.layout, self.rank)
        self._expect(round_idx)

    def mix(self, round_idx: int, graph: Graph) -> None:
        """Push (p·x, p·w) to the out-neighbours, sum what is due in the order of the sending client, q times."""
        clients = self.clients
        for step in range(self.gossip_steps):
            if step > 0:
                self._expect(round_idx)
            self.flights.append(self._push(round_idx, step))
            due = self.flights.popleft() if len(self.flights) > self.capacity else None
            arrived = self._arrived(due) if due else ()
            sum_in_order(self._kept(graph), arrived, clients.block.start, out_x=clients.spare_x, out_w=clients.spare_w)
            clients.swap()

    def drain(self) -> bool:
        if not self.overlap:
            return False
        self.before_drain = self._holdings()  # so that a run can be made longer as if it had not ended here
        for flight in self.flights:
            for part in self._landed(flight):
                add(part, self.clients.block.start, self.clients.x, self.clients.w)
        self.flights.clear()
        return True

    def bytes_sent(self, graph: Graph) -> int:
        """What these clients push to others, x and w."""
        return bytes_pushed(self.format, graph, self.clients.block, self.gossip_steps)

    def flush(self) -> None:
        self.transport.flush(keep=0)

    # One exchange.

    def _expect(self, round_idx: int) -> None:
        """Post the receives of an exchange."""
        others = [(rank, rows) for rank, rows in self.incoming.items() if rank != self.rank]
        self.transport.expect(round_idx, [Incoming(rank, self.format.num_bytes(len(rows))) for rank, rows in others])

    def _push(self, round_idx: int, step: int) -> Flight:
        """Start sending to every rank that hosts out-neighbours; ranks that get the same rows get the same frame."""
        self.transport.flush(keep=self.capacity)
        self._free_frames()
        frames: dict[Content, Frame] = {}
        addressed, weight = {}, 0.0
        for receiver, rows in self.outgoing.items():
            if (key := content(rows)) not in frames:
                frames[key] = self._frame(rows, round_idx, step)
            addressed[receiver] = frames[key]
            weight += sum(w * len(row.receivers) for row, w in zip(rows, frames[key].w.tolist(), strict=True))
        hosted = addressed.pop(self.rank, None)
        self.transport.push([Outgoing(receiver, frame.buffer) for receiver, frame in addressed.items()])
        return Flight(round_idx, round_idx + self.overlap, step, self.incoming, hosted, weight)

    def _free_frames(self) -> None:
        """Let the last exchange's frames be used again, where all of them have left and were mixed in by now."""
        if self.capacity == 0:
            for buffer in self.pushed:
                self.pool.give_back(buffer)
        self.pushed.clear()
        self.scaled.clear()

    def _frame(self, rows: Sequence[Row], round_idx: int, step: int) -> Frame:
        clients = self.clients
        buffer = self.pool.take(self.format.num_bytes(len(rows)))
        self.pushed.append(buffer)
        frame = self.format.encode(buffer, Label(round_idx, step, self.rank, senders(rows)))
        scale_rows(rows, clients.block.start, clients.x, clients.w, out_x=frame.x, out_w=frame.w)
        self.format.seal(frame)
        self.scaled |= {(row.sender, row.share): x for row, x in zip(rows, frame.x, strict=True)}
        return frame

    def _kept(self, graph: Graph) -> Iterator[Part]:
        """The share that each client keeps; with equal weights it is the very row that it pushes."""
        weights = self.clients.w.tolist()
        for row, client in enumerate(self.clients.block):
            share = graph.share(client, client)
            x = self.scaled.get((client, share))
            if x is None:
                x = torch.mul(self.clients.x[row], share, out=self.scratch)
            yield Part(client, (client,), x, share * weights[row])

    def _arrived(self, flight: Flight) -> Iterator[Part]:
        """What an exchange has brought, in the order of the sending client; each is valid until the next."""
        if flight.landed is not None:
            yield from flight.landed
            return
        arrivals = self.transport.arrivals()
        for rank, rows in flight.incoming.items():
            if rank == self.rank:
                assert flight.hosted is not None
                frame = flight.hosted
            else:
                label = Label(flight.round_idx, flight.step, rank, senders(rows))
                frame = self.format.decode(next(arrivals), label)
            for row, x, w in zip(rows, frame.x, frame.w.tolist(), strict=True):
                yield Part(row.sender, row.receivers, x, w)
        left_over = next(arrivals, None)  # also lets the transport have its last buffer back
        assert left_over is None, "a frame was left over"

    # What is in flight.

    def _landed(self, flight: Flight) -> list[Part]:
        """Wait for a flight before it is due, and keep what it brought."""
        if flight.landed is None:
            flight.landed = [part._replace(x=part.x.clone()) for part in self._arrived(flight)]
        return flight.landed

    def weight_in_flight(self) -> float:
        return sum(flight.weight for flight in self.flights)

    def weights_in_flight_to(self) -> Tensor:
        weights = torch.zeros(len(self.flights), self.layout.num_clients, dtype=torch.float64)
        for flight, row in zip(self.flights, weights, strict=True):
            for part in self._landed(flight):
                for client in part.receivers:
                    row[client] += part.w
        return weights

    def sum_in_flight(self) -> Tensor:
        total = torch.zeros(self.clients.x.shape[1], dtype=torch.float64, device=self.clients.x.device)
        for flight in self.flights:
            for part in self._landed(flight):
                total += part.x.double() * len(part.receivers)
        return total

    def states(self, round_count: int) -> list[ClientState]:
        before: Sequence[Holdings | None] = self.before_drain or [None] * len(self.clients.block)
        clients = zip(self.clients.block, self.clients.losses, self._holdings(), before, strict=True)
        return [ClientState(client, round_count, loss, held, drained) for client, loss, held, drained in clients]

    def _holdings(self) -> list[Holdings]:
        """What each hosted client has, and what is in flight to it."""
        holdings = self.clients.holdings()
        for flight in self.flights:
            for part in self._landed(flight):
                for client in part.receivers:
                    parcel = Parcel(flight.due, flight.step, part.sender, part.w, part.x.cpu().clone())
                    holdings[client - self.clients.block.start].in_flight.append(parcel)
        return holdings


Content = tuple[tuple[int, float], ...]


def content(rows: Sequence[Row]) -> Content:
    """What tells frames of an exchange apart: whose models are in it, with which weights."""
    return tuple((row.sender, row.share) for row in rows)


def senders(rows: Sequence[Row]) -> list[int]:
    return [row.sender for row in rows]


def bytes_pushed(wire: FrameFormat, graph: Graph, clients: Iterable[int], gossip_steps: int) -> int:
    """What clients push to others in a round, x and w."""
    pushes = sum(len(graph.out[client]) - 1 for client in clients)
    return wire.bytes_sent(pushes * gossip_steps)


def resumed_flights(
    block: range,
    in_flight: Sequence[Sequence[Parcel]],
    like: Tensor,
    *,
    rounds_done: int,
    overlap: int,
    gossip_steps: int,
) -> Iterator[Flight]:
    """What a checkpoint says is in flight to each hosted client; exchanges that bring them nothing count too."""
    for due in range(max(rounds_done, overlap), rounds_done + overlap):
        for step in range(gossip_steps):
            parts = [
                Part(parcel.sender, (client,), parcel.x.to(like), parcel.w)
                for client, parcels in zip(block, in_flight, strict=True)
                for parcel in parcels
                if (parcel.due, parcel.step) == (due, step)
            ]
            parts.sort(key=lambda part: (part.sender, part.receivers))
            yield Flight(due - overlap, due, step, {}, None, sum(part.w for part in parts), parts)
