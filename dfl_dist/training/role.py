"""What a rank does in a round beside training its clients: the leader (rank 0) plans, judges and records."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from torch import Tensor

from dfl_dist.run_folder.metrics import RankReport
from dfl_dist.topology.graph import RoundGraph


class Role(Protocol):
    """The part of a round that differs between rank 0 and the others; every call is made by all ranks."""

    def first_graph(self, start: int) -> RoundGraph:
        """The graph of the first round of this start."""

    def begin(self, round_idx: int) -> None:
        """Before the local steps: whatever can be posted or drawn ahead."""

    def announce(self, round_idx: int) -> None:
        """After the local steps: the plan that was drawn ahead goes out."""

    def hand_in(self, round_idx: int, report: RankReport) -> None:
        """This rank's report of a round."""

    def next_graph(self, round_idx: int) -> RoundGraph | None:
        """The graph of the round after this one; None ends the run."""

    def check_sound(self, round_idx: int) -> None:
        """Raise a fault of this round on all ranks, before it is evaluated or saved."""

    def record(self, round_idx: int, scores: Mapping[str, float]) -> None:
        """Write down the rounds up to this one, which may have been evaluated."""

    def has_enough(self) -> bool:
        """Whether the run ends after the round that was recorded last, as its accuracy and `stop` say."""

    def amend(self, scores: Mapping[str, float], *, drained: bool) -> None:
        """Put other scores into the last recorded round."""

    def complete(self, folder: Path, checksums: Sequence[str]) -> None:
        """Declare a checkpoint complete when every rank has written its clients."""

    def finish(self, mean: Tensor, scores: Mapping[str, float]) -> None:
        """Write the results of the run."""

    def close(self) -> None:
        """Let go of files and the screen, however the run ended."""
