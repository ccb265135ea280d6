"""How ranks meet and connect: the store, the control group of all ranks, the data group of those with clients."""

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from dfl_dist.distributed import positions, reach
from dfl_dist.distributed.waiting import blaming, has_timed_out
from dfl_dist.distributed.world import World
from dfl_dist.errors import ConfigError, PeerError, one_line, refusal
from dfl_dist.formats import FORMAT, UNNUMBERED
from dfl_dist.system import names_from_files

LONGEST_TIMEOUT = timedelta(days=1)
STARTUP_TIMEOUT_S = 600.0  # ranks start minutes apart on a busy host
CONNECT_TIMEOUT_S, CONNECT_TIMEOUT_S_PER_RANK = 60.0, 0.5  # but those that have met connect at once
MEETING_POLL_S = 0.02
WORD_WITHIN_S = 2.0
LEAVING_WITHIN_S = 2.0
NCCL_FAILURE = "exception_dump"
STORES: dict["World", Any] = {}  # those that this process has opened


def check_unconnected() -> None:
    """Refuse to begin where a process group is there already."""
    if dist.is_initialized():
        raise ConfigError("a process group is there already, allowed: none before dfl_dist.train, which makes its own")


def open_store(world: World, timeout_s: float) -> Any:
    """Where the ranks meet; kept, since a second run of this process meets there too, and rank 0 may be its host."""
    if not world.torchrun:
        return dist.HashStore()  # type: ignore[attr-defined]
    if world not in STORES:
        reach.check_store(world)
        with blaming("rank 0 to plan the run", timeout_s), names_from_files():
            timeout = timedelta(seconds=timeout_s)
            STORES[world], _, _ = next(rendezvous("env://", world.rank, world.size, timeout=timeout))
    return STORES[world]


def connect(world: World) -> dist.ProcessGroup:
    """Make the control group: gloo, all ranks."""
    store = meet(world, open_store(world, STARTUP_TIMEOUT_S), STARTUP_TIMEOUT_S)
    if world.size > 1:
        hosts = [int(host) for host in store.multi_get([f"here/{rank}" for rank in range(world.size)])]
        found = reach.check(world, store, hosts)
        with names_from_files():
            positions.start(world, store.clone(), *found)  # by its own connection: this one may be in use for minutes
    return make_group(world, store)


def make_group(world: World, store: Any) -> dist.ProcessGroup:
    """The control group of ranks that have met."""
    timeout = timedelta(seconds=connect_timeout_s(world.size))
    with connecting(world.rank, range(world.size), store, "connect to the control group", timeout.total_seconds()):
        dist.init_process_group("gloo", store=store, rank=world.rank, world_size=world.size, timeout=timeout)
    group: dist.ProcessGroup = dist.distributed_c10d._get_default_group()
    lengthen(group)
    return group


@contextlib.contextmanager
def connecting(rank: int, ranks: Sequence[int], store: Any, what: str, timeout_s: float) -> Iterator[None]:
    """Connect ranks, as `what` says; the error names a rank that did not come to do so."""
    positions.count_sent(what)
    store.set(f"{what}/{rank}", "")
    try:
        with positions.waiting_for(ranks, f"all ranks to {what}", (what, 1)):
            yield
    except (RuntimeError, ValueError) as error:
        missing: list[int] = []
        with contextlib.suppress(RuntimeError):  # the store may be gone too
            missing = [peer for peer in ranks if not store.check([f"{what}/{peer}"])]
        who = f"rank {missing[0]}" if missing else "all ranks"
        reason = f"nothing came within {timeout_s:g} s ({one_line(error).partition('. ')[0]})"
        silent = missing or (isinstance(error, RuntimeError) and has_timed_out(error))
        raise (positions.SilenceError if silent else PeerError)(f"waited for {who} to {what}: {reason}") from error


def connect_timeout_s(ranks: int) -> float:
    """How long ranks that have met may take to connect."""
    return min(STARTUP_TIMEOUT_S, CONNECT_TIMEOUT_S + CONNECT_TIMEOUT_S_PER_RANK * ranks)


def lengthen(group: dist.ProcessGroup) -> None:
    """Give a gloo group that is connected the longest timeout: every wait has its own, shorter one.

    The group's own counts from the posting of an operation, and what is posted ahead may wait for many rounds.
    """
    dist.distributed_c10d._set_pg_timeout(LONGEST_TIMEOUT, group)


def meet(world: World, store: Any, timeout_s: float) -> Any:
    """A store of this very start, once all ranks are there.

    A restarted torchrun keeps its store, with all that the ranks of the start before have left there; a second run of
    a script finds what the first has left. So each rank says hello with a word that nobody used before, and rank 0
    answers it with the name of this start. torchrun's own count of restarts does not name it: with several hosts, each
    counts its own.
    """
    timeout = timedelta(seconds=timeout_s)
    store.set(f"dfl_dist/format/{world.rank}", str(FORMAT))
    if world.rank == 0:
        forget_failure(store)
        name = secrets.token_hex(8)
        here = dist.PrefixStore(f"dfl_dist/{name}", store)  # type: ignore[attr-defined]
        here.set("here/0", str(world.host))
        welcome(world, store, here, name, timeout_s)
        return here
    word = secrets.token_hex(8)
    store.set(f"dfl_dist/hello/{world.rank}", word)
    with blaming("rank 0 to plan the run", timeout_s):
        store.wait([f"dfl_dist/start/{word}"], timeout)
        name = store.get(f"dfl_dist/start/{word}").decode()
    check_format(store, 0)
    here = dist.PrefixStore(f"dfl_dist/{name}", store)  # type: ignore[attr-defined]
    here.set(f"here/{world.rank}", str(world.host))
    for rank in range(world.size):
        with blaming(f"rank {rank} to start", timeout_s):
            here.wait([f"here/{rank}"], timeout)
    return here


