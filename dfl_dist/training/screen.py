"""What rank 0 tells a person of a run: what begins, what its graphs do, how it ended, how to go on."""

import logging
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

from dfl_dist.config.schema import Config
from dfl_dist.run_folder.job import Job
from dfl_dist.run_folder.status import COMMAND
from dfl_dist.text import count
from dfl_dist.topology.connectivity import connected_within, make_edges, smallest_window
from dfl_dist.topology.graph import Graph
from dfl_dist.topology.kinds import KINDS
from dfl_dist.topology.schedule import Schedule

log = logging.getLogger(__name__)
UNCONNECTED = "the graphs of %s together are not strongly connected: some clients never learn from some others"
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


def tell_finished_already(folder: Path, rounds: int, scores: Mapping[str, float]) -> None:
    """Say that nothing is left to do, after a start that came in the last second of a run."""
    shown = os.path.relpath(folder)
    print(
        summary(folder, f"the run in {shown} is finished already, after round {rounds} of {rounds}", scores), flush=True
    )


def tell_start(job: Job, backend: str, places: Sequence[tuple[str, str]], parameters: int) -> None:
    """Say once what begins here, on what, and where it is kept; places: host and device of each rank."""
    config, shown = job.resolved, os.path.relpath(job.folder)
    log.info(
        "%s on %s: %s on %s (%s, %s), %s with %d parameters",
        *(config.algorithm, config.data.name, count(config.num_clients, "client"), count(len(places), "rank")),
        *(places[-1][1], backend, config.model.name, parameters),
    )
    on_gpus = [place for place in places if place[1].startswith("cuda")]
    if len(set(on_gpus)) < len(on_gpus):
        ranks, gpus = count(len(on_gpus), "rank"), count(len(set(on_gpus)), "GPU")
        log.info("%s share %s: models go over gloo, through pinned host memory", ranks, gpus)
    if job.checkpoint:
        log.info("goes on after %s in %s; anything recorded later is dropped", count(job.rounds_done, "round"), shown)
    else:
        log.info("run folder: %s", shown)


def tell_graph(config: Config, schedule: Schedule) -> None:
    """Say how soon everybody hears of everybody, and warn where that never happens; by loss only the end can tell."""
    num_clients, kind = config.num_clients, config.graph.kind
    if KINDS[kind].is_server:
        trained = len(schedule.graph(0, None).clients)
        log.info("graph: none, a server averages %d of %s per round", trained, count(num_clients, "client"))
    elif schedule.needs_losses:
        log.info("graph: %s, %s weights", kind, config.graph.weights)
    else:
        rounds = (schedule.graph(round_idx, None) for round_idx in range(config.rounds))
        graphs = (graph for graph in rounds if isinstance(graph, Graph))
        first = list(islice(graphs, LOOKED_AT))
        edges = lru_cache(maxsize=None)(make_edges)  # of a graph that comes again the very same, as the search wants it
        if window := smallest_window([edges(graph) for graph in first]):
            every = "every round" if window == 1 else f"every {window} rounds in a row"
            looked_at = f" of the first {LOOKED_AT}" if config.rounds > LOOKED_AT else ""
            log.info("graph: %s, strongly connected over %s%s", kind, every, looked_at)
        elif within := connected_within(chain(first, graphs)):
            log.info("graph: %s, strongly connected over the first %s", kind, count(within, "round"))
        else:
            log.warning(UNCONNECTED, count(config.rounds, "round"))


def tell_report(folder: Path) -> None:
    """Write what a person wants to look at, and say where it is; the run itself is done, whatever happens here."""
    try:
        from dfl_dist.report.at_end import write_report

        print(write_report(folder, os.path.relpath(folder)), flush=True)
    except Exception:
        log.warning("the report could not be written; the run is complete without it", exc_info=True)


def set_up_logging(rank: int) -> None:
    """Rank 0 tells what happens, the others only what is wrong."""
    logging.basicConfig(
        level=logging.INFO if rank == 0 else logging.WARNING,
        format=f"[rank {rank}] %(message)s",
        stream=sys.stderr,
        force=True,
    )
