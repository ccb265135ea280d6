"""What the ranks report to rank 0: received without anybody waiting, judged round by round."""

from dfl_dist.algorithms.ledger import Ledger
from dfl_dist.distributed.control import Control, Operation
from dfl_dist.run_folder.metrics import RankReport
from dfl_dist.topology.graph import RoundGraph
from dfl_dist.topology.schedule import Losses
from dfl_dist.training.judge import Verdict, judge
from dfl_dist.training.layout import Layout


class Inbox:
    """The reports of all ranks; `ledger.w` and `losses` are the clients' after the last round that was read."""

    def __init__(self, control: Control, layout: Layout, ledger: Ledger, losses: Losses) -> None:
        self.control, self.layout, self.ledger, self.losses = control, layout, ledger, losses
        self.expected: dict[int, list[Operation]] = {}
        self.own: dict[int, RankReport] = {}  # of rank 0 itself
        self.reports: dict[int, list[RankReport]] = {}  # read, and not recorded yet

    def expect(self, round_idx: int) -> None:
        """Post the receives of a round's reports."""
        sizes = [RankReport.size(len(block)) for block in self.layout.blocks]
        self.expected[round_idx] = self.control.expect_reports(round_idx, sizes)

    def unread(self, round_idx: int) -> list[int]:
        """The rounds up to this one that are not read yet."""
        return sorted(number for number in self.expected if number <= round_idx)

    def read(self, round_idx: int, graph: RoundGraph, *, drained: bool) -> Verdict:
        """Take in a round's reports, in the order of rounds, and judge them."""
        others = self.control.read_reports(self.expected.pop(round_idx))
        reports = [self.own.pop(round_idx), *map(RankReport.unpack, others)]
        weights = self.ledger.expect(graph, drained=drained)
        verdict = judge(round_idx, reports, graph.clients, weights, self.layout.owners())
        self.reports[round_idx] = reports
        self.ledger.w, self.losses = verdict.push_weights, verdict.losses
        return verdict
