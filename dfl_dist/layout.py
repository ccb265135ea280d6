"""Which rank hosts which clients: contiguous blocks, sizes that differ by at most one."""

from dataclasses import dataclass
from itertools import pairwise

from dfl_dist.topology import Graph


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


def spread(num_clients: int, world_size: int, *, coordinator: bool = False) -> Layout:
    """Lay the clients out over the ranks, rank 0 left empty where it only coordinates."""
    idle = 1 if coordinator else 0
    hosts = world_size - idle
    bounds = [num_clients * host // hosts for host in range(hosts + 1)]
    return Layout((range(0),) * idle + tuple(range(low, high) for low, high in pairwise(bounds)))


def routes(graph: Graph, layout: Layout, rank: int) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Which of this rank's clients push to each other rank, and which clients of each other rank push here."""
    owners, mine = layout.owners(), layout.blocks[rank]
    outgoing: dict[int, list[int]] = {}
    for client in mine:
        for receiver in sorted({owners[peer] for peer in graph.out[client]} - {rank}):
            outgoing.setdefault(receiver, []).append(client)
    senders = sorted({peer for client in mine for peer in graph.in_neighbors[client]} - set(mine))
    incoming: dict[int, list[int]] = {}
    for peer in senders:
        incoming.setdefault(owners[peer], []).append(peer)
    return dict(sorted(outgoing.items())), incoming
