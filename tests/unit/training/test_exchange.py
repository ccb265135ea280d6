"""The push-sum exchange of one rank: what it keeps, and for how long."""

import gc
import weakref

import torch
from nobody_else import NobodyElse

from dfl_dist.run_folder.checkpoint import Parcel
from dfl_dist.topology.graph import Graph, make_graph
from dfl_dist.training.clients import Clients
from dfl_dist.training.exchange import PushSum, resumed_flights
from dfl_dist.training.layout import lay_out


def ring(clients: int) -> Graph:
    return make_graph([[(client + 1) % clients] for client in range(clients)])


def hosted(clients: int, size: int) -> Clients:
    found = Clients.at_start(range(clients), torch.zeros(size), [])
    found.x.copy_(torch.arange(clients * size, dtype=torch.float32).view(clients, size))
    return found


def test_what_was_in_flight_when_a_run_resumed_is_let_go_once_mixed_in() -> None:
    clients = hosted(2, 3)
    in_flight = [[Parcel(due=4, step=0, sender=1, w=0.5, x=torch.ones(3))], []]
    kept = weakref.ref(in_flight[0][0].x)
    flights = list(resumed_flights(range(2), in_flight, clients.x, rounds_done=4, overlap=1, gossip_steps=1))
    exchange = PushSum(clients, NobodyElse(), lay_out(2, 1), 0, overlap=1, in_flight=flights)
    del in_flight, flights
    assert kept() is not None
    exchange.expect(4, ring(2))
    exchange.mix(4, ring(2))
    gc.collect()
    assert kept() is None


def test_frames_are_used_again_where_nothing_is_in_flight() -> None:
    clients = hosted(4, 1000)
    exchange = PushSum(clients, NobodyElse(), lay_out(4, 1), 0)
    places = set()
    for round_idx in range(5):
        exchange.expect(round_idx, ring(4))
        exchange.mix(round_idx, ring(4))
        places |= {buffer.data_ptr() for buffer in exchange.pushed}
    assert len(places) == 1


def test_frames_in_flight_are_left_alone() -> None:
    clients = hosted(4, 1000)
    exchange = PushSum(clients, NobodyElse(), lay_out(4, 1), 0, overlap=1)
    exchange.expect(0, ring(4))
    exchange.mix(0, ring(4))
    flying = exchange.flights[0].hosted
    assert flying is not None
    before = flying.x.clone()
    clients.x.add_(1.0)
    exchange.expect(1, ring(4))
    exchange.flights[-1].landed = None
    assert torch.equal(flying.x, before)
    mixed = clients.x.clone()
    exchange.mix(1, ring(4))
    assert torch.equal(clients.x[1], mixed[1] * 0.5 + before[0])
