"""Mixing: P·X and P·w, mass kept, bits that do not depend on how the rows are grouped; the server's average."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from graphs import draw, matrix
from hypothesis import given
from hypothesis import strategies as st

from dfl_dist.algorithms.mixing import Part, bundle, integer_scale, integer_sum, scale_rows, sum_in_order
from dfl_dist.topology.graph import Graph, make_graph


def random_graph(clients: int, seed: int, *, unequal: bool = False, out_degree: int = 3) -> Graph:
    kind, weights = ("erdos_renyi", "metropolis") if unequal else ("random_directed", "out-degree")
    neighbors = draw(kind, clients, seed=seed, out_degree=min(out_degree, clients - 1), p=0.4)
    return make_graph(neighbors, weights)


def mix(graph: Graph, x: torch.Tensor, w: torch.Tensor, groups: list[range]) -> tuple[torch.Tensor, torch.Tensor]:
    """The exchange, each group of clients on a rank of its own."""
    sums = []
    for receivers in groups:
        arrived: list[Part] = []
        for senders in groups:
            edges = [(i, j, graph.share(i, j)) for i in senders for j in graph.out[i] if j in receivers and i != j]
            rows, span = bundle(edges), slice(senders.start, senders.stop)
            rows_x, rows_w = x.new_empty(len(rows), x.shape[1]), w.new_empty(len(rows))
            scale_rows(rows, senders.start, x[span], w[span], out_x=rows_x, out_w=rows_w)
            contents = zip(rows, rows_x, rows_w.tolist(), strict=True)
            arrived += [Part(row.sender, row.receivers, content, weight) for row, content, weight in contents]

        def kept(receivers: range = receivers) -> Iterator[Part]:
            for client in receivers:
                share = graph.share(client, client)
                yield Part(client, (client,), x[client] * share, float(w[client]) * share)

        sum_x, sum_w = torch.empty_like(x[: len(receivers)]), torch.empty_like(w[: len(receivers)])
        sum_in_order(kept(), arrived, receivers.start, out_x=sum_x, out_w=sum_w)
        sums.append((sum_x, sum_w))
    return torch.cat([sum_x for sum_x, _ in sums]), torch.cat([sum_w for _, sum_w in sums])


@given(st.integers(1, 12), st.integers(0, 99), st.booleans())
def test_mixing_is_the_matrix_product(clients: int, seed: int, unequal: bool) -> None:
    graph, rng = random_graph(clients, seed, unequal=unequal), np.random.default_rng(seed)
    x, w = torch.from_numpy(rng.normal(size=(clients, 5))), torch.from_numpy(rng.uniform(0.1, 2, size=clients))
    P = matrix(graph)
    mixed_x, mixed_w = mix(graph, x, w, [range(clients)])
    np.testing.assert_allclose(mixed_x, P @ x.numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(mixed_w, P @ w.numpy(), rtol=1e-12)
    np.testing.assert_allclose(mixed_x.sum(0), x.sum(0), atol=1e-12, err_msg="the sum of x is kept")
    np.testing.assert_allclose(float(mixed_w.sum()), float(w.sum()), rtol=1e-14)


@pytest.mark.parametrize("unequal", [False, True])
def test_bits_do_not_depend_on_the_layout(unequal: bool) -> None:
    graph = random_graph(8, 3, unequal=unequal, out_degree=5)
    x, w = torch.randn(8, 1001, generator=torch.Generator().manual_seed(0)), torch.rand(8, dtype=torch.float64) + 0.1
    layouts = [[range(8)], [range(3), range(3, 8)], [range(client, client + 1) for client in range(8)]]
    results = [mix(graph, x, w, groups) for groups in layouts]
    for mixed_x, mixed_w in results[1:]:
        assert torch.equal(mixed_x, results[0][0])
        assert torch.equal(mixed_w, results[0][1])


@pytest.mark.parametrize("size", [1e-200, 1e-3, 1.0, 1e30])
def test_integer_sums_are_exact_enough_and_do_not_depend_on_the_order(size: float) -> None:
    rng = np.random.default_rng(0)
    x, shares = torch.from_numpy(rng.normal(size=(7, 300)) * size), rng.dirichlet(np.ones(7))
    scale = integer_scale(float(x.abs().max()))
    total = integer_sum(x, shares.tolist(), scale)
    np.testing.assert_allclose(total.double() / scale, shares @ x.numpy(), rtol=0, atol=1e-15 * float(x.abs().max()))
    parts = integer_sum(x[4:], shares[4:].tolist(), scale) + integer_sum(x[:4], shares[:4].tolist(), scale)
    assert torch.equal(parts, total)


def test_integer_scale_leaves_room() -> None:
    for largest in (0.0, 5e-324, 1.0, 1.5, 2.0, 1e300, 3e38):
        assert 0 < integer_scale(largest) < float("inf")
        assert largest * integer_scale(largest) <= 2.0**61
