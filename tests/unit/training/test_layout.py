"""Layouts: contiguous blocks, and routes on which both ends agree."""

from graphs import draw
from hypothesis import given, settings
from hypothesis import strategies as st

from dfl_dist.topology.graph import make_graph
from dfl_dist.training.layout import lay_out, routes


@given(st.integers(1, 12), st.integers(0, 40), st.booleans())
def test_blocks_cover_all_clients_in_order(hosts: int, extra: int, coordinator: bool) -> None:
    layout = lay_out(hosts + extra, hosts + coordinator, coordinator=coordinator)
    assert [client for block in layout.blocks for client in block] == list(range(hosts + extra))
    lengths = [len(layout.blocks[rank]) for rank in layout.client_ranks]
    assert max(lengths) - min(lengths) <= 1
    assert len(layout.client_ranks) == hosts
    assert layout.largest_block == max(lengths)
    assert all(client in layout.blocks[rank] for client, rank in enumerate(layout.owners()))
    assert not coordinator or not layout.blocks[0]


@settings(max_examples=60)
@given(st.integers(1, 6), st.integers(0, 12), st.booleans(), st.integers(0, 99), st.booleans())
def test_what_one_rank_sends_is_what_the_other_expects(
    hosts: int, extra: int, coordinator: bool, seed: int, unequal: bool
) -> None:
    """Also with unequal weights, where a sender has a row for each weight."""
    clients = hosts + extra
    layout = lay_out(clients, hosts + coordinator, coordinator=coordinator)
    kind, weights = ("erdos_renyi", "metropolis") if unequal else ("random_directed", "out-degree")
    graph = make_graph(draw(kind, clients, seed=seed, out_degree=min(2, clients - 1)), weights)
    plans = [routes(graph, layout, rank) for rank in range(len(layout.blocks))]
    sent = {(a, b): rows for a, (outgoing, _) in enumerate(plans) for b, rows in outgoing.items()}
    expected = {(a, b): rows for b, (_, incoming) in enumerate(plans) for a, rows in incoming.items()}
    assert sent == expected
    for (a, b), rows in sent.items():
        assert [row.sender for row in rows] == sorted(row.sender for row in rows)
        assert len({(row.sender, row.share) for row in rows}) == len(rows), "a row for each weight of a sender"
        assert all(row.sender in layout.blocks[a] for row in rows)
        assert all(receiver in layout.blocks[b] for row in rows for receiver in row.receivers)
    assert all(list(incoming) == sorted(incoming) for _, incoming in plans)
    edges = sorted(
        (row.sender, receiver, row.share) for rows in sent.values() for row in rows for receiver in row.receivers
    )
    assert edges == sorted((i, j, graph.share(i, j)) for i, out in enumerate(graph.out) for j in out if j != i)
