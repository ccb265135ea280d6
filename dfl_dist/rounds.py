"""One round of the clients of this rank, then T of them: reads like Algorithm 1."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dfl_dist import checkpoint
from dfl_dist.control import Control, Decision, Plan
from dfl_dist.coordinator import Coordinator
from dfl_dist.evaluate import EvalSchedule, Evaluation, evaluate
from dfl_dist.flat import FlatModel
from dfl_dist.layout import Layout, routes
from dfl_dist.local import LocalRule, Shard, batches, local_steps
from dfl_dist.metrics import RankReport
from dfl_dist.mixing import add_rows, scale_rows
from dfl_dist.randomness import stream
from dfl_dist.topology import Graph
from dfl_dist.transport import Frame, Transport
from dfl_dist.waiting import PeerError

log = logging.getLogger(__name__)


class RunFaultError(RuntimeError):
    """The run must not go on: it diverged or lost mass. Only rank 0 knows the words."""


@dataclass
class Clients:
    """The clients that this rank hosts: numbers, x: [m, d], w: [m] float64 on the host, private data, last losses."""

    block: range
    x: Tensor
    w: Tensor
    shards: list[Shard]
    losses: list[float | None]


@dataclass(frozen=True)
class LocalWork:
    """What a client does between two exchanges."""

    rule: LocalRule
    lr: float
    lr_decay: float
    batch_size: int
    epochs: int | None
    steps: int | None
    seed: int

    def lr_of(self, round_idx: int) -> float:
        return self.lr * self.lr_decay**round_idx


@dataclass(frozen=True)
class Checkpoints:
    """When and where the clients' states are written."""

    folder: Path
    every: int
    keep: int
    identity: dict[str, Any]


