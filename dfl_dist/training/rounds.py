"""One round of the clients of this rank, then T of them: reads like Algorithm 1."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from dfl_dist.distributed import positions
from dfl_dist.errors import PeerError, RunFaultError, is_of_disk
from dfl_dist.models.flat import FlatModel
from dfl_dist.run_folder import checkpoint
from dfl_dist.run_folder.fence import Fence
from dfl_dist.run_folder.metrics import EvalSchedule, RankReport
from dfl_dist.topology.graph import RoundGraph
from dfl_dist.training.clients import Clients, LocalWork
from dfl_dist.training.evaluate import Evaluation, Evaluator
from dfl_dist.training.exchange import Exchange
from dfl_dist.training.role import Role

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cadence:
    """How many rounds there are, and after which of them something is evaluated or saved."""

    rounds: int
    evaluations: EvalSchedule
    checkpoint_every: int
    may_stop: bool = False  # whether an evaluation may end the run

    def is_saved(self, rounds_done: int, *, last: bool) -> bool:
        """Whether a checkpoint is due: a run that is stopped early leaves one, whatever is asked for."""
        regular = self.checkpoint_every > 0 and (last or rounds_done % self.checkpoint_every == 0)
        early = checkpoint.is_early(rounds_done, self.checkpoint_every)
        return regular or early or (last and rounds_done < self.rounds)


class Rounds:
    """The rounds of one rank."""

    def __init__(
        self,
        role: Role,
        clients: Clients,
        exchange: Exchange,
        evaluator: Evaluator,
        *,
        model: FlatModel,
        work: LocalWork,
        cadence: Cadence,
        fence: Fence,
        wish_to_stop: Callable[[], str | None],
    ) -> None:
        self.role, self.clients, self.exchange, self.evaluator = role, clients, exchange, evaluator
        self.model, self.work, self.cadence, self.fence = model, work, cadence, fence
        self.wish_to_stop = wish_to_stop
        self.done, self.has_enough = 0, False

    def run(self, start: int, *, drained: bool) -> Evaluation:
        """The rounds from `start` on, all or fewer if a stop is asked for; the evaluation of the last one.

        `drained` where the start is a checkpoint in which nothing was left in flight, because a run ended there.
        """
        self.done = start
        if start == self.cadence.rounds:
            return self._end_again(drained=drained)
        if drained and self.cadence.evaluations.due(start - 1, last=False):  # its record is of what goes on from here
            self._evaluate_again(last=False)
        graph: RoundGraph | None = self.role.first_graph(start)
        if start == 0 and self.cadence.checkpoint_every > 0:
            self._save()
        evaluation = None
        while graph is not None and not self.has_enough:
            with failing_in_round(self.done + 1):
                graph = self._round(self.done, graph)
                self.done += 1
                evaluation = self._evaluate_and_save(last=graph is None)
        assert evaluation is not None, "the last round is always evaluated"
        positions.at("finishing", self.done)
        return evaluation

    def _round(self, t: int, graph: RoundGraph) -> RoundGraph | None:
        """Local steps → push → sum → report; the graph of the next round, if there is one."""
        started = time.perf_counter()
        positions.at("local steps", t + 1)
        self.role.begin(t)
        self.exchange.expect(t, graph)
        self.clients.step(t, self.model, self.work, graph.clients)
        stepped = time.perf_counter()
        positions.at("exchange", t + 1)
        self.role.announce(t)
        self.exchange.mix(t, graph)
        if t + 1 == self.cadence.rounds:
            self.exchange.drain()
        mixed = time.perf_counter()
        positions.at("report", t + 1)
        self.role.hand_in(t, self._report(graph, local_s=stepped - started, exchange_s=mixed - stepped))
        return self.role.next_graph(t)

    def _report(self, graph: RoundGraph, *, local_s: float, exchange_s: float) -> RankReport:
        return RankReport(
            wants_stop=self.wish_to_stop() is not None,
            seconds_local=local_s,
            seconds_exchange=exchange_s,
            seconds_total=local_s + exchange_s,
            bytes_sent=self.exchange.bytes_sent(graph),
            weight_in_flight=self.exchange.weight_in_flight(),
            losses=[math.nan if loss is None else loss for loss in self.clients.losses],
            push_weights=self.clients.w.tolist(),
            finite=torch.isfinite(self.clients.x).all(dim=1).tolist(),
        )

    # After a round: evaluation and checkpoint where they are due, and only of a state that is sound.

    def _evaluate_and_save(self, *, last: bool) -> Evaluation | None:
        t, evaluations = self.done - 1, self.cadence.evaluations
        saved, evaluated = self.cadence.is_saved(self.done, last=last), evaluations.due(t, last=last)
        if not saved and not evaluated:
            return None
        self.role.check_sound(t)
        evaluation = self._evaluate(each_client=evaluations.each_client(t, last=last)) if evaluated else None
        self.role.record(t, evaluation.scores if evaluation else {})
        if evaluation and self.cadence.may_stop and not last:
            self.has_enough = self.role.has_enough()
        if self.has_enough:
            evaluation = self._end_now(evaluation)
        elif saved:
            self._save()
        return evaluation

    def _end_now(self, evaluation: Evaluation | None) -> Evaluation | None:
        """The end of a run after a round that was not known to be the last when it was evaluated."""
        t, evaluations = self.done - 1, self.cadence.evaluations
        each_client = evaluations.each_client(t, last=True) and not evaluations.each_client(t, last=False)
        if self.exchange.drain() or each_client:
            evaluation = self._evaluate_again(last=True)
        self._save()
        return evaluation

    def _end_again(self, *, drained: bool) -> Evaluation:
        """The end of a run that was interrupted after its last round, or that went back to one before."""
        changed = not drained and self.exchange.drain()
        evaluation = self._evaluate_again(last=True)
        if changed:
            self._save()
        return evaluation

    def _evaluate_again(self, *, last: bool) -> Evaluation:
        """Evaluate the last recorded round, as it is now."""
        evaluation = self._evaluate(each_client=self.cadence.evaluations.each_client(self.done - 1, last=last))
        self.role.amend(evaluation.scores, drained=last)
        return evaluation

    def _evaluate(self, *, each_client: bool) -> Evaluation:
        positions.at("evaluation", self.done)
        in_flight = self.exchange.sum_in_flight()
        return self.evaluator.evaluate(self.clients.x, self.clients.w, in_flight, each_client=each_client)

    def _save(self) -> None:
        """A consistent cut: what is in flight is kept by its receiver. Rank 0 declares it complete at the end."""
        positions.at("checkpoint", self.done)
        folder, checksums = self.fence.folder / "checkpoints" / checkpoint.folder_name(self.done), []
        for state in self.exchange.states(self.done):
            self.fence.check()
            checksums.append(checkpoint.save_client(folder, state))
        self.role.complete(folder, checksums)


@contextmanager
def failing_in_round(number: int) -> Iterator[None]:
    """Say in which round, counted from 1, something failed."""
    try:
        yield
    except PeerError as error:
        raise PeerError(f"round {number}: {error}") from error
    except RunFaultError:
        raise
    except Exception as error:
        if not is_of_disk(error):  # which has nothing to do with the round
            log.error("failed in round %d", number)
        raise
