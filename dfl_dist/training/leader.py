"""The role of rank 0: plan the rounds ahead, judge what the ranks report, record it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dfl_dist.distributed.control import Control
from dfl_dist.errors import RunFaultError, StaleStartError
from dfl_dist.models.flat import FlatModel
from dfl_dist.run_folder import checkpoint
from dfl_dist.run_folder.fence import Fence
from dfl_dist.run_folder.files import read_lines
from dfl_dist.run_folder.folder import mark_finished, write_model
from dfl_dist.run_folder.metrics import RankReport, record
from dfl_dist.run_folder.recorder import METRICS, TOPOLOGY, Recorder
from dfl_dist.run_folder.status import FAILED, FINISHED, STOPPED
from dfl_dist.run_folder.trackers import DIVERGED
from dfl_dist.text import count
from dfl_dist.topology.connectivity import connected_within
from dfl_dist.topology.graph import RoundGraph
from dfl_dist.topology.graph_file import read_graphs
from dfl_dist.training.follower import CHECKSUM_CHARS
from dfl_dist.training.inbox import Inbox
from dfl_dist.training.judge import CURES, Growth
from dfl_dist.training.plans import Planner
from dfl_dist.training.progress import Progress
from dfl_dist.training.screen import UNCONNECTED, End, tell_end
from dfl_dist.training.stopping import Stopping

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """What rank 0 knows of the run: its folder, its rounds, which checkpoints it keeps and what they must say of it."""

    fence: Fence
    go_on: str  # how a person goes on after a stop
    rounds: int
    rounds_done: int
    lr_of: Callable[[int], float]
    checkpoint_every: int
    keep: int
    stopping: Stopping
    identity: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        return self.fence.folder


class Leader:
    """Rank 0's role.

    Nobody waits for it: graphs are drawn one round ahead and reports are read one round later, with overlap that many
    rounds more. Graphs chosen by loss are the one exception: the next graph depends on all losses of the round, so it
    is drawn after the round, and everybody waits for it.
    """

    def __init__(
        self, control: Control, planner: Planner, inbox: Inbox, recorder: Recorder, *, run: Run, model: FlatModel
    ) -> None:
        self.control, self.planner, self.inbox, self.recorder = control, planner, inbox, recorder
        self.run, self.model = run, model
        self.fault: str | None = None
        self.fails_as = FAILED  # the word for the trackers, should this start end in any other way than it should
        self.ended_by: str | None = None  # a setting of `stop`
        self.next_line = run.rounds_done
        self.growth, self.warned = Growth(), False
        self.progress = Progress(done=run.rounds_done, rounds=run.rounds)

    # Planning.

    def first_graph(self, start: int) -> RoundGraph:
        for line in read_lines(self.run.folder / METRICS):
            self.run.stopping.note(line)
            self.growth.note(line)
        for round_idx in range(start, min(start + 1 + self.control.ahead, self.run.rounds)):
            self.planner.draw(round_idx, self.inbox.losses)
            self._announce(round_idx)
        graph = self.planner.announced.pop(start)
        assert graph is not None, "the first round of a start always takes place"
        return graph

    def begin(self, round_idx: int) -> None:
        if round_idx == self.run.rounds_done:
            self.progress.start()
        self.progress.show(round_idx)  # so many are done
        self.inbox.expect(round_idx)
        if self._draws_ahead(round_idx):
            self.planner.draw(round_idx + 1 + self.control.ahead, self.inbox.losses)

    def announce(self, round_idx: int) -> None:
        if self._draws_ahead(round_idx):
            self._announce(round_idx + 1 + self.control.ahead)

    def next_graph(self, round_idx: int) -> RoundGraph | None:
        if round_idx + 1 == self.run.rounds:
            return None
        if not self.planner.sees_ahead:  # now that the round's losses are there
            self._read(round_idx)
            self.planner.draw(round_idx + 1, self.inbox.losses)
            self._announce(round_idx + 1)
        return self.planner.announced.pop(round_idx + 1)

    def _draws_ahead(self, round_idx: int) -> bool:
        return self.planner.sees_ahead and round_idx + 1 + self.control.ahead < self.run.rounds

    def _announce(self, round_idx: int) -> None:
        self.planner.announce(round_idx, sound=self.fault is None, first=round_idx <= self.next_line)

    # Judging.

    def hand_in(self, round_idx: int, report: RankReport) -> None:
        self.inbox.own[round_idx] = report
        before = round_idx - 1 - self.control.ahead  # its reports must have come by now
        self._read(before)
        self.record(before, {})

    def check_sound(self, round_idx: int) -> None:
        self._read(round_idx)
        self.control.broadcast_text(self.fault or "", "its verdict on the round")
        if self.fault is not None:
            self.record(round_idx, {})
            raise RunFaultError(self.fault)

    def _read(self, round_idx: int) -> None:
        """Read the reports of all rounds up to this one."""
        for number in self.inbox.unread(round_idx):
            graph = self.planner.graphs[number]
            verdict = self.inbox.read(number, graph, drained=number + 1 == self.run.rounds)
            self.planner.stop_reason = self.planner.stop_reason or verdict.stop_reason
            if self.fault is None and verdict.fault:
                good = checkpoint.newest(self.run.folder, before=self.growth.since)
                self.fault = verdict.fault + (f"; the last good checkpoint is {good}" if good else "")
                self.fails_as = DIVERGED if verdict.diverged else FAILED

    # Recording.

    def record(self, round_idx: int, scores: Mapping[str, float]) -> None:
        while self.next_line <= round_idx:
            number = self.next_line
            graph, reports = self.planner.graphs.pop(number), self.inbox.reports.pop(number)
            own_scores = scores if number == round_idx else {}
            line = record(number, self.run.lr_of(number), reports, graph.clients, own_scores)
            self.recorder.write(line, graph.record())
            self.progress.note(line)
            self.run.stopping.note(line)
            self._warn_of_divergence(line)
            self.next_line += 1

    def has_enough(self) -> bool:
        self.ended_by = self.run.stopping.reason
        return bool(self.control.broadcast(torch.tensor([self.ended_by is not None]), "whether the accuracy is enough"))

    def amend(self, scores: Mapping[str, float], *, drained: bool) -> None:
        ledger = self.inbox.ledger
        weights = ledger.drain(ledger.w) if drained else ledger.w
        self.recorder.amend({"push_weight_min": min(weights), "push_weight_max": max(weights), **scores})

    def complete(self, folder: Path, checksums: Sequence[str]) -> None:
        room = CHECKSUM_CHARS * self.inbox.layout.largest_block
        gathered = self.control.gather_text(" ".join(checksums), "write a checkpoint", room=room)
        self.recorder.sync()
        self.run.fence.check()
        checkpoint.write_manifest(folder, " ".join(gathered).split(), self.run.identity)
        self.run.fence.check()
        checkpoint.prune(self.run.folder, self.run.keep, self.run.checkpoint_every, grown=self.growth.since)

    def finish(self, mean: Tensor, scores: Mapping[str, float]) -> None:
        folder, fence = self.run.folder, self.run.fence
        self.model.params.copy_(mean)
        fence.check()
        write_model(folder, self.model.model)
        self.recorder.finish(STOPPED if self._goes_on else FINISHED, folder / "model.pt")
        fence.check()
        mark_finished(folder, self.next_line, self.ended_by)
        self.progress.show(self.next_line)
        self.progress.close()
        if not self.planner.sees_ahead:
            graphs = read_graphs(folder / TOPOLOGY, self.inbox.layout.num_clients)
            if connected_within(graphs) is None:
                log.warning(UNCONNECTED, count(len(graphs), "round"))
        self._tell_end(scores)
        fence.check()
        (folder / "STOP").unlink(missing_ok=True)  # it has done its work

    @property
    def _goes_on(self) -> bool:
        """Whether the run was stopped before its end."""
        return self.next_line < self.run.rounds and self.ended_by is None

    def _tell_end(self, scores: Mapping[str, float]) -> None:
        done, rounds, goes_on = self.next_line, self.run.rounds, self._goes_on
        stopped = self.planner.wish_to_stop() or self.planner.stop_reason  # its own signal, if other ranks had it too
        how = f"stopped by {stopped}" if goes_on else "finished" + (f" by {self.ended_by}" if self.ended_by else "")
        training_s = sum(line["seconds_total"] for line in read_lines(self.run.folder / METRICS))
        end = End(f"{how} after round {done} of {rounds}, {training_s:.1f} s of training", done, goes_on=goes_on)
        self.control.broadcast_text(end.to_text(), "how the run ended")
        tell_end(self.run.folder, end, scores, self.run.go_on)

    def close(self) -> None:
        self.progress.close()
        with suppress(StaleStartError):  # the trackers are told by the other start
            self.recorder.finish(self.fails_as, None)
        self.recorder.close()

    def _warn_of_divergence(self, line: Mapping[str, Any]) -> None:
        """Say once that a loss which is still a number has left every measure."""
        before = f" and was {self.growth.first:.3g} at first" if self.growth.first else ""
        self.growth.note(line)
        if self.growth.since and not self.warned:
            log.warning("round %d: the loss is %.3g%s; %s", line["round"] + 1, line["train_loss"], before, CURES)
            self.warned = True