class Rounds:
    """The rounds of one rank. `coordinator` is given on rank 0 only, `transport` where clients are hosted."""

    def __init__(
        self,
        clients: Clients,
        model: FlatModel,
        work: LocalWork,
        *,
        layout: Layout,
        control: Control,
        transport: Transport | None,
        coordinator: Coordinator | None,
        test: Shard,
        eval_schedule: EvalSchedule,
        checkpoints: Checkpoints,
        wish_to_stop: Callable[[], str | None],
    ) -> None:
        self.clients, self.model, self.work = clients, model, work
        self.layout, self.control, self.transport, self.coordinator = layout, control, transport, coordinator
        self.test, self.eval_schedule, self.checkpoints, self.wish_to_stop = (
            test,
            eval_schedule,
            checkpoints,
            wish_to_stop,
        )
        self.planned = Plan(Decision.STOP)
        self.velocity = torch.zeros_like(model.params)
        self.sum_x, self.sum_w = torch.zeros_like(clients.x), torch.zeros_like(clients.w)
        self.frame = Frame.empty(len(clients.block), model.size, model.params.dtype, model.params.device)
        hosts = layout.client_ranks
        share = hosts.index(control.rank) if clients.block else -1
        self.test_part = (
            slice(len(test) * share // len(hosts), len(test) * (share + 1) // len(hosts))
            if clients.block
            else slice(0, 0)
        )

    def run(self, start: int, rounds: int) -> Evaluation:
        """Rounds start … rounds − 1, or fewer if a stop is asked for; the evaluation of the last one."""
        graph = self._first_graph(start)
        if start == 0 and self.checkpoints.every > 0:
            self._save(0)
        for round_idx in range(start, rounds):
            try:
                self._plan_ahead(round_idx, rounds)
                self._report(round_idx, self._train(round_idx, graph))
                plan = self._next_plan(round_idx, rounds)
                evaluation = self._settle(round_idx, rounds, plan.decision)
            except Exception as error:
                if not isinstance(error, (PeerError, RunFaultError)):  # those name the round themselves
                    log.error("failed in round %d", round_idx)
                raise
            if plan.graph is None:
                break
            graph = plan.graph
        assert evaluation is not None, "the last round is always evaluated"
        return evaluation

    def _train(self, round_idx: int, graph: Graph) -> RankReport:
        """One round: local steps, push, ordered sum."""
        started = time.perf_counter()
        outgoing, incoming = routes(graph, self.layout, self.control.rank)
        if self.transport:
            self.transport.expect(round_idx, 0, list(incoming.items()))
        self._step_locally(round_idx)
        stepped = time.perf_counter()
        if self.transport:
            self._exchange(round_idx, graph, self.transport, outgoing, incoming)
        done = time.perf_counter()
        clients, row_bytes = self.clients, self.model.size * self.clients.x.element_size() + 8
        return RankReport(
            wants_stop=self.wish_to_stop() is not None,
            seconds_local=stepped - started,
            seconds_exchange=done - stepped,
            seconds_total=done - started,
            bytes_sent=sum(len(graph.out[client]) - 1 for client in clients.block) * row_bytes,
            losses=[float("nan") if loss is None else loss for loss in clients.losses],
            push_weights=clients.w.tolist(),
            finite=torch.isfinite(clients.x).all(dim=1).tolist(),
        )

    def _step_locally(self, round_idx: int) -> None:
        work, clients = self.work, self.clients
        for row, client in enumerate(clients.block):
            order = stream(work.seed, "batches", client=client, round_idx=round_idx)
            dropout = stream(work.seed, "dropout", client=client, round_idx=round_idx)
            shard = clients.shards[row]
            index_batches = batches(len(shard), work.batch_size, epochs=work.epochs, steps=work.steps, rng=order)
            clients.losses[row] = local_steps(
                self.model,
                clients.x[row],
                float(clients.w[row]),
                self.velocity,
                shard,
                index_batches,
                work.rule,
                work.lr_of(round_idx),
                dropout,
            )

    def _exchange(
        self,
        round_idx: int,
        graph: Graph,
        transport: Transport,
        outgoing: dict[int, list[int]],
        incoming: dict[int, list[int]],
    ) -> None:
        """Push (p·x, p·w) to the out-neighbours, then sum what was pushed here in the order of the sending client."""
        clients, frame, rank = self.clients, self.frame, self.control.rank
        transport.flush()
        scale_rows(graph, clients.block, clients.x, clients.w, out_x=frame.x, out_w=frame.w)
        frame.seal(round_idx, 0, rank, clients.block)
        parts = {tuple(senders): self._frame_of(senders, round_idx) for senders in outgoing.values()}
        transport.push([(receiver, parts[tuple(senders)]) for receiver, senders in outgoing.items()])
        self.sum_x.zero_()
        self.sum_w.zero_()
        arrivals = transport.arrivals()
        for sender in sorted({rank, *incoming}):
            senders, arrived = (list(clients.block), frame) if sender == rank else (incoming[sender], next(arrivals))
            add_rows(graph, senders, arrived.x, arrived.w.cpu(), clients.block, self.sum_x, self.sum_w)
        next(arrivals, None)
        clients.x, self.sum_x = self.sum_x, clients.x
        clients.w, self.sum_w = self.sum_w, clients.w

    def _frame_of(self, senders: list[int], round_idx: int) -> Frame:
        """The frame with the rows of some clients: the whole one as it is where they are all here."""
        if len(senders) == len(self.clients.block):
            return self.frame
        rows = [client - self.clients.block.start for client in senders]
        part = Frame.empty(len(rows), self.model.size, self.frame.dtype, self.frame.x.device)
        for position, row in enumerate(rows):
            part.x[position].copy_(self.frame.x[row])
            part.w[position] = self.frame.w[row]
        return part.seal(round_idx, 0, self.control.rank, senders)

    # Plans, scalars and decisions.

    def _first_graph(self, start: int) -> Graph:
        if self.coordinator:
            plan = self.coordinator.plan(start, Decision.GO_ON)
        else:
            self.control.expect_plan(start)
            plan = self.control.receive_plan(start)
        assert plan.graph is not None
        return plan.graph

    def _plan_ahead(self, round_idx: int, rounds: int) -> None:
        """Before the local steps of a round: rank 0 sends the next one's graph, the others post its receive."""
        self.planned = Plan(Decision.STOP)
        if self.coordinator:
            self.coordinator.expect(round_idx)
            if round_idx + 1 < rounds:
                self.planned = self.coordinator.plan(round_idx + 1, self.coordinator.decide(self.wish_to_stop()))
        elif round_idx + 1 < rounds:
            self.control.expect_plan(round_idx + 1)

    def _next_plan(self, round_idx: int, rounds: int) -> Plan:
        if self.coordinator or round_idx + 1 == rounds:
            return self.planned
        return self.control.receive_plan(round_idx + 1)

    def _report(self, round_idx: int, report: RankReport) -> None:
        if self.coordinator:
            self.coordinator.take_own(round_idx, report)
        else:
            self.control.send_report(round_idx, report.pack())

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
            evaluation = self._evaluate(each_client=self.eval_schedule.each_client(round_idx, last=last))
        if self.coordinator:
            self.coordinator.write(round_idx, evaluation.scores if evaluation else {})
        if saved:
            self._save(done)
        return evaluation

    def _check_sound(self, round_idx: int) -> None:
        """Let rank 0 look at this round's scalars now, and everybody stop if something is wrong."""
        fault = self.coordinator.read(round_idx) if self.coordinator else None
        if int(self.control.broadcast(torch.tensor([fault is not None]))):
            if self.coordinator:
                self.coordinator.write(round_idx)
            raise RunFaultError(fault or "rank 0 found a fault")

    def _evaluate(self, *, each_client: bool) -> Evaluation:
        clients = self.clients
        return evaluate(
            self.control,
            self.model,
            clients.x,
            clients.w,
            clients.block,
            self.layout.num_clients,
            self.test,
            self.test_part,
            each_client=each_client,
        )

    def _save(self, round_count: int) -> None:
        """A consistent cut: after a round nothing is in flight. Rank 0 declares it complete when all is written."""
        clients, folder = self.clients, self.checkpoints.folder / "checkpoints" / checkpoint.folder_name(round_count)
        sums = checkpoint.save_clients(folder, round_count, clients.block, clients.x, clients.w, clients.losses)
        gathered = self.control.gather_text(" ".join(sums), room=65 * self.layout.largest_block)
        if self.coordinator:
            self.coordinator.sync()
            checkpoint.write_manifest(folder, round_count, " ".join(gathered).split(), self.checkpoints.identity)
            checkpoint.prune(self.checkpoints.folder, self.checkpoints.keep)

    def finish(self) -> None:
        """Wait until everything sent has left this rank."""
        if self.transport:
            self.transport.flush()
        self.control.finish()
