"""What the ranks tell each other beside the frames: plans and decisions out, reports in, sums, barriers."""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from dfl_dist.distributed.positions import count_sent
from dfl_dist.distributed.waiting import Waitable, blaming, wait
from dfl_dist.errors import PeerError

PLAN_TAG, PLAN_BODY_TAG, REPORT_TAG, TEXT_TAG, BROADCAST_TAG = 1, 2, 3, 4, 5
Needed = tuple[str, int] | None
PLAN_HEAD = 3  # numbers: round, decision, how many numbers follow


@dataclass(frozen=True)
class Operation:
    """A message in flight; its tensor must live, unchanged, until it was waited for."""

    work: Waitable
    tensor: Tensor
    what: str  # completes "waited for …"
    peers: Sequence[int] = ()  # who has to do something for it
    needs: Needed = None  # which message of theirs it is: the kind, and the number of its kind


class Control:
    """The control group: gloo, all ranks. Plans go out from rank 0 and reports to it, without anybody waiting."""

    def __init__(
        self, group: dist.ProcessGroup | None, *, rank: int, world_size: int, timeout_s: float, host: int = 0
    ) -> None:
        self.group, self.rank, self.world_size, self.timeout_s = group, rank, world_size, timeout_s
        self.host = host
        self.others = range(1, world_size) if rank == 0 else range(0)
        self.ahead = 0  # rounds that a plan is known before it has to be, and that reports may be late
        self.plans_expected: deque[Operation] = deque()
        self.sending: dict[int, deque[list[Operation]]] = {PLAN_TAG: deque(), REPORT_TAG: deque()}
        self.expected: Counter[str] = Counter()  # messages of each kind that this rank has asked for

    # The plan of a round: rank 0 sends it during a round before; the others have the receive of its head posted by
    # then. How long the body is differs from graph to graph, so it is received when the head is there.

    def send_plan(self, round_idx: int, decision: int, body: Sequence[int]) -> None:
        """Rank 0: start sending the plan of a round to everybody."""
        head, content = torch.tensor([round_idx, decision, len(body)]), torch.tensor(body, dtype=torch.int32)
        self._flush(PLAN_TAG, keep=self.ahead)
        what = f"rank {{}} to take the plan of round {round_idx + 1}"
        count_sent("plan")
        sends = [self._send(head, rank, PLAN_TAG, what.format(rank)) for rank in self.others]
        if body:
            sends += [self._send(content, rank, PLAN_BODY_TAG, what.format(rank)) for rank in self.others]
        self.sending[PLAN_TAG].append(sends)

    def expect_plan(self, round_idx: int) -> None:
        """Other ranks: post the receive of a plan's head."""
        head = torch.empty(PLAN_HEAD, dtype=torch.int64)
        what, needs = f"the plan of round {round_idx + 1} from rank 0", self._next("plan")
        self.plans_expected.append(self._receive(head, 0, PLAN_TAG, what, needs))

    def receive_plan(self, round_idx: int) -> tuple[int, list[int]]:
        """Other ranks: the decision and the body of a round's plan."""
        planned, decision, body = self._next_plan()
        if planned != round_idx:
            raise PeerError(f"rank 0 sent the plan of round {planned + 1}, expected round {round_idx + 1}")
        return decision, body

    def drop_plans(self) -> None:
        """Other ranks: take in the plans of rounds that will not be; rank 0 has sent as many as were expected."""
        while self.plans_expected:
            self._next_plan()

    def _next_plan(self) -> tuple[int, int, list[int]]:
        operation = self.plans_expected.popleft()
        round_idx, decision, size = self._finish(operation).tolist()
        if not size:
            return round_idx, decision, []
        body = torch.empty(size, dtype=torch.int32)
        coming = self._receive(body, 0, PLAN_BODY_TAG, operation.what, operation.needs)
        return round_idx, decision, self._finish(coming).tolist()

    # Reports: every rank starts sending its own, rank 0 reads them a round later.

    def send_report(self, round_idx: int, numbers: Sequence[float]) -> None:
        """Other ranks: start sending this round's report to rank 0."""
        self._flush(REPORT_TAG, keep=self.ahead)
        what = f"rank 0 to take the report of round {round_idx + 1}"
        count_sent("report")
        self.sending[REPORT_TAG].append([self._send(torch.tensor(numbers, dtype=torch.float64), 0, REPORT_TAG, what)])

    def expect_reports(self, round_idx: int, sizes: Sequence[int]) -> list[Operation]:
        """Rank 0: post the receives of one round's reports, one per rank."""
        what, needs = f"the report of round {round_idx + 1} from rank {{}}", self._next("report")
        return [
            self._receive(torch.empty(sizes[rank], dtype=torch.float64), rank, REPORT_TAG, what.format(rank), needs)
            for rank in self.others
        ]

    def read_reports(self, expected: Sequence[Operation]) -> list[list[float]]:
        """Rank 0: one round's reports of the other ranks, in rank order."""
        return [self._finish(operation).tolist() for operation in expected]

    # Blocking: at the start and end of a run, for evaluations and checkpoints only.

    def all_reduce(self, tensor: Tensor, what: str, *, largest: bool = False) -> Tensor:
        """Sum over all ranks, or the largest of theirs, in place, on the host."""
        operation = dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM
        count_sent("sum")
        with blaming(f"all ranks to {what}", self.timeout_s):
            work = dist.all_reduce(tensor, op=operation, group=self.group, async_op=True)
        assert work is not None
        everybody = range(self.world_size)
        return self._finish(Operation(work, tensor, f"all ranks to {what}", everybody, self._next("sum")))

    def broadcast(self, tensor: Tensor, what: str) -> Tensor:
        """Rank 0's tensor for everybody, in place; straight from it, so that who waits waits for nobody else."""
        if self.rank != 0:
            needs = self._next("broadcast")
            return self._finish(self._receive(tensor, 0, BROADCAST_TAG, f"rank 0 to tell {what}", needs))
        count_sent("broadcast")
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
            count_sent("text")
            self._finish(self._send(content, 0, TEXT_TAG, f"rank 0 to {what}"))
            return []
        needs = self._next("text")
        expected = [
            self._receive(torch.empty_like(content), rank, TEXT_TAG, f"rank {rank} to {what}", needs)
            for rank in self.others
        ]
        texts = [content, *(self._finish(operation) for operation in expected)]
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
            work = dist.isend(message, dst=rank, group=self.group, tag=tag)
        assert work is not None
        return Operation(work, message, what, (rank,))

    def _receive(self, buffer: Tensor, rank: int, tag: int, what: str, needs: Needed) -> Operation:
        with blaming(what, self.timeout_s):
            work = dist.irecv(buffer, src=rank, group=self.group, tag=tag)
        assert work is not None
        return Operation(work, buffer, what, (rank,), needs)

    def _next(self, kind: str) -> tuple[str, int]:
        """The next message of a kind that this rank will wait for."""
        self.expected[kind] += 1
        return kind, self.expected[kind]

    def _finish(self, operation: Operation) -> Tensor:
        what, peers, needs = operation.what, operation.peers, operation.needs
        wait(operation.work, what=what, timeout_s=self.timeout_s, peers=peers, needs=needs)
        return operation.tensor

    def _flush(self, tag: int, *, keep: int) -> None:
        """Wait until all but the newest `keep` of the messages sent have left."""
        while len(self.sending[tag]) > keep:
            for operation in self.sending[tag][0]:
                self._finish(operation)
            self.sending[tag].popleft()
