"""What happens between the local steps of two rounds: the push-sum exchange, or the average of a server."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from dfl_dist.clients import Clients
from dfl_dist.control import Control
from dfl_dist.layout import Layout, Routes, routes
from dfl_dist.mixing import Part, Row, add, integer_scale, integer_sum, scale_rows, sum_in_order
from dfl_dist.topology import Graph, Server
from dfl_dist.transport import Frame, Transport


class Exchange(Protocol):
    """The part of a round in which clients learn from one another; every rank has one, also one without clients."""

    def expect(self, round_idx: int, graph: Any) -> None:
        """Prepare the exchange of a round, before its local steps."""

    def mix(self, round_idx: int, graph: Any) -> None:
        """Do the exchange of a round, after its local steps."""

    def drain(self) -> None:
        """Mix in what is still in flight, at the end of a run."""

    def bytes_sent(self, graph: Any) -> int:
        """What this rank's clients move in a round, whatever the layout."""

    def weight_in_flight(self) -> float:
        """The part of Σ w that this rank's clients have pushed and that is not mixed in yet."""

    def weights_arriving(self) -> Tensor:
        """What is in flight to each of all clients from every exchange, as far as hosted here: [exchanges, n]."""

    def sum_in_flight(self) -> Tensor:
        """The part of Σ x that is in flight to this rank's clients: [d] float64."""

    def states(self) -> list[dict[str, Any]]:
        """What a checkpoint must keep of each hosted client beside its losses."""

    def flush(self) -> None:
        """Wait until everything sent has left this rank."""


@dataclass
class Flight:
    """What was pushed in one exchange and is not mixed in yet."""

    due: int  # the round at whose end it is mixed in
    step: int
    incoming: Routes
    hosted: Frame | None  # what the clients of this rank pushed to one another
    weight: float
    landed: list[Part] | None = None  # set when it had to be looked at before it is due


