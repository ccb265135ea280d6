"""`--dry-run`: what a start would run, where, and what it takes; refused as a start is, and nothing begun."""

import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from dfl_dist.config.help import sections
from dfl_dist.config.resolve import origin
from dfl_dist.config.schema import SETTINGS, Config
from dfl_dist.config.values import format_value, get, replace
from dfl_dist.data import partition
from dfl_dist.distributed.devices import Claim, choose_backend
from dfl_dist.distributed.world import World
from dfl_dist.run_folder.job import Plan
from dfl_dist.system import resident_bytes
from dfl_dist.text import count, format_bytes, format_table
from dfl_dist.topology.graph import RoundGraph, Server
from dfl_dist.topology.schedule import Schedule
from dfl_dist.training.build import Built, graph_schedule, pick_device
from dfl_dist.training.costs import (
    Memory,
    bytes_per_round,
    checkpoint_bytes,
    checkpoints_kept,
    count_edges,
    rank_memory,
)
from dfl_dist.training.layout import Layout, lay_out
from dfl_dist.training.prepare import PARTITION, Prepared, find_folder, prepare
from dfl_dist.training.screen import LOOKED_AT, describe_graph, describe_shares, headline
from dfl_dist.training.user_code import UserCode

FLAG = "--dry-run"
NOTHING = "dry run: no process is started, no run folder made"
WIDTH = 100


@dataclass(frozen=True)
class DryRun:
    """A run that could begin: what is in force, from where, and all that a start would build on rank 0."""

    given: Mapping[str, Any]
    plan: Plan
    config: Config  # with what this host and the folder add to the plan's
    built: Built
    shards: partition.Partition
    layout: Layout
    schedule: Schedule
    graphs: Sequence[RoundGraph]  # of the first rounds; by loss as if all losses were the same


def dry_run(given: Mapping[str, Any], world: World) -> str:
    """What a start with these settings would do, as text."""
    resident = resident_bytes()
    prepared = prepare(given, world, UserCode())
    folder = find_folder(prepared.plan)
    if prepared.built is None:
        return f"{NOTHING}\nthis job has finished its run, in {os.path.relpath(folder)}: nothing is left to do"
    found = examine(given, prepared, prepared.built, folder, world)
    parts = [
        [NOTHING, headline_of(found, world), *tell_folder(found.plan, folder)],
        *tell_settings(found),
        tell_graphs(found),
        tell_clients(found),
        tell_bytes(found),
        tell_memory(found, world, resident),
        tell_checkpoints(found),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts)


def examine(given: Mapping[str, Any], prepared: Prepared, built: Built, folder: Path, world: World) -> DryRun:
    """All that there is to tell, before it is put into words."""
    plan, shards = prepared.plan, prepared.shards
    config = in_force(plan.resolved, folder, world)
    if shards is None:
        shards = partition.load(folder / PARTITION, range(config.num_clients))
    start = plan.start.rounds_done if plan.start else 0
    schedule = graph_schedule(config)
    graphs = [schedule.graph(number, None) for number in islice(range(start, max(config.rounds, start + 1)), LOOKED_AT)]
    return DryRun(given, plan, config, built, shards, lay_out_of(config, world), schedule, graphs)


def lay_out_of(config: Config, world: World) -> Layout:
    return lay_out(config.num_clients, world.size, coordinator=config.rank0 == "coordinator")


def in_force(config: Config, folder: Path, world: World) -> Config:
    """The settings as resolved.yaml would have them, taking other hosts to be like this one."""
    ranks = [World(rank, world.size, rank, world.local_size, world.torchrun) for rank in range(world.local_size)]
    devices = [pick_device(config, rank) for rank in ranks]
    hosting = [rank for rank, block in enumerate(lay_out_of(config, world).blocks[: len(ranks)]) if block]
    numbers = {rank: 1 + (devices[rank].index or 0) if devices[rank].type == "cuda" else 0 for rank in hosting}
    backend = choose_backend(config.backend, {rank: Claim(host=0, gpu=number) for rank, number in numbers.items()})
    here = {"out": str(folder), "backend": backend, "device": devices[-1].type, "threads": torch.get_num_threads()}
    return replace(config, here)


# In words.


def headline_of(found: DryRun, world: World) -> str:
    config = found.config
    return headline(config, world.size, config.device, config.backend, found.built.model.size)


def tell_folder(plan: Plan, folder: Path) -> list[str]:
    """Where the run would be kept, and from which state it would go on."""
    shown = os.path.relpath(folder)
    if plan.start is None:
        return [f"run folder: {shown}, which is new"]
    if plan.start.checkpoint is None:
        return [f"run folder: {shown}, where this job has no checkpoint yet: from the start"]
    done = count(plan.start.rounds_done, "round")
    return [f"goes on after {done} in {shown}, from {os.path.relpath(plan.start.checkpoint)}"]


def tell_settings(found: DryRun) -> list[list[str]]:
    """Every setting in force, by section, and where its value comes from."""
    values = {key: get(found.config, key) for key in SETTINGS}
    values["out"] = os.path.relpath(values["out"])
    rows = {key: [f"  {key}", format_value(value), origin_of(found, key)] for key, value in values.items()}
    first, *others = rows.values()
    lines = dict(zip(rows, format_table(first, others).splitlines(), strict=True))
    return [[f"{title}:", *(lines[spec.key] for spec in settings)] for title, settings in sections()]


