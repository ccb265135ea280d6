"""The role of every rank but rank 0: receive plans, send reports; the first of a host shows it how the run goes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from dfl_dist.distributed.control import Control
from dfl_dist.errors import RunFaultError
from dfl_dist.run_folder.metrics import RankReport
from dfl_dist.topology.graph import RoundGraph
from dfl_dist.training.plans import decode
from dfl_dist.training.screen import End, HostScreen

CHECKSUM_CHARS = 65  # a sha256 in hexadecimal and a blank


class Follower:
    def __init__(self, control: Control, *, rounds: int, largest_block: int, screen: HostScreen | None = None) -> None:
        self.control, self.rounds, self.largest_block = control, rounds, largest_block
        self.screen = screen

    def first_graph(self, start: int) -> RoundGraph:
        for round_idx in range(start, min(start + 1 + self.control.ahead, self.rounds)):
            self.control.expect_plan(round_idx)
        graph = decode(*self.control.receive_plan(start))
        assert graph is not None, "the first round of a start always takes place"
        return graph

    def begin(self, round_idx: int) -> None:
        if self.screen:
            self.screen.show(round_idx)
        planned = round_idx + 1 + self.control.ahead
        if planned < self.rounds:
            self.control.expect_plan(planned)

    def announce(self, round_idx: int) -> None:
        """Nothing: plans come from rank 0."""

    def hand_in(self, round_idx: int, report: RankReport) -> None:
        self.control.send_report(round_idx, report.pack())

    def next_graph(self, round_idx: int) -> RoundGraph | None:
        if round_idx + 1 == self.rounds:
            return None
        return decode(*self.control.receive_plan(round_idx + 1))

    def check_sound(self, round_idx: int) -> None:
        if fault := self.control.broadcast_text("", "its verdict on the round"):
            self.control.drop_plans()
            raise RunFaultError(fault)

    def record(self, round_idx: int, scores: Mapping[str, float]) -> None:
        if self.screen:
            self.screen.progress.note({"round": round_idx, **scores})

    def has_enough(self) -> bool:
        return bool(self.control.broadcast(torch.tensor([False]), "whether the accuracy is enough"))

    def amend(self, scores: Mapping[str, float], *, drained: bool) -> None:
        """Nothing: rank 0 records."""

    def complete(self, folder: Path, checksums: Sequence[str]) -> None:
        self.control.gather_text(" ".join(checksums), "write a checkpoint", room=CHECKSUM_CHARS * self.largest_block)

    def finish(self, mean: Tensor, scores: Mapping[str, float]) -> None:
        end = End.from_text(self.control.broadcast_text("", "how the run ended"))
        if self.screen:
            self.screen.tell_end(end, scores)

    def close(self) -> None:
        if self.screen:
            self.screen.progress.close()
