"""The agent of a host: torch's elastic engine with ranks that are forked. It is the only file that knows that engine.

The engine meets the other hosts, watches the ranks and starts all of them again where one fails. torch's own agent for
it starts ranks with multiprocessing, which waits 30 s for a rank that is stopped and can wait for ever for one that is
killed while it leaves; so this is another agent for the same engine, in the way that torch means it to be extended. It
also numbers ranks by the hosts' own numbers, keeps the ranks' store, new for each attempt, on host 0, does not start
again what has ended for good, and lets hosts leave together.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch.distributed import DistStoreError, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.agent.server.api import (
    RunResult,
    SimpleElasticAgent,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)

from dfl_dist.launcher.fork_server import Exit, Request, Server
from dfl_dist.launcher.meeting import MeetingError, Table, check_complete, first_refusal, unreached, wrong_numbers
from dfl_dist.launcher.news import News
from dfl_dist.launcher.output import Output
from dfl_dist.launcher.processes import is_stopped
from dfl_dist.launcher.stopped import Watch
from dfl_dist.launcher.words import describe, said_after, say, what_follows
from dfl_dist.run_folder.status import FAILED, FINISHED, REFUSED, STOPPED, VERDICT, WHY

LEAVING_S = 0.5  # that ranks get to leave by themselves, and to say why, once one of them has failed
LEFT_BY_0_S = 5.0  # that rank 0 gets for it, beside what its trackers may take, where nothing is started again
MISSED_FIRST_S = 0.75  # that the ranks which wait for one that is stopped get to say so themselves
LAST_CHANCE_S = 0.2  # that they get to leave, where none of them has
GONE_WITHIN_S = 30.0
LEFT_WITHIN_S = 30.0  # for ranks to leave, once the run is complete: a user's tracker may have to send much
READ_WITHIN_S = 2.0  # for what they have printed
OTHERS_WITHIN_S = 60.0  # for the other hosts to leave too, once the run is finished
LAST_WORDS_S = 5.0  # that host 0 leaves the others to hear that it gives up
LOOKED_UP_EVERY_S = 1.0
PATIENCE_S = 20.0  # with other hosts, before a person is told
COMPLETE, GIVEN_UP = (FINISHED, STOPPED), (REFUSED, FAILED)
STORE_WITHIN = timedelta(seconds=30)


@dataclass(frozen=True)
class Ranks:
    """What the agent needs to know of the ranks that it is to run."""

    target: str
    arguments: list[str]
    start: str  # fork | spawn
    hosts: int  # how many there are
    host: int  # this host's number, as the user gave it
    address: str  # of this host, as the others reach it
    timeout_s: float  # how long one may be stopped, until the run says so itself
    refusal: str = ""  # why there are to be none


class Agent(SimpleElasticAgent):
    """The engine's hands on this host."""

    def __init__(self, spec: WorkerSpec, ranks: Ranks, server: Server, output: Output, news: News) -> None:
        super().__init__(spec)
        self.ranks, self.server, self.output, self.news = ranks, server, output, news
        self.store: Any = None  # the ranks' own
        self.hosts: list[int] = []
        self.attempt = -1  # the same number on all hosts: how often host 0 has started its ranks before
        self.alive: dict[int, int] = {}  # process id → rank
        self.exits: dict[int, int] = {}  # rank → exit code
        self.watch = Watch()
        self.judged = False  # whether this host has said why its ranks end
        self.done_since: float | None = None
        self.complete_since: float | None = None
        self.looked_at = 0.0

    # Meeting the other hosts.

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        ranks = self.ranks
        text = f"host {ranks.host} waits for the others: {ranks.hosts} hosts are to meet, each with its own --host"
        with said_after(PATIENCE_S, text):
            while not self._has_met(worker_group):
                say("a host has left while the hosts met; they meet again")

    def _has_met(self, worker_group: WorkerGroup) -> bool:
        try:
            super()._rendezvous(worker_group)
        except DistStoreError:  # nothing came from a host that was there
            return False
        return True

    def _assign_worker_ranks(
        self, store: Any, group_rank: int, group_world_size: int, spec: WorkerSpec
    ) -> list[Worker]:
        """Number the ranks by (host number, local rank); host 0 opens the ranks' store and tells the others where."""
        check_complete(group_world_size, self.ranks.hosts)
        own: dict[str, str | int] = {"host": self.ranks.host, "ranks": spec.local_world_size}
        own |= {"refused": self.ranks.refusal, "name": os.uname().nodename}
        if self.ranks.host == 0:
            self.attempt += 1
            self.store = TCPStore(self.ranks.address, 0, is_master=True, wait_for_workers=False, timeout=STORE_WITHIN)
            own |= {"address": self.ranks.address, "port": self.store.port, "attempt": self.attempt}
        table = Table(store, group_rank, group_world_size)
        found = [json.loads(text) for text in table.exchange("host", json.dumps(own))]
        found.sort(key=lambda host: int(host["host"]))
        self.hosts = [host["host"] for host in found]
        problem = wrong_numbers(self.hosts) or first_refusal(found)
        if not problem:
            self.place, self.attempt = (found[0]["address"], found[0]["port"]), found[0]["attempt"]
            problem = unreached(table, self.ranks.host, self.ranks.address, self.place)
        if problem:
            with contextlib.suppress(RuntimeError):  # the store goes with host 0
                table.exchange("refused", "")
            raise MeetingError("" if self.ranks.refusal else problem)  # one that refuses has said why
        if self.ranks.host > 0:
            self.store = TCPStore(*self.place, is_master=False, wait_for_workers=False, timeout=STORE_WITHIN)
        first = sum(host["ranks"] for host in found[: self.ranks.host])
        size = sum(host["ranks"] for host in found)
        return [
            Worker(local, first + local, role_rank=first + local, world_size=size, role_world_size=size)
            for local in range(spec.local_world_size)
        ]

    # Starting, watching and stopping the ranks of this host.

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self.alive, self.exits, self.done_since, self.complete_since = {}, {}, None, None
        self.judged = False
        self.news.forget()
        started: dict[int, Any] = {}
        for worker in worker_group.workers:
            out, err = self.output.attach(worker.global_rank, self.attempt, first=worker.local_rank == 0)
            environment = self._environment(worker_group, worker)
            request = Request(environment, self.ranks.target, self.ranks.arguments, self.ranks.start)
            pid = self.server.start(request, [out, err, self.news.for_ranks.fileno()])
            os.close(out)
            os.close(err)
            self.alive[pid], started[worker.local_rank] = worker.global_rank, pid
        return started

    def _environment(self, group: WorkerGroup, worker: Worker) -> dict[str, str]:
        """What torchrun tells its ranks."""
        spec = group.spec
        told = {
            "RANK": worker.global_rank,
            "LOCAL_RANK": worker.local_rank,
            "GROUP_RANK": self.ranks.host,
            "ROLE_RANK": worker.role_rank,
            "ROLE_NAME": spec.role,
            "WORLD_SIZE": worker.world_size,
            "LOCAL_WORLD_SIZE": spec.local_world_size,
            "GROUP_WORLD_SIZE": group.group_world_size,
            "ROLE_WORLD_SIZE": worker.role_world_size,
            "MASTER_ADDR": self.place[0],
            "MASTER_PORT": self.place[1],
            "TORCHELASTIC_RESTART_COUNT": self.attempt,
            "TORCHELASTIC_MAX_RESTARTS": spec.max_restarts,
            "TORCHELASTIC_RUN_ID": spec.rdzv_handler.get_run_id(),
            "TORCHELASTIC_USE_AGENT_STORE": True,
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        }
        return {key: str(value) for key, value in told.items()}

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """How the ranks are: done only when those of all hosts are, so that a host can still be called back."""
        self._note(self.server.exits())
        failed = {rank: code for rank, code in self.exits.items() if code != 0}
        ended = self.news.ending or self._verdict_at_times()
        stopped = self._stopped_too_long()
        if failed or stopped or ended in GIVEN_UP or self._is_overdue(ended):
            missed_by_nobody = bool(stopped) and not failed
            return self._judge(
                describe(failed) if failed else stopped, LAST_CHANCE_S if missed_by_nobody else LEAVING_S
            )
        if self.alive or not self._others_are_done():
            return RunResult(WorkerState.HEALTHY)
        self._tell_ending()
        return RunResult(WorkerState.SUCCEEDED, return_values=dict.fromkeys(self.exits, 0))

    def _is_overdue(self, ended: str | None) -> bool:
        """Whether a rank is still there long after the run was complete: stopped, or stuck in somebody's clean-up."""
        if ended in COMPLETE:
            self.complete_since = self.complete_since or time.monotonic()
        since = self.complete_since
        return bool(self.alive) and since is not None and time.monotonic() - since > LEFT_WITHIN_S

    def _stopped_too_long(self) -> str:
        """Which rank is stopped for longer than ranks wait for each other, in words."""
        most_s = self.news.timeout_s or self.ranks.timeout_s
        found = self.watch.stopped_for(self.alive)
        late = [self.alive[pid] for pid, since_s in found.items() if since_s > most_s + MISSED_FIRST_S]
        return f"rank {min(late)} was stopped for more than {most_s:g} s (timeout_s)" if late else ""

    def _note(self, exits: list[Exit]) -> None:
        for ended in exits:
            if (rank := self.alive.pop(ended.pid, None)) is not None:
                self.exits[rank] = ended.code

    def _judge(self, why: str, leaving_s: float) -> RunResult:
        """After a failure: whether the run has ended for good all the same, and else why it starts again."""
        began = time.monotonic()
        while self.alive and (since_s := time.monotonic() - began) < self._patience_s(leaving_s):
            self._kill(filter(is_stopped, self.alive))  # which cannot leave by themselves
            if since_s > leaving_s:
                self._kill(pid for pid, rank in self.alive.items() if rank > 0)
            self._note(self.server.exits(0.02))
        self._shutdown()
        own, verdict = self.news.ending, self._verdict()
        if verdict in COMPLETE:  # all is written: a rank that was killed later is no loss
            self.exits = dict.fromkeys(self.exits, 0)
            return RunResult(WorkerState.HEALTHY)
        allowed, left = self._worker_group.spec.max_restarts, self._remaining_restarts
        asked_to_stop = self.news.stop_is_asked()
        if self._has_failed_for_good():
            self._remaining_restarts = 0
        if told := self._told_elsewhere():
            say(told)
        if verdict not in GIVEN_UP:
            say(f"{why}; {what_follows(allowed, left, asked_to_stop=asked_to_stop)}")
        elif own is None and not told:
            say("another host has ended the job")
        self.judged = True
        if self._remaining_restarts == 0:
            self._give_up(verdict or FAILED)
        return RunResult(WorkerState.FAILED)

    def _has_failed_for_good(self) -> bool:
        """Whether ranks that have failed are not started again."""
        verdict, may_start = self._verdict(), self._remaining_restarts > 0 and not self.news.stop_is_asked()
        return verdict in GIVEN_UP or (verdict is None and not may_start)

    def _patience_s(self, leaving_s: float) -> float:
        """How long ranks may take to leave: rank 0 long enough to tell its trackers of an end that is for good."""
        tells = self.news.trackers_s > 0 and 0 in self.alive.values() and self._has_failed_for_good()
        return self.news.trackers_s + LEFT_BY_0_S if tells else leaving_s

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        """End the ranks, since all are to start again; none is left when this returns."""
        self._shutdown()
        if not self.judged:
            say(
                f"{self._told_elsewhere() or 'a rank of another host failed, or that host left'}; all ranks start again"
            )

    def _kill(self, pids: Iterable[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it has ended, which the server is about to tell
                os.kill(pid, signal.SIGKILL)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGKILL, timeout: int = 30) -> None:
        self._note(self.server.exits())
        self._kill(self.alive)
        end = time.monotonic() + GONE_WITHIN_S
        while self.alive and time.monotonic() < end:
            self._note(self.server.exits(0.02))
        self.output.drain(READ_WITHIN_S)

    # Leaving together.

    @property
    def is_done(self) -> bool:
        """Whether the ranks of this host have left in peace: host 0, which has the stores, may be gone then."""
        return self.done_since is not None

    def _others_are_done(self) -> bool:
        """Whether the ranks of all hosts have left in peace, or there is nothing to wait for any more."""
        if len(self.hosts) == 1:
            return True
        self.done_since = self.done_since or time.monotonic()
        try:
            self.store.set(f"dfl_dist/done/{self.ranks.host}", "")
            return self._all_are_done() or time.monotonic() - self.done_since > OTHERS_WITHIN_S
        except RuntimeError:  # host 0 has seen that all are done, and is gone
            return True

    def _exit_barrier(self) -> None:
        """Nothing to wait for: `_monitor_workers` has."""

    def _give_up(self, word: str) -> None:
        """Tell the other hosts that the run is not to be started again; host 0, which has the store, leaves last."""
        with contextlib.suppress(RuntimeError):
            self._worker_group.spec.rdzv_handler.set_closed()  # type: ignore[no-untyped-call]
        with contextlib.suppress(RuntimeError):
            self.store.set(VERDICT, word)
            self.store.set(f"dfl_dist/done/{self.ranks.host}", "")
            end = time.monotonic() + LAST_WORDS_S
            while self.ranks.host == 0 and time.monotonic() < end and not self._all_are_done():
                time.sleep(0.05)
        self._tell_ending()

    def _all_are_done(self) -> bool:
        return bool(self.store.check([f"dfl_dist/done/{host}" for host in self.hosts]))

    def _verdict(self) -> str | None:
        """How the run ended for good, where a rank or an agent of any host has said so."""
        return self.news.ending or self._word(VERDICT)

    def _told_elsewhere(self) -> str | None:
        """Why the ranks failed, where a rank of another host has said so."""
        host, _, why = (self._word(WHY) or "").partition(" ")
        return f"host {host}: {why}" if why and int(host) != self.ranks.host else None

    def _word(self, key: str) -> str | None:
        """What somebody has left in the ranks' store."""
        try:
            return self.store.get(key).decode() if self.store.check([key]) else None
        except RuntimeError:
            return None

    def _verdict_at_times(self) -> str | None:
        """The same, looked up about once a second; on one host the ranks tell it themselves."""
        if len(self.hosts) == 1 or time.monotonic() - self.looked_at < LOOKED_UP_EVERY_S:
            return None
        self.looked_at = time.monotonic()
        return self._verdict()

    def _tell_ending(self) -> None:
        """Pass on to this host's command what another host's ranks have said."""
        if self.news.ending is None and (verdict := self._verdict()):
            self.news.hear(json.dumps({"ending": verdict}).encode())
