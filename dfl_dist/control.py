"""What the ranks tell each other beside the frames: the graph and decisions out, scalars in, sums, barriers."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice

import torch
import torch.distributed as dist
from torch import Tensor

from dfl_dist.topology import WEIGHTS, Graph, RoundGraph, Server
from dfl_dist.waiting import PeerError, Waitable, blaming, wait

PLAN_TAG, REPORT_TAG, TEXT_TAG, BROADCAST_TAG = 1, 2, 3, 4
PLAN_HEAD = 4  # round, decision, how mass is shared, number of lists
WEIGHT_NAMES = (*WEIGHTS, "server")


class Decision(IntEnum):
    """What rank 0 wants after a round."""

    GO_ON = 0
    STOP = 1
    ABORT = 2


@dataclass(frozen=True)
class Plan:
    """A round's graph, or the decision that there is no such round."""

    decision: Decision
    graph: RoundGraph | None = None


@dataclass(frozen=True)
class Operation:
    """A message under way; its tensor must live, unchanged, until it was waited for."""

    work: Waitable
    tensor: Tensor
    what: str  # completes "waited for …"


class Control:
    """The control group: gloo, all ranks. Plans go out from rank 0 and scalars to it, without anybody waiting."""

    def __init__(self, *, rank: int, world_size: int, timeout_s: float) -> None:
        self.rank, self.world_size, self.timeout_s = rank, world_size, timeout_s
        self.others = range(1, world_size) if rank == 0 else range(0)
        self.num_clients = 0
        self.ahead = 0  # rounds that a plan is known before it has to be, and that scalars may be late
        self.plans_coming: deque[Operation] = deque()
        self.sending: dict[int, deque[list[Operation]]] = {PLAN_TAG: deque(), REPORT_TAG: deque()}

    # The plan of a round: rank 0 sends it during a round before, the others have its receive posted by then.

    def prepare(self, num_clients: int, *, ahead: int) -> None:
        """Say how large plans can be, and how many rounds ahead of the round before their own they are sent."""
        self.num_clients, self.ahead = num_clients, ahead

    def send_plan(self, round_idx: int, plan: Plan) -> None:
        """Rank 0: start sending the plan of a round to everybody."""
        graph = plan.graph
        lists = () if graph is None else graph.out if isinstance(graph, Graph) else (graph.clients,)
        kind = WEIGHT_NAMES.index(graph.weights) if graph else 0
        head = [round_idx, int(plan.decision), kind, len(lists)]
        content = [*head, *map(len, lists), *(client for row in lists for client in row)]
        message = torch.tensor(content, dtype=torch.int32)
        self._flush(PLAN_TAG, keep=self.ahead)
        what = f"rank {{}} to take the plan of round {round_idx}"
        self.sending[PLAN_TAG].append([self._send(message, rank, PLAN_TAG, what.format(rank)) for rank in self.others])

    def expect_plan(self, round_idx: int) -> None:
        """Other ranks: post the receive of a plan, with room for all edges there can be; few are ever used."""
        buffer = torch.empty(PLAN_HEAD + self.num_clients * (self.num_clients + 1), dtype=torch.int32)
        self.plans_coming.append(self._receive(buffer, 0, PLAN_TAG, f"the plan of round {round_idx} from rank 0"))

    def receive_plan(self, round_idx: int) -> Plan:
        """Other ranks: the plan of a round."""
        message = self._finish(self.plans_coming.popleft())
        planned, decision, kind, count = message[:PLAN_HEAD].tolist()
        if planned != round_idx:
            raise PeerError(f"rank 0 sent the plan of round {planned}, expected round {round_idx}")
        if decision != Decision.GO_ON:
            return Plan(Decision(decision))
        sizes = message[PLAN_HEAD : PLAN_HEAD + count].tolist()
        entries = iter(message[PLAN_HEAD + count : PLAN_HEAD + count + sum(sizes)].tolist())
        lists = tuple(tuple(islice(entries, size)) for size in sizes)
        weights = WEIGHT_NAMES[kind]
        return Plan(Decision.GO_ON, Graph(lists, weights) if weights in WEIGHTS else Server(lists[0]))

    def drop_plans(self) -> None:
        """Other ranks: take in the plans of rounds that will not be; rank 0 has sent as many as were expected."""
        while self.plans_coming:
            self._finish(self.plans_coming.popleft())

    # Scalars: every rank starts sending them, rank 0 reads them a round later.

    def send_report(self, round_idx: int, scalars: Tensor) -> None:
        """Other ranks: start sending this round's scalars to rank 0."""
        self._flush(REPORT_TAG, keep=self.ahead)
        what = f"rank 0 to take the scalars of round {round_idx}"
        self.sending[REPORT_TAG].append([self._send(scalars, 0, REPORT_TAG, what)])

    def expect_reports(self, round_idx: int, sizes: Sequence[int]) -> list[Operation]:
        """Rank 0: post the receives of one round's scalars, one a rank."""
        what = f"the scalars of round {round_idx} from rank {{}}"
        return [
            self._receive(torch.empty(sizes[rank], dtype=torch.float64), rank, REPORT_TAG, what.format(rank))
            for rank in self.others
        ]

    def read_reports(self, coming: Sequence[Operation]) -> list[Tensor]:
        """Rank 0: one round's scalars of the other ranks, in rank order."""
        return [self._finish(operation) for operation in coming]

    # Blocking: at the start and end of a run, for evaluations and checkpoints only.

    def all_reduce(self, tensor: Tensor, what: str, *, largest: bool = False) -> Tensor:
        """Sum over all ranks, or the largest of theirs, in place, on the host."""
        operation = dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM
        with blaming(f"all ranks to {what}", self.timeout_s):
            work = dist.all_reduce(tensor, op=operation, async_op=True)
        assert work is not None
        return self._finish(Operation(work, tensor, f"all ranks to {what}"))

    def broadcast(self, tensor: Tensor, what: str) -> Tensor:
        """Rank 0's tensor for everybody, in place; straight from it, so that who waits waits for nobody else."""
        if self.rank != 0:
            return self._finish(self._receive(tensor, 0, BROADCAST_TAG, f"rank 0 to tell {what}"))
        sends = [self._send(tensor, rank, BROADCAST_TAG, f"rank {rank} to hear {what}") for rank in self.others]
        for operation in sends:
            self._finish(operation)
        return tensor

    def broadcast_text(self, text: str, what: str) -> str:
        """Rank 0's text for everybody."""
        raw = torch.tensor(list(text.encode()), dtype=torch.uint8)
        size = int(self.broadcast(torch.tensor([len(raw)]), what))
        content = raw if self.rank == 0 else torch.empty(size, dtype=torch.uint8)
        return self.broadcast(content, what).numpy().tobytes().decode() if size else ""

    def gather_text(self, text: str, what: str, *, room: int = 1024) -> list[str]:
        """Every rank's text at rank 0, cut to `room` bytes; nothing elsewhere. `what` they do to have one, in words."""
        content = torch.zeros(room, dtype=torch.uint8)
        raw = torch.tensor(list(text.encode()[:room]), dtype=torch.uint8)
        content[: len(raw)] = raw
        if self.rank != 0:
            self._finish(self._send(content, 0, TEXT_TAG, f"rank 0 to {what}"))
            return []
        coming = [
            self._receive(torch.empty_like(content), rank, TEXT_TAG, f"rank {rank} to {what}") for rank in self.others
        ]
        texts = [content, *(self._finish(operation) for operation in coming)]
        return [tensor.numpy().tobytes().rstrip(b"\0").decode(errors="replace") for tensor in texts]

    def agree(self, problem: str | None, what: str) -> str | None:
        """What any rank finds wrong, for everybody; None when nobody does."""
        found = [text for text in self.gather_text(problem or "", what) if text]
        return self.broadcast_text(found[0] if found else "", f"that all ranks could {what}") or None

    def finish(self) -> None:
        """Wait until everything sent has left, then for everybody to come this far."""
        self.drop_plans()
        for tag in self.sending:
            self._flush(tag, keep=0)
        self.all_reduce(torch.zeros(1), "finish")

    def _send(self, message: Tensor, rank: int, tag: int, what: str) -> Operation:
        with blaming(what, self.timeout_s):
            work = dist.isend(message, dst=rank, tag=tag)
        assert work is not None
        return Operation(work, message, what)

    def _receive(self, buffer: Tensor, rank: int, tag: int, what: str) -> Operation:
        with blaming(what, self.timeout_s):
            work = dist.irecv(buffer, src=rank, tag=tag)
        assert work is not None
        return Operation(work, buffer, what)

    def _finish(self, operation: Operation) -> Tensor:
        wait(operation.work, what=operation.what, timeout_s=self.timeout_s)
        return operation.tensor

    def _flush(self, tag: int, *, keep: int) -> None:
        """Wait until all but the newest `keep` of the messages sent have left."""
        while len(self.sending[tag]) > keep:
            for operation in self.sending[tag][0]:
                self._finish(operation)
            self.sending[tag].popleft()
