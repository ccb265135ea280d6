"""The ledger: what every w must be, from the graphs alone."""

import numpy as np
from graphs import draw, matrix
from hypothesis import given, settings
from hypothesis import strategies as st

from dfl_dist.algorithms.ledger import Ledger
from dfl_dist.topology.graph import Server, make_graph


@settings(max_examples=60)
@given(st.integers(1, 8), st.integers(0, 99), st.integers(0, 3), st.integers(1, 3))
def test_the_ledger_keeps_all_mass(clients: int, seed: int, overlap: int, gossip_steps: int) -> None:
    """Against matrices: the diagonal of P at once, the rest after so many rounds."""
    ledger = Ledger([1.0] * clients, [], overlap=overlap, gossip_steps=gossip_steps)
    w, pushed = np.ones(clients), {}
    for t in range(6):
        graph = make_graph(draw("random_directed", clients, seed=7 * seed + t, out_degree=min(3, clients - 1)))
        P = matrix(graph)
        own = np.diag(np.diag(P))
        for step in range(gossip_steps):
            pushed[t, step] = (P - own) @ w
            w = own @ w + pushed.get((t - overlap, step), 0)
        ledger.w = ledger.expect(graph, drained=False)
        np.testing.assert_allclose(ledger.w, w, rtol=1e-12)
        np.testing.assert_allclose(sum(ledger.w) + sum(map(sum, ledger.in_flight)), clients, rtol=1e-12)
    assert len(ledger.in_flight) == min(overlap, 6) * gossip_steps
    np.testing.assert_allclose(sum(ledger.expect(graph, drained=True)), clients, rtol=1e-12)
    assert not ledger.in_flight


def test_a_server_leaves_the_weights_alone() -> None:
    ledger = Ledger([1.0] * 4, [], overlap=0, gossip_steps=1)
    assert ledger.expect(Server((1, 2)), drained=True) == [1.0] * 4
