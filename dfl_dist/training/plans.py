"""The plan of a round: its graph, or that there is no such round; how rank 0 makes it and how it is told."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path

from dfl_dist.distributed.control import Control
from dfl_dist.topology.graph import WEIGHTS, Graph, RoundGraph, Server
from dfl_dist.topology.schedule import Losses, Schedule

NO_ROUND = 0
MOST_CHARS = 200  # of the reason for a stop
WEIGHT_NAMES = ("server", *WEIGHTS)  # the decision to go on is the place of the graph's weights here, from 1


def encode(graph: RoundGraph | None) -> tuple[int, list[int]]:
    """A decision and numbers: how many lists of clients follow, their lengths, their clients."""
    if graph is None:
        return NO_ROUND, []
    lists = graph.out if isinstance(graph, Graph) else (graph.clients,)
    body = [len(lists), *map(len, lists), *(client for row in lists for client in row)]
    return 1 + WEIGHT_NAMES.index(graph.weights), body


def decode(decision: int, body: list[int]) -> RoundGraph | None:
    """The graph of a plan, as `encode` made it; None where there is no such round."""
    if decision == NO_ROUND:
        return None
    count, *numbers = body
    sizes, entries = numbers[:count], iter(numbers[count:])
    lists = tuple(tuple(islice(entries, size)) for size in sizes)
    weights = WEIGHT_NAMES[decision - 1]
    return Graph(lists, weights) if weights in WEIGHTS else Server(lists[0])


class Planner:
    """Rank 0: draws the graph of each round, and decides whether there is to be such a round."""

    def __init__(
        self, control: Control, schedule: Schedule, folder: Path, wish_to_stop: Callable[[], str | None]
    ) -> None:
        self.control, self.schedule, self.folder, self.wish_to_stop = control, schedule, folder, wish_to_stop
        self.graphs: dict[int, RoundGraph] = {}  # drawn, and not recorded yet
        self.announced: dict[int, RoundGraph | None] = {}
        self.stop_reason: str | None = None

    @property
    def sees_ahead(self) -> bool:
        """Whether the next graph can be drawn while the clients train."""
        return not self.schedule.needs_losses

    def draw(self, round_idx: int, losses: Losses) -> None:
        self.graphs[round_idx] = self.schedule.graph(round_idx, losses if self.schedule.needs_losses else None)

    def announce(self, round_idx: int, *, sound: bool, first: bool) -> None:
        """Start telling everybody the plan of a round that was drawn; the first round of a start always takes place."""
        if not first:
            self.stop_reason = self.stop_reason or self.wish_to_stop() or self._stop_file()
        goes_on = sound and self.stop_reason is None
        self.announced[round_idx] = self.graphs[round_idx] if goes_on else None
        self.control.send_plan(round_idx, *encode(self.announced[round_idx]))

    def _stop_file(self) -> str | None:
        """Who asks for a stop by a file: it may say so itself, as the one does that a launcher writes."""
        try:
            text = (self.folder / "STOP").read_text(errors="replace")
        except FileNotFoundError:
            return None
        except OSError:  # a folder of that name
            text = ""
        return " ".join(text.split())[:MOST_CHARS] or "a STOP file"