def origin_of(found: DryRun, key: str) -> str:
    """Where a setting's value in force comes from."""
    planned = get(found.plan.resolved if key == "out" and key in found.given else found.config, key)
    found_in = origin(key, planned, found.given, found.config)
    if found.plan.start is not None and found_in != "asked":
        return "the run"
    one_process = len(found.layout.client_ranks) < found.config.num_clients
    return "default" if found_in == "ranks" and one_process else found_in


def tell_graphs(found: DryRun) -> list[str]:
    """What the graphs are, and how soon they connect all clients."""
    config = found.config
    connects, line = describe_graph(config, found.schedule)
    lines = ["Graphs:", f"  {'' if connects else 'warning: '}{line.removeprefix('graph: ')}"]
    if found.schedule.needs_losses:
        lines.append("  drawn by the clients' losses: how soon they connect all is known only while the run goes on")
    degrees = [len(row) - 1 for graph in found.graphs if not isinstance(graph, Server) for row in graph.out]
    if degrees:
        weights = {graph.weights for graph in found.graphs}
        lines.append(f"  out-degree {span(degrees)}, {' or '.join(sorted(weights))} weights")
    return lines


def tell_clients(found: DryRun) -> list[str]:
    """Who holds what, and on which rank."""
    dataset = found.built.dataset
    table = partition.counts(found.shards, dataset.train_targets, len(dataset.classes))
    lines = textwrap.indent(describe_shares(table), "  ").splitlines()
    return ["Clients:", *lines, *indent(tell_layout(found.layout))]


def tell_layout(layout: Layout) -> str:
    """Which ranks host which clients."""
    idle = "" if layout.blocks[0] else "; rank 0 is the coordinator and hosts none"
    if layout.largest_block == 1:
        first = layout.client_ranks[0]
        return f"one on each rank, client 0 on rank {first}{idle}"
    blocks = [f"{block.start}-{block.stop - 1} on rank {rank}" for rank, block in enumerate(layout.blocks) if block]
    return f"clients {', '.join(blocks)}{idle}"


def tell_bytes(found: DryRun) -> list[str]:
    """What the clients push to one another, x and w."""
    sizes = [bytes_per_round(found.config, found.built.model, graph) for graph in found.graphs]
    if min(sizes) == max(sizes):
        told = f"{sizes[0]:,} bytes per round ({format_bytes(sizes[0])})"
    else:
        mean = round(sum(sizes) / len(sizes))
        told = f"{mean:,} bytes per round ({format_bytes(mean)}) in the mean of {count(len(sizes), 'round')}, "
        told += f"{min(sizes):,} to {max(sizes):,}"
    left = found.config.rounds - (found.plan.start.rounds_done if found.plan.start else 0)
    total = sum(sizes) * left / len(sizes)
    return ["Sent by clients to others:", f"  {told}", f"  {format_bytes(total)} in {count(left, 'round')}"]


def tell_memory(found: DryRun, world: World, resident: int) -> list[str]:
    """What a rank keeps, and what it takes beside that for a while."""
    rank, memory = memory_of(found)
    copy, hosted = found.built.model.params.nbytes, len(found.layout.blocks[rank])
    a_while = "more, for a while" + ("; at most, by the same graphs" if found.config.overlap else "")
    rows = [
        ("the model", memory.model, "parameters, gradient, momentum, one for the exchange: 4 copies"),
        (f"its {count(hosted, 'client')}", memory.clients, "x, and as much to sum up in: 2 copies each"),
        ("frames", memory.frames, f"at most, by the graphs of {count(len(found.graphs), 'round')}"),
        ("shards", memory.shards, "the samples of its clients"),
        ("test set", memory.test, "all of it, on every rank"),
        ("in all", memory.kept, f"a copy of the model is {format_bytes(copy)}"),
        ("evaluating", memory.evaluation, a_while),
        ("saving", memory.checkpoint, a_while),
        ("the process", resident, "Python and torch, as here; the ranks of dfl-dist launch share most of it"),
    ]
    cells = [[f"  {name}", format_bytes(size).rjust(7), text] for name, size, text in rows]
    title = f"Memory of rank {rank}, which holds most" if world.size > 1 else "Memory"
    return [f"{title} (without what a mini-batch takes):", *format_table(cells[0], cells[1:]).splitlines()]


def memory_of(found: DryRun) -> tuple[int, Memory]:
    config, built = found.config, found.built
    return rank_memory(
        config, found.layout, built.model, built.dataset, found.shards, found.graphs, backend=config.backend
    )


def tell_checkpoints(found: DryRun) -> list[str]:
    """What checkpoints take on the disk."""
    config, kept = found.config, checkpoints_kept(found.config)
    edges = cache(lambda round_idx: count_edges(found.schedule.graph(round_idx, None)))
    looked_at = (kept or [config.rounds - 1])[-max(1, LOOKED_AT // max(1, config.overlap)) :]
    sizes = [checkpoint_bytes(config, found.built.model, rounds_done, edges) for rounds_done in looked_at]
    each = " to ".join(dict.fromkeys(map(format_bytes, (min(sizes), max(sizes)))))
    if not kept:
        told = "none, but a run that is stopped early leaves one"
    else:
        total = format_bytes(sum(sizes) * len(kept) / len(sizes))
        told = f"at the end of the run the newest {len(kept)} are there: {total}"
        if config.overlap and len(sizes) < len(kept):
            told += f", by the sizes of the last {len(sizes)}"
    return ["Checkpoints on the disk:", f"  {each} each; {told}"]


def span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def indent(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
