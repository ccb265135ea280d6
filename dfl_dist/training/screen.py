"""What a person is told of a run: what begins, what its graphs do, how it ended, how to go on."""

import json
import logging
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from dfl_dist.config.meaning import means_something
from dfl_dist.config.schema import SETTINGS, Config
from dfl_dist.data.partition import distances
from dfl_dist.distributed.world import World
from dfl_dist.errors import is_of_disk
from dfl_dist.run_folder.job import Job
from dfl_dist.run_folder.status import COMMAND
from dfl_dist.text import count, format_table
from dfl_dist.topology.connectivity import connected_within, make_edges, smallest_window
from dfl_dist.topology.graph import Graph
from dfl_dist.topology.kinds import KINDS
from dfl_dist.topology.schedule import Schedule
from dfl_dist.training.progress import Progress

log = logging.getLogger(__name__)
UNCONNECTED = "the graphs of %s together are not strongly connected: some clients never learn from some others"
COMPLETE = "complete: every client pushes to all others in every round"
LOOKED_AT = 50  # rounds whose graphs are looked at before a run, and more only where they do not connect all


def summary(folder: Path, end: str, scores: Mapping[str, float], *, go_on: str | None = None) -> str:
    """How a run ended, where its results are, and how to go on where it was stopped."""
    lines = [
        end,
        f"mean model: test accuracy {scores['test_accuracy']:.2%}, test loss {scores['test_loss']:.4f}",
        f"consensus distance: {scores['consensus_distance']:.3g}",
        f"results: {os.path.relpath(folder)} (model.pt, metrics.jsonl, checkpoints)",
    ]
    if go_on is not None:
        lines.append(f"go on with: {go_on}")
    return "\n".join(lines)


@dataclass(frozen=True)
class End:
    """How a run ended, as rank 0 tells all hosts: a sentence, the rounds that are done, whether there is more to do."""

    sentence: str
    rounds_done: int
    goes_on: bool

    def to_text(self) -> str:
        return json.dumps(vars(self))

    @classmethod
    def from_text(cls, text: str) -> "End":
        return cls(**json.loads(text))


def tell_end(folder: Path, end: End, scores: Mapping[str, float], go_on: str) -> None:
    print(summary(folder, end.sentence, scores, go_on=go_on if end.goes_on else None), flush=True)


class HostScreen:
    """What the people at a host without rank 0 see of a run, by its first rank: its rounds, and how it ends."""

    def __init__(self, job: Job, go_on: str) -> None:
        self.folder, self.first, self.go_on = job.folder, job.rounds_done, go_on
        self.progress = Progress(done=job.rounds_done, rounds=job.resolved.rounds)

    def show(self, done: int) -> None:
        """Show that so many rounds are done, and the next one begins."""
        if done == self.first:
            self.progress.start()
        self.progress.show(done)

    def tell_end(self, end: End, scores: Mapping[str, float]) -> None:
        self.progress.show(end.rounds_done)
        self.progress.close()
        tell_end(self.folder, end, scores, self.go_on)


def tell_part(job: Job, world: World) -> None:
    """Say at a host without rank 0 what its ranks take part in, and where it is kept."""
    config, shown = job.resolved, os.path.relpath(job.folder)
    last = world.rank + world.local_size - 1
    ranks = f"ranks {world.rank} to {last}" if world.local_size > 1 else f"rank {world.rank}"
    clients = count(config.num_clients, "client")
    what = f"{config.algorithm} on {config.data.name}, {clients} on {count(world.size, 'rank')}"
    log.info("host %d has %s: %s", world.host, ranks, what)
    if job.checkpoint:
        log.info("goes on after %s in %s", count(job.rounds_done, "round"), shown)
    else:
        log.info("run folder: %s", shown)


def command_to_go_on(folder: Path) -> str:
    """The whole command line that goes on with a run, as far as this process can tell how it was started."""
    env, resume = os.environ, f"--resume {shlex.quote(os.path.relpath(folder))}"
    if command := env.get(COMMAND):
        return f"{command} {resume}"
    if "RANK" not in env:
        return f"python -m dfl_dist.train {resume}"
    ranks = env.get("LOCAL_WORLD_SIZE")
    if ranks is None or ranks != env.get("WORLD_SIZE"):
        return f"the same command on each host, with {resume}"
    return f"torchrun --nproc_per_node={ranks} -m dfl_dist.train {resume}"


def call_to_go_on(folder: Path) -> str:
    """The same for a script."""
    return f'the same call of dfl_dist.train, with "resume": "{os.path.relpath(folder)}"'


def tell_finished_already(folder: Path, done: int, rounds: int, scores: Mapping[str, float]) -> None:
    """Say that nothing is left to do, after a start that came in the last second of a run."""
    shown = os.path.relpath(folder)
    print(
        summary(folder, f"the run in {shown} is finished already, after round {done} of {rounds}", scores), flush=True
    )


def headline(config: Config, ranks: int, device: str, backend: str, parameters: int) -> str:
    """A run in one line."""
    clients, processes = count(config.num_clients, "client"), count(ranks, "rank")
    model = f"{config.model.name} with {parameters} parameters"
    return f"{config.algorithm} on {config.data.name}: {clients} on {processes} ({device}, {backend}), {model}"


