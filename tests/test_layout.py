"""Layouts: contiguous blocks, and routes on which both ends agree."""

from hypothesis import given
from hypothesis import strategies as st

from dfl_dist.layout import routes, spread
from dfl_dist.randomness import stream
from dfl_dist.topology import random_directed


@given(st.integers(1, 12), st.integers(0, 40), st.booleans())
def test_blocks_cover_all_clients_in_order(hosts: int, extra: int, coordinator: bool) -> None:
    layout = spread(hosts + extra, hosts + coordinator, coordinator=coordinator)
    assert [client for block in layout.blocks for client in block] == list(range(hosts + extra))
    lengths = [len(layout.blocks[rank]) for rank in layout.client_ranks]
    assert max(lengths) - min(lengths) <= 1
    assert len(layout.client_ranks) == hosts
    assert layout.largest_block == max(lengths)
    assert all(client in layout.blocks[rank] for client, rank in enumerate(layout.owners()))
    assert not coordinator or not layout.blocks[0]


@given(st.integers(1, 6), st.integers(0, 12), st.booleans(), st.integers(0, 99))
def test_what_one_rank_sends_is_what_the_other_expects(hosts: int, extra: int, coordinator: bool, seed: int) -> None:
    clients = hosts + extra
    layout = spread(clients, hosts + coordinator, coordinator=coordinator)
    graph = random_directed(clients, stream(seed, "graph"), out_degree=min(2, clients - 1))
    plans = [routes(graph, layout, rank) for rank in range(len(layout.blocks))]
    sent = {(a, b): senders for a, (outgoing, _) in enumerate(plans) for b, senders in outgoing.items()}
    expected = {(a, b): senders for b, (_, incoming) in enumerate(plans) for a, senders in incoming.items()}
    assert sent == expected
    assert all(a != b and senders == sorted(senders) for (a, b), senders in sent.items())
    assert all(list(incoming) == sorted(incoming) for _, incoming in plans)
    crossing = {(i, j) for i, row in enumerate(graph.out) for j in row if layout.owners()[i] != layout.owners()[j]}
    assert crossing == {
        (i, j) for (_, b), senders in sent.items() for i in senders for j in graph.out[i] if j in layout.blocks[b]
    }