def forget_failure(store: Any) -> None:
    """Remove what NCCL's watchdog has left in the store of a job that is started again.

    It writes below all prefixes; whoever finds that key takes the new start for one that has failed, and ends minutes
    later.
    """
    while isinstance(store, dist.PrefixStore):  # type: ignore[attr-defined]
        store = store.underlying_store
    store.delete_key(NCCL_FAILURE)


def check_format(store: Any, rank: int) -> None:
    """Refuse a rank, which has said hello, that would send frames of another format."""
    key = f"dfl_dist/format/{rank}"
    found = store.get(key).decode() if store.check([key]) else str(UNNUMBERED)
    if found != str(FORMAT):
        raise refusal("format", f"{found} by rank {rank}", f"{FORMAT}: the same version of dfl_dist on all hosts")


def welcome(world: World, store: Any, here: Any, name: str, timeout_s: float) -> None:
    """Rank 0: tell every rank that says hello the name of this start, until all have come."""
    missing, answered, end = list(range(1, world.size)), set(), time.monotonic() + timeout_s
    while missing:
        for rank in missing:
            if store.check([f"dfl_dist/hello/{rank}"]):
                word = store.get(f"dfl_dist/hello/{rank}").decode()  # one of the start before is answered in vain
                if word not in answered:
                    store.set(f"dfl_dist/start/{word}", name)
                    answered.add(word)
                check_format(store, rank)
        missing = [rank for rank in missing if not here.check([f"here/{rank}"])]
        if missing and time.monotonic() > end:
            words = f"waited for rank {missing[0]} to start: nothing came within {timeout_s:g} s"
            raise positions.SilenceError(words)
        time.sleep(MEETING_POLL_S if missing else 0)


def data_group(
    world: World, client_ranks: Sequence[int], *, backend: str, timeout_s: float, device: torch.device
) -> dist.ProcessGroup:
    """Make the data group: the ranks that host clients. Every rank calls this."""
    if device.type == "cuda":
        torch.cuda.set_device(device)  # NCCL takes the present one
    seconds, nccl = connect_timeout_s(world.size), backend == "nccl"
    timeout = LONGEST_TIMEOUT if nccl else timedelta(seconds=seconds)  # NCCL's watchdog ends the process after it
    store = dist.distributed_c10d._get_default_store()
    with connecting(world.rank, range(world.size), store, "connect to the data group", seconds):
        group: dist.ProcessGroup = dist.new_group(list(client_ranks), timeout=timeout, backend=backend)
    if world.rank in client_ranks:
        if nccl:
            with connecting(world.rank, client_ranks, store, "connect their GPUs", max(seconds, timeout_s)):
                connect_pairs(group, len(client_ranks), device, max(seconds, timeout_s))
        else:
            lengthen(group)
    return group


def connect_pairs(group: dist.ProcessGroup, size: int, device: torch.device, timeout_s: float) -> None:
    """Let every rank of a group send every other one a byte: the first message of a pair connects it.

    With NCCL that would otherwise happen whenever a graph first has that edge, and it waits there for ever.
    """
    errors: list[BaseException] = []

    def exchange() -> None:
        try:
            if device.type == "cuda":
                torch.cuda.set_device(device)  # each thread has its own
            sent, received = torch.zeros(2, size, dtype=torch.uint8, device=device)
            dist.all_to_all_single(received, sent, group=group)
            received.cpu()  # NCCL's calls return before anything is done
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=exchange, daemon=True, name="first contact")
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise RuntimeError("timed out")
    if errors:
        raise errors[0]


def is_first(event: str) -> bool:
    """Whether this rank is the first of this start to tell of an event; also where nobody can be asked."""
    try:
        return int(dist.distributed_c10d._get_default_store().add(f"first/{event}", 1)) == 1
    except (RuntimeError, ValueError):  # no group, or the store is gone
        return True


def leave_together() -> None:
    """Wait a moment for all ranks that have connected: when the first leaves, its launcher may end the others."""
    if dist.is_initialized():
        with contextlib.suppress(RuntimeError):  # one may be gone
            work = dist.all_reduce(torch.zeros(1), async_op=True)
            work.wait(timedelta(seconds=LEAVING_WITHIN_S))


def disconnect() -> None:
    positions.stop()
    if dist.is_initialized():
        dist.destroy_process_group()


def tell_word(key: str, word: str) -> None:
    """Leave word, such as how the job ended, in its store, where whoever would start its ranks again looks.

    The other ranks look into that of this start, since the job's may have what was left by earlier ones.
    """

    def tell() -> None:
        for store in (*STORES.values(), *own_store()):
            with contextlib.suppress(RuntimeError):  # it may be gone
                store.set(key, word)

    do_in_time(tell)


def hear_word(key: str) -> str:
    """The word that a rank of this start has left; empty where none has."""
    found = [""]

    def hear() -> None:
        for store in own_store():
            with contextlib.suppress(RuntimeError):
                if store.check([key]):
                    found.append(store.get(key).decode())

    do_in_time(hear)
    return found[-1]


def own_store() -> list[Any]:
    """The store of this start, once its ranks have connected."""
    return [dist.distributed_c10d._get_default_store()] if dist.is_initialized() else []


def do_in_time(action: Callable[[], None]) -> None:
    """Do something with a store, which would take minutes over a link that is cut."""
    thread = threading.Thread(target=action, daemon=True, name="last word")
    thread.start()
    thread.join(WORD_WITHIN_S)