class PushSum:
    """The push-sum exchange of a rank's clients.

    A client keeps its own share and mixes it in at once. With `overlap` τ, what a gossip step of round t pushes is
    mixed in by the same step of round t + τ.
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
        rounds_done: int = 0,
    ) -> None:
        self.clients, self.transport, self.layout, self.rank = clients, transport, layout, rank
        self.overlap, self.gossip_steps = overlap, gossip_steps
        self.capacity = overlap * gossip_steps  # exchanges in flight after a round
        self.graph: Graph | None = None  # the one that the routes are for
        self.outgoing: Routes = {}
        self.incoming: Routes = {}
        self.scaled: dict[tuple[int, float], Tensor] = {}  # p·x of this exchange, by client and weight
        self.scratch = torch.empty(clients.x.shape[1], dtype=clients.x.dtype, device=clients.x.device)
        self.flights = deque(self._resumed_flights(rounds_done))
        self.before_drain: list[dict[str, Any]] = []

    def expect(self, round_idx: int, graph: Graph) -> None:
        if graph != self.graph:
            self.graph, (self.outgoing, self.incoming) = graph, routes(graph, self.layout, self.rank)
        self._expect(round_idx, 0)

    def mix(self, round_idx: int, graph: Graph) -> None:
        """Push (p·x, p·w) to the out-neighbours, sum what is due in the order of the sending client; so many times."""
        for step in range(self.gossip_steps):
            if step > 0:
                self._expect(round_idx, step)
            self.flights.append(self._push(round_idx, step))
            due = self.flights.popleft() if len(self.flights) > self.capacity else None
            clients = self.clients
            arrived = self._arrived(due) if due else ()
            sum_in_order(self._kept(graph), arrived, clients.block.start, out_x=clients.spare_x, out_w=clients.spare_w)
            clients.x, clients.spare_x = clients.spare_x, clients.x
            clients.w, clients.spare_w = clients.spare_w, clients.w

    def drain(self) -> None:
        if not self.overlap:
            return
        self.before_drain = self.states()  # so that a run can be made longer as if it had not ended here
        for flight in self.flights:
            for part in self._landed(flight):
                add(part, self.clients.block.start, self.clients.x, self.clients.w)
        self.flights.clear()

    def bytes_sent(self, graph: Graph) -> int:
        """What these clients push to others, x and w."""
        row_bytes = self.clients.x.shape[1] * self.clients.x.dtype.itemsize + 8
        return sum(len(graph.out[client]) - 1 for client in self.clients.block) * row_bytes * self.gossip_steps

    def flush(self) -> None:
        self.transport.flush(keep=0)

    # One exchange.

    def _expect(self, round_idx: int, step: int) -> None:
        """Post the receives of an exchange."""
        others = [(rank, senders(rows)) for rank, rows in self.incoming.items() if rank != self.rank]
        self.transport.expect(round_idx, step, others)

    def _push(self, round_idx: int, step: int) -> Flight:
        """Start sending to every rank that hosts out-neighbours; ranks that get the same rows get the same frame."""
        self.transport.flush(keep=self.capacity)
        self.scaled.clear()
        frames: dict[tuple[tuple[int, float], ...], Frame] = {}
        addressed, weight = {}, 0.0
        for receiver, rows in self.outgoing.items():
            content = tuple((row.sender, row.share) for row in rows)
            if content not in frames:
                frames[content] = self._frame(rows, round_idx, step)
            addressed[receiver] = frames[content]
            weight += sum(w * len(row.receivers) for row, w in zip(rows, frames[content].w.tolist(), strict=True))
        hosted = addressed.pop(self.rank, None)
        self.transport.push(list(addressed.items()))
        return Flight(round_idx + self.overlap, step, self.incoming, hosted, weight)

    def _frame(self, rows: Sequence[Row], round_idx: int, step: int) -> Frame:
        clients = self.clients
        frame = Frame.empty(len(rows), clients.x.shape[1], clients.x.dtype, clients.x.device)
        scale_rows(rows, clients.block.start, clients.x, clients.w, out_x=frame.x, out_w=frame.w)
        self.scaled |= {(row.sender, row.share): x for row, x in zip(rows, frame.x, strict=True)}
        return frame.seal(round_idx, step, self.rank, senders(rows))

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
            frame = flight.hosted if rank == self.rank else next(arrivals)
            assert frame is not None
            for row, x, w in zip(rows, frame.x, frame.w.tolist(), strict=True):
                yield Part(row.sender, row.receivers, x, w)
        assert next(arrivals, None) is None, "a frame was left over"

    # What is in flight.

    def _landed(self, flight: Flight) -> list[Part]:
        """Wait for a flight before it is due, and keep what it brought."""
        if flight.landed is None:
            flight.landed = [part._replace(x=part.x.clone()) for part in self._arrived(flight)]
        return flight.landed

    def weight_in_flight(self) -> float:
        return sum(flight.weight for flight in self.flights)

    def weights_arriving(self) -> Tensor:
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

    def states(self) -> list[dict[str, Any]]:
        states = self.clients.states()
        for flight in self.flights:
            for part in self._landed(flight):
                parcel = {"due": flight.due, "step": flight.step, "sender": part.sender, "w": part.w}
                for client in part.receivers:
                    states[client - self.clients.block.start]["in_flight"].append(parcel | {"x": part.x.cpu().clone()})
        for state, before in zip(states, self.before_drain, strict=False):
            state["before_drain"] = before
        return states

    def _resumed_flights(self, rounds_done: int) -> Iterator[Flight]:
        """What a checkpoint says is in flight to the hosted clients; exchanges that bring them nothing count too."""
        like = self.clients.x
        for due in range(max(rounds_done, self.overlap), rounds_done + self.overlap):
            for step in range(self.gossip_steps):
                parts = [
                    Part(parcel["sender"], (client,), parcel["x"].to(like), parcel["w"])
                    for client, parcels in zip(self.clients.block, self.clients.arriving, strict=True)
                    for parcel in parcels
                    if (parcel["due"], parcel["step"]) == (due, step)
                ]
                parts.sort(key=lambda part: (part.sender, part.receivers))
                yield Flight(due, step, {}, None, sum(part.w for part in parts), parts)


def senders(rows: Sequence[Row]) -> list[int]:
    return [row.sender for row in rows]


class ServerAverage:
    """x_i ← x + server_lr · (Σ_{j∈S} n_j x_j / Σ_{j∈S} n_j − x) for all clients i, with the old model x.

    S are those that trained, n_j the sizes of their shards. Nothing is ever in flight and w stays 1. All ranks add up
    integers, so the layout does not show in the bits.
    """

    def __init__(self, clients: Clients, control: Control, sizes: Sequence[int], *, server_lr: float) -> None:
        self.clients, self.control, self.sizes, self.server_lr = clients, control, sizes, server_lr
        self.old = torch.empty_like(clients.x[:1])

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

    def drain(self) -> None:
        """Nothing is in flight."""

    def bytes_sent(self, graph: Server) -> int:
        """What a server would move: the model to each client that trains, and back."""
        trained = sum(client in self.clients.block for client in graph.clients)
        return 2 * trained * self.clients.x.shape[1] * self.clients.x.dtype.itemsize

    def weight_in_flight(self) -> float:
        return 0.0

    def weights_arriving(self) -> Tensor:
        return torch.zeros(0, len(self.sizes), dtype=torch.float64)

    def sum_in_flight(self) -> Tensor:
        return torch.zeros(self.clients.x.shape[1], dtype=torch.float64, device=self.clients.x.device)

    def states(self) -> list[dict[str, Any]]:
        return self.clients.states()

    def flush(self) -> None:
        """Nothing was sent that has not arrived."""
