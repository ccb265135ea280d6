"""One round of the clients of this rank, then T of them: reads like Algorithm 1."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dfl_dist import checkpoint
from dfl_dist.clients import Clients, LocalWork
from dfl_dist.control import Control, Decision, Plan
from dfl_dist.coordinator import Coordinator
from dfl_dist.evaluate import EvalSchedule, Evaluation, Evaluator
from dfl_dist.exchange import Exchange
from dfl_dist.flat import FlatModel
from dfl_dist.metrics import RankReport
from dfl_dist.topology import RoundGraph
from dfl_dist.waiting import PeerError

log = logging.getLogger(__name__)


class RunFaultError(RuntimeError):
    """The run must not go on: it diverged or lost mass. Only rank 0 knows the words."""


@dataclass(frozen=True)
class Checkpoints:
    """When and where the clients' states are written."""

    folder: Path
    every: int
    keep: int
    identity: dict[str, Any]
    largest_block: int  # the most clients that one rank writes


class Rounds:
    """The rounds of one rank. `coordinator` is given on rank 0 only."""

    def __init__(
        self,
        clients: Clients,
        model: FlatModel,
        work: LocalWork,
        *,
        control: Control,
        exchange: Exchange,
        overlap: int,
        coordinator: Coordinator | None,
        evaluator: Evaluator,
        eval_schedule: EvalSchedule,
        checkpoints: Checkpoints,
        wish_to_stop: Callable[[], str | None],
    ) -> None:
        self.clients, self.model, self.work = clients, model, work
        self.control, self.exchange, self.coordinator = control, exchange, coordinator
        self.evaluator, self.eval_schedule, self.checkpoints = evaluator, eval_schedule, checkpoints
        self.overlap, self.wish_to_stop = overlap, wish_to_stop
        self.rounds = self.done = 0

    def run(self, start: int, rounds: int, *, drained: bool) -> Evaluation:
        """Rounds start … rounds − 1, or fewer if a stop is asked for; the evaluation of the last one.

        `drained` where the start is a checkpoint in which nothing was left in flight, because a run ended there.
        """
        self.rounds, self.done = rounds, start
        if start == rounds:
            return self._end_again(rounds, drained=drained)
        if drained and self.eval_schedule.due(start - 1, last=False):  # its record is of what goes on from here
            self._evaluate_again(start - 1, last=False)
        graph = self._first_graph(start)
        if start == 0 and self.checkpoints.every > 0:
            self._save(0)
        for round_idx in range(start, rounds):
            try:
                plan = self._round(round_idx, graph, last=round_idx + 1 == rounds)
                evaluation = self._settle(round_idx, rounds, plan.decision)
            except PeerError as error:
                raise PeerError(f"round {round_idx}: {error}") from error
            except RunFaultError:
                raise
            except Exception:
                log.error("failed in round %d", round_idx)
                raise
            self.done = round_idx + 1
            if plan.graph is None:
                break
            graph = plan.graph
        assert evaluation is not None, "the last round is always evaluated"
        return evaluation

    def _round(self, round_idx: int, graph: RoundGraph, *, last: bool) -> Plan:
        """One round: local steps, push, ordered sum, report; the plan of the next one."""
        started = time.perf_counter()
        planned = round_idx + 1 + self.control.ahead
        self._look_ahead(round_idx, planned)
        self.exchange.expect(round_idx, graph)
        self.clients.step(round_idx, self.model, self.work, graph.clients)
        stepped = time.perf_counter()
        if self.coordinator and self.coordinator.sees_ahead and planned < self.rounds:
            self.coordinator.announce(planned, self.wish_to_stop())
        self.exchange.mix(round_idx, graph)
        if last:
            self.exchange.drain()
        done = time.perf_counter()
        report = RankReport(
            wants_stop=self.wish_to_stop() is not None,
            seconds_local=stepped - started,
            seconds_exchange=done - stepped,
            seconds_total=done - started,
            bytes_sent=self.exchange.bytes_sent(graph),
            weight_in_flight=self.exchange.weight_in_flight(),
            losses=[math.nan if loss is None else loss for loss in self.clients.losses],
            push_weights=self.clients.w.tolist(),
            finite=torch.isfinite(self.clients.x).all(dim=1).tolist(),
        )
        return self._report(round_idx, report, last=last)

    # Plans, scalars and decisions.

    def _first_graph(self, start: int) -> RoundGraph:
        for round_idx in range(start, min(start + 1 + self.control.ahead, self.rounds)):
            if self.coordinator:
                self.coordinator.look_ahead(round_idx)
                self.coordinator.announce(round_idx, None)
            else:
                self.control.expect_plan(round_idx)
        graph = self._take_plan(start).graph
        assert graph is not None
        return graph

    def _take_plan(self, round_idx: int) -> Plan:
        return self.coordinator.plans.pop(round_idx) if self.coordinator else self.control.receive_plan(round_idx)

    def _look_ahead(self, round_idx: int, planned: int) -> None:
        """Before the local steps: rank 0 samples the next graph where it can, the others post its receive."""
        if self.coordinator:
            self.coordinator.expect(round_idx)
        if planned >= self.rounds:
            return
        if not self.coordinator:
            self.control.expect_plan(planned)
        elif self.coordinator.sees_ahead:
            self.coordinator.look_ahead(planned)

    def _report(self, round_idx: int, report: RankReport, *, last: bool) -> Plan:
        """Hand the scalars over; what comes next."""
        if self.coordinator:
            self.coordinator.take_own(round_idx, report)
        else:
            self.control.send_report(round_idx, report.pack())
        if last:
            return Plan(Decision.STOP)
        if self.coordinator and not self.coordinator.sees_ahead:  # now that the round's losses are there
            self.coordinator.read(round_idx)
            self.coordinator.look_ahead(round_idx + 1)
            self.coordinator.announce(round_idx + 1, self.wish_to_stop())
        return self._take_plan(round_idx + 1)

    # After a round: evaluation and checkpoint where they are due, and only of a state that is sound.

    def _settle(self, round_idx: int, rounds: int, decision: Decision) -> Evaluation | None:
        last, done = decision is not Decision.GO_ON, round_idx + 1
        regular = self.checkpoints.every > 0 and (last or done % self.checkpoints.every == 0)
        saved = regular or (last and done < rounds)
        if not saved and not self.eval_schedule.due(round_idx, last=last):
            return None
        self._check_sound(round_idx)
        evaluation = None
        if self.eval_schedule.due(round_idx, last=last):
            each_client = self.eval_schedule.each_client(round_idx, last=last)
            evaluation = self._evaluate(each_client=each_client)
        if self.coordinator:
            self.coordinator.write(round_idx, evaluation.scores if evaluation else {})
        if saved:
            self._save(done)
        return evaluation

    def _end_again(self, rounds: int, *, drained: bool) -> Evaluation:
        """The end of a run that was interrupted after its last round, or that went back to one before."""
        if not drained:
            self.exchange.drain()
        evaluation = self._evaluate_again(rounds - 1, last=True)
        if self.overlap and not drained:
            self._save(rounds)
        return evaluation

    def _evaluate_again(self, round_idx: int, *, last: bool) -> Evaluation:
        """Evaluate the last recorded round, as it is now."""
        evaluation = self._evaluate(each_client=self.eval_schedule.each_client(round_idx, last=last))
        if self.coordinator:
            self.coordinator.amend(evaluation.scores, drained=last)
        return evaluation

    def _evaluate(self, *, each_client: bool) -> Evaluation:
        in_flight = self.exchange.sum_in_flight()
        return self.evaluator.evaluate(self.clients.x, self.clients.w, in_flight, each_client=each_client)

    def _check_sound(self, round_idx: int) -> None:
        """Let rank 0 look at this round's scalars now, and everybody stop if something is wrong."""
        fault = self.coordinator.read(round_idx) if self.coordinator else None
        if int(self.control.broadcast(torch.tensor([fault is not None]), "its verdict on the round")):
            if self.coordinator:
                self.coordinator.write(round_idx)
            self.control.drop_plans()
            raise RunFaultError(fault or "rank 0 found a fault")

    def _save(self, round_count: int) -> None:
        """A consistent cut: what is in flight is kept by its receiver. Rank 0 declares it complete at the end."""
        clients, folder = self.clients, self.checkpoints.folder / "checkpoints" / checkpoint.folder_name(round_count)
        sums = checkpoint.save_clients(folder, round_count, clients.block, self.exchange.states(), clients.losses)
        gathered = self.control.gather_text(
            " ".join(sums), "write a checkpoint", room=65 * self.checkpoints.largest_block
        )
        if self.coordinator:
            self.coordinator.sync()
            checkpoint.write_manifest(folder, round_count, " ".join(gathered).split(), self.checkpoints.identity)
            checkpoint.prune(self.checkpoints.folder, self.checkpoints.keep)

    def finish(self) -> None:
        """Wait until everything sent has left this rank."""
        self.exchange.flush()
        self.control.finish()
