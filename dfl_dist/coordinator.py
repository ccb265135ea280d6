"""What rank 0 does beside being a client: sample graphs a round ahead, decide, read scalars, record rounds."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dfl_dist import checkpoint
from dfl_dist.connectivity import connected_within
from dfl_dist.control import Control, Decision, Operation, Plan
from dfl_dist.layout import Layout
from dfl_dist.metrics import CURES, LineFile, RankReport, find_fault, plain, read_lines, record
from dfl_dist.mixing import Ledger
from dfl_dist.progress import UNCONNECTED, Progress, count, summary
from dfl_dist.run_folder import write_lines
from dfl_dist.schedule import Losses, Schedule, read_graphs
from dfl_dist.topology import RoundGraph

log = logging.getLogger(__name__)


class Coordinator:
    """Rank 0's extra part.

    Nobody waits for it: graphs are sampled a round ahead and scalars are read a round later, with overlap so many
    rounds more. Graphs chosen by loss are the one exception: the next graph depends on all losses of the round, so it
    is sampled after the round, and everybody waits for it.
    """

    def __init__(
        self,
        control: Control,
        schedule: Schedule,
        layout: Layout,
        folder: Path,
        *,
        rounds: int,
        rounds_done: int,
        lr_of: Callable[[int], float],
        ledger: Ledger,
        losses: Losses,
        listeners: Sequence[Callable[[dict[str, Any]], None]] = (),
    ) -> None:
        self.control, self.schedule, self.layout, self.folder = control, schedule, layout, folder
        self.rounds, self.lr_of, self.started = rounds, lr_of, time.monotonic()
        self.listeners = listeners  # told of each round when it is recorded
        self.ledger, self.losses = ledger, losses  # the clients' w and losses after the last round that was read
        self.plans: dict[int, Plan] = {}
        self.fault: str | None = None
        self.stop_reason: str | None = None
        self.graphs: dict[int, RoundGraph] = {}
        self.pending: dict[int, list[Operation]] = {}
        self.own: dict[int, RankReport] = {}
        self.reports: dict[int, list[RankReport]] = {}
        self.next_line = rounds_done
        self.first_loss, self.warned = 0.0, False
        self.metrics, self.topology = LineFile(folder / "metrics.jsonl"), LineFile(folder / "topology.jsonl")
        self.progress = Progress(done=rounds_done, rounds=rounds)

    @property
    def sees_ahead(self) -> bool:
        """Whether the next graph can be sampled while the clients train."""
        return not self.schedule.needs_losses

    def look_ahead(self, round_idx: int) -> None:
        """Sample the graph of a round to come."""
        self.graphs[round_idx] = self.schedule.graph(round_idx, self.losses if self.schedule.needs_losses else None)

    def announce(self, round_idx: int, wish: str | None) -> None:
        """Decide whether there is to be such a round, and start telling everybody."""
        if self.stop_reason is None and self.next_line < round_idx:  # the first round of a start always takes place
            self.stop_reason = wish or ("a STOP file" if (self.folder / "STOP").exists() else None)
        if self.fault or self.stop_reason:
            plan = Plan(Decision.ABORT if self.fault else Decision.STOP)
        else:
            plan = Plan(Decision.GO_ON, self.graphs[round_idx])
        self.plans[round_idx] = plan
        self.control.send_plan(round_idx, plan)

    def expect(self, round_idx: int) -> None:
        """Post the receives of a round's scalars."""
        sizes = [RankReport.size(len(block)) for block in self.layout.blocks]
        self.pending[round_idx] = self.control.expect_reports(round_idx, sizes)

    def take_own(self, round_idx: int, report: RankReport) -> None:
        """Rank 0's own scalars; reads and records a round before, whose scalars must have come by now."""
        self.own[round_idx] = report
        self.read(round_idx - 1 - self.control.ahead)
        self.write(round_idx - 1 - self.control.ahead)

    def read(self, round_idx: int) -> str | None:
        """Take in every rank's scalars up to a round; return what is wrong, if anything."""
        for number in sorted(number for number in self.pending if number <= round_idx):
            others = self.control.read_reports(self.pending.pop(number))
            reports = [self.own.pop(number), *map(RankReport.unpack, others)]
            graph = self.graphs[number]
            expected = self.ledger.expect(graph, drained=number + 1 == self.rounds)
            fault = find_fault(number, reports, graph.clients, expected, self.layout.owners())
            if self.fault is None and fault:
                good = next(reversed(checkpoint.complete(self.folder)), None)
                self.fault = fault + (f"; the last good checkpoint is {good}" if good else "")
            self.ledger.w = [weight for report in reports for weight in report.push_weights]
            self.losses = [loss for report in reports for loss in report.losses]
            self.reports[number] = reports
            if self.stop_reason is None and any(report.wants_stop for report in reports):
                self.stop_reason = "a signal to rank " + ", ".join(
                    str(rank) for rank, report in enumerate(reports) if report.wants_stop
                )
        return self.fault

    def write(self, round_idx: int, scores: Mapping[str, float] | None = None) -> None:
        """Record the rounds read so far, up to this one, which may have been evaluated."""
        while self.next_line <= round_idx:
            number = self.next_line
            graph, reports = self.graphs.pop(number), self.reports.pop(number)
            new_scores = scores or {} if number == round_idx else {}
            line = record(number, self.lr_of(number), reports, graph.clients, new_scores)
            self.topology.write({"round": number, **graph.record()})
            self.metrics.write(line)
            self.progress.show(line)
            self._warn_of_divergence(line)
            for listener in self.listeners:
                listener(plain(line))
            self.next_line += 1

    def amend(self, scores: Mapping[str, float], *, drained: bool) -> None:
        """Put other scores into the last recorded line, and the push weights after draining if it was `drained`."""
        path, weights = self.folder / "metrics.jsonl", self.ledger.drain(self.ledger.w) if drained else self.ledger.w
        *lines, last = read_lines(path)
        last |= {"push_weight_min": min(weights), "push_weight_max": max(weights), **plain(scores)}
        self.metrics.close()
        write_lines(path, [*lines, last])
        self.metrics = LineFile(path)

    def _warn_of_divergence(self, line: Mapping[str, Any]) -> None:
        """Say once that a loss which is still a number has left every measure."""
        self.first_loss = self.first_loss or line["train_loss"]
        if not self.warned and line["train_loss"] > 100 * self.first_loss:
            text = "round %d: the loss is %.3g and was %.3g at first; %s"
            log.warning(text, line["round"], line["train_loss"], self.first_loss, CURES)
            self.warned = True

    def tell_end(self, scores: Mapping[str, float]) -> None:
        """Say on the screen how the run ended; a STOP file has done its work."""
        self.progress.close()
        if self.schedule.needs_losses:
            graphs = read_graphs(self.folder / "topology.jsonl", self.layout.num_clients)
            if connected_within(graphs) is None:
                log.warning(UNCONNECTED, count(len(graphs), "round"))
        seconds, stopped = time.monotonic() - self.started, self.stop_reason if self.next_line < self.rounds else None
        print(
            summary(
                self.folder,
                done=self.next_line,
                rounds=self.rounds,
                seconds=seconds,
                stop_reason=stopped,
                scores=scores,
            ),
            flush=True,
        )
        (self.folder / "STOP").unlink(missing_ok=True)

    def sync(self) -> None:
        """Put what was recorded on the disk, before a checkpoint counts on it."""
        self.metrics.sync()
        self.topology.sync()

    def close(self) -> None:
        self.progress.close()
        self.metrics.close()
        self.topology.close()
