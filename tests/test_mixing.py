"""Mixing: P·X and P·w, mass kept, and bits that do not depend on how the rows are grouped."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from dfl_dist.mixing import add_rows, expected_push_weights, scale_rows
from dfl_dist.randomness import stream
from dfl_dist.topology import Graph, random_directed


def mix(graph: Graph, x: torch.Tensor, w: torch.Tensor, groups: list[range]) -> tuple[torch.Tensor, torch.Tensor]:
    """The exchange, each group of clients on a rank of its own."""
    sums = [(torch.zeros_like(x[: len(group)]), torch.zeros(len(group), dtype=torch.float64)) for group in groups]
    for senders in groups:
        span = slice(senders.start, senders.stop)
        rows_x, rows_w = torch.empty_like(x[span]), torch.empty_like(w[span])
        scale_rows(graph, senders, x[span], w[span], out_x=rows_x, out_w=rows_w)
        for receivers, (sum_x, sum_w) in zip(groups, sums, strict=True):
            add_rows(graph, senders, rows_x, rows_w, receivers, sum_x, sum_w)
    return torch.cat([sum_x for sum_x, _ in sums]), torch.cat([sum_w for _, sum_w in sums])


@given(st.integers(1, 12), st.integers(0, 99))
def test_mixing_is_the_matrix_product(clients: int, seed: int) -> None:
    graph = random_directed(clients, stream(seed, "graph"), out_degree=min(3, clients - 1))
    rng = np.random.default_rng(seed)
    x, w = torch.from_numpy(rng.normal(size=(clients, 5))), torch.from_numpy(rng.uniform(0.1, 2, size=clients))
    P = np.zeros((clients, clients))
    for sender, receivers in enumerate(graph.out):
        P[list(receivers), sender] = 1 / len(receivers)
    mixed_x, mixed_w = mix(graph, x, w, [range(clients)])
    np.testing.assert_allclose(mixed_x, P @ x.numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(mixed_w, P @ w.numpy(), rtol=1e-12)
    np.testing.assert_allclose(mixed_x.sum(0), x.sum(0), atol=1e-12, err_msg="the sum of x is kept")
    np.testing.assert_allclose(float(mixed_w.sum()), float(w.sum()), rtol=1e-14)
    np.testing.assert_allclose(mixed_w, expected_push_weights(graph, w.tolist()), rtol=1e-14)


def test_bits_do_not_depend_on_the_layout() -> None:
    graph = random_directed(8, stream(3, "graph"), out_degree=5)
    x, w = torch.randn(8, 1001, generator=torch.Generator().manual_seed(0)), torch.rand(8, dtype=torch.float64) + 0.1
    layouts = [[range(8)], [range(3), range(3, 8)], [range(client, client + 1) for client in range(8)]]
    results = [mix(graph, x, w, groups) for groups in layouts]
    for mixed_x, mixed_w in results[1:]:
        assert torch.equal(mixed_x, results[0][0])
        assert torch.equal(mixed_w, results[0][1])
