"""Which rank hosts which clients: contiguous blocks, sizes that differ by at most one."""

from dataclasses import dataclass
from itertools import pairwise

from dfl_dist.algorithms.mixing import Row, bundle
from dfl_dist.topology.graph import Graph


@dataclass(frozen=True)
class Layout:
    """The clients of each rank; a coordinator's block is empty."""

    blocks: tuple[range, ...]

    @property
    def num_clients(self) -> int:
        return sum(len(block) for block in self.blocks)

    @property
    def client_ranks(self) -> list[int]:
        """The ranks that host clients, in client order."""
        return [rank for rank, block in enumerate(self.blocks) if block]

    @property
    def largest_block(self) -> int:
        return max(len(block) for block in self.blocks)

    def owners(self) -> list[int]:
        """The rank of each client."""
        return [rank for rank, block in enumerate(self.blocks) for _ in block]


def lay_out(num_clients: int, world_size: int, *, coordinator: bool = False) -> Layout:
    """Lay the clients out over the ranks, rank 0 left empty where it only coordinates."""
    idle = 1 if coordinator else 0
    hosts = world_size - idle
    bounds = [num_clients * host // hosts for host in range(hosts + 1)]
    return Layout((range(0),) * idle + tuple(range(low, high) for low, high in pairwise(bounds)))


Routes = dict[int, list[Row]]  # a rank, and the rows that go there or come from there


def routes(graph: Graph, layout: Layout, rank: int) -> tuple[Routes, Routes]:
    """The rows that this rank's clients push to those of each rank, itself included, and those that come from each."""
    owners, mine = layout.owners(), layout.blocks[rank]
    outgoing: dict[int, list[tuple[int, int, float]]] = {}
    incoming: dict[int, list[tuple[int, int, float]]] = {}
    for client in mine:
        for receiver, share in zip(graph.out[client], graph.shares[client], strict=True):
            if receiver != client:
                outgoing.setdefault(owners[receiver], []).append((client, receiver, share))
        for sender, share in graph.in_neighbors[client]:
            incoming.setdefault(owners[sender], []).append((sender, client, share))
    return bundle_each(outgoing), bundle_each(incoming)


def bundle_each(edges: dict[int, list[tuple[int, int, float]]]) -> Routes:
    return {rank: bundle(edges[rank]) for rank in sorted(edges)}