def tell_start(job: Job, backend: str, places: Sequence[tuple[str, str]], parameters: int) -> None:
    """Say once what begins here, on what, and where it is kept; places: host and device of each rank."""
    config, shown = job.resolved, os.path.relpath(job.folder)
    log.info("%s", headline(config, len(places), places[-1][1], backend, parameters))
    on_gpus = [place for place in places if place[1].startswith("cuda")]
    if len(set(on_gpus)) < len(on_gpus):
        ranks, gpus = count(len(on_gpus), "rank"), count(len(set(on_gpus)), "GPU")
        log.info("%s share %s: models go over gloo, through pinned host memory", ranks, gpus)
    if job.checkpoint:
        log.info("goes on after %s in %s; anything recorded later is dropped", count(job.rounds_done, "round"), shown)
    else:
        log.info("run folder: %s", shown)
    if idle := without_effect(config, job.asked):
        log.info("without effect here: %s", ", ".join(idle))


def without_effect(config: Config, asked: Mapping[str, Any]) -> list[str]:
    """The settings that were asked for and change nothing, given the others."""
    return [key for key, value in asked.items() if value != SETTINGS[key].default and not means_something(config, key)]


def tell_graph(config: Config, schedule: Schedule) -> None:
    """Say how soon everybody hears of everybody, and warn where that never happens."""
    connects, line = describe_graph(config, schedule)
    log.log(logging.INFO if connects else logging.WARNING, "%s", line)


def describe_graph(config: Config, schedule: Schedule) -> tuple[bool, str]:
    """Whether everybody hears of everybody, and how soon, in words; by loss only the end can tell."""
    num_clients, kind = config.num_clients, config.graph.kind
    if KINDS[kind].is_server:
        trained = len(schedule.graph(0, None).clients)
        return True, f"graph: none, a server averages {trained} of {count(num_clients, 'client')} per round"
    if schedule.needs_losses:
        complete = f", {COMPLETE}" if config.graph.out_degree >= num_clients - 1 > 0 else ""
        return True, f"graph: {kind}, {config.graph.weights} weights{complete}"
    rounds = (schedule.graph(round_idx, None) for round_idx in range(config.rounds))
    graphs = (graph for graph in rounds if isinstance(graph, Graph))
    first = list(islice(graphs, LOOKED_AT))
    edges = lru_cache(maxsize=None)(make_edges)  # of a graph that comes again the very same, as the search wants it
    looked_at = f" of the first {LOOKED_AT}" if config.rounds > LOOKED_AT else ""
    if num_clients > 1 and all(len(row) == num_clients for graph in first for row in graph.out):
        return True, f"graph: {kind}, {COMPLETE}{looked_at}"
    if window := smallest_window([edges(graph) for graph in first]):
        every = "every round" if window == 1 else f"every {window} rounds in a row"
        return True, f"graph: {kind}, strongly connected over {every}{looked_at}"
    if within := connected_within(chain(first, graphs)):
        return True, f"graph: {kind}, strongly connected over the first {count(within, 'round')}"
    return False, UNCONNECTED % count(config.rounds, "round")


def describe_shares(table: np.ndarray) -> str:
    """Who holds how much of what, summed up, given the counts of each client and class: [clients, classes]."""
    sizes, kinds, far = table.sum(axis=1), np.count_nonzero(table, axis=1), distances(table)
    meaning = "from the classes of the whole set, as total variation: 0 is alike, 1 has nothing in common"
    return format_table(
        ["samples per client", f"{sizes.min():,} to {sizes.max():,}"],
        [
            ["classes per client", f"{kinds.min()} to {kinds.max()}, {kinds.mean():.1f} on average"],
            ["distance", f"{far.min():.2f} to {far.max():.2f}, {far.mean():.2f} on average; {meaning}"],
        ],
    )


def tell_report(folder: Path) -> None:
    """Write what a person wants to look at, and say where it is; the run itself is done, whatever happens here."""
    try:
        from dfl_dist.report.at_end import write_report

        print(write_report(folder, os.path.relpath(folder)), flush=True)
    except Exception as error:
        told = "the report could not be written: %s; the run is complete without it"
        log.warning(told, error, exc_info=not is_of_disk(error))


def set_up_logging(rank: int, *, tells: bool) -> None:
    """The first rank of each host tells what happens, the others only what is wrong, and so do other libraries."""
    logging.basicConfig(level=logging.WARNING, format=form_of(rank), stream=sys.stderr, force=True)
    logging.getLogger("dfl_dist").setLevel(told_by(tells))


@contextmanager
def telling(rank: int, *, tells: bool) -> Iterator[None]:
    """The same in a user's own process, for the time of a run; where it has set up logging itself, that is in force."""
    ours = logging.getLogger("dfl_dist")
    if ours.hasHandlers():
        yield
        return
    handler, level = logging.StreamHandler(sys.stderr), ours.level
    handler.setFormatter(logging.Formatter(form_of(rank)))
    ours.addHandler(handler)
    ours.setLevel(level or told_by(tells))
    try:
        yield
    finally:
        ours.setLevel(level)
        ours.removeHandler(handler)


def told_by(tells: bool) -> int:
    return logging.INFO if tells else logging.WARNING


def form_of(rank: int) -> str:
    return f"[rank {rank}] %(message)s"
