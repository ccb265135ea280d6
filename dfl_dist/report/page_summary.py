"""What a page says first: in a sentence what was reached, in words what was run, in numbers how well."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dfl_dist.config.names import choose
from dfl_dist.config.schema import Local
from dfl_dist.report.groups import PARTITION
from dfl_dist.report.measures import MEASURES, RANKED_BY, Reached, measure, total
from dfl_dist.report.names import data_set_name, method_name
from dfl_dist.report.page_table import fill_in, page_measures
from dfl_dist.report.paper_table import Cell, Column, Grid
from dfl_dist.report.read import Run
from dfl_dist.report.states import RUNNING
from dfl_dist.topology.kinds import KINDS

RUNNING_NOW = {"tone": "good", "text": RUNNING}  # the state of a run at work, which its folder does not tell
MOST_NAMES = 3  # in a sentence; more are counted
TONES = {"good": "finished", "bad": "diverged", "open": "not finished"}


def make_tiles(run: Run, target: float | None) -> list[dict[str, Any]]:
    """The numbers of a run, each with its name, how it is written and what stands below it."""
    found = measure(run, target)
    return [
        {
            "name": name,
            "label": fill_in(row.label, target),
            "form": row.form,
            "value": found[name].value,
            "detail": tell_detail(found, name, len(run.lines)),
        }
        for name, row in page_measures(target).items()
        if row.column and row.is_tile and not (row.is_optional and found[name].value is None)
    ]


def tell_detail(found: Mapping[str, Reached], name: str, rounds: int) -> list[Any]:
    """What stands below a number: a text, and the numbers that the page writes in place of each {}."""
    row, reached = MEASURES[name], found[name]
    if row.detail:
        return [row.detail]
    if row.low and row.high:
        ends = [found[row.low].value, found[row.high].value]
        return ["not evaluated"] if None in ends else ["{} to {}", *ends]
    if row.reduce is total:
        return [""] if reached.value is None else ["{} per round", reached.value / rounds]
    return ["not evaluated yet" if reached.round is None else f"after round {reached.round}"]


def count_states(states: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """How many runs are at work and how many came to their end, for badges; of a single run, its state."""
    if len(states) == 1:
        return list(states)
    running = states.count(RUNNING_NOW)
    tones = Counter(state["tone"] for state in states if state != RUNNING_NOW)
    found = [("good", running, RUNNING), *((tone, tones[tone], word) for tone, word in TONES.items())]
    return [{"tone": tone, "text": f"{number:,} {word}"} for tone, number, word in found if number]


def describe_state(run: Run) -> dict[str, str]:
    """Whether a run came to its end, for a badge: its tone and the words."""
    rounds, asked = len(run.lines), run.config.rounds
    if run.diverged is not None:
        return {"tone": "bad", "text": f"diverged in round {run.diverged} of {asked}"}
    if run.is_finished and run.ended_by:
        return {"tone": "good", "text": f"finished by {run.ended_by}, {rounds} of {asked} rounds"}
    if run.is_finished:
        return {"tone": "good", "text": f"finished, {count(rounds, 'round')}"}
    if not rounds:
        return {"tone": "open", "text": "no round recorded yet"}
    ended = run.environment().get("finished_after") == rounds
    return {"tone": "open", "text": f"{'stopped early' if ended else 'not finished'}, {rounds} of {asked} rounds"}


# In a sentence.


def headline(runs: Sequence[Run], grid: Grid) -> str:
    """The page in one sentence; which row is the best is said only where rows can be compared."""
    if not runs:
        return "No runs to report on"
    if len(runs) == 1:
        return tell_run(runs[0])
    if len(grid.rows) == 1 or (differ_in_one_thing(grid) and any(map(all, columns_of(grid)))):
        return f"{tell_what(runs, grid)}: {tell_best(grid)}"
    methods = list(dict.fromkeys(map(method_name, runs)))
    whose = join(methods) if len(methods) <= MOST_NAMES else count(len(methods), "method")
    open_end = "" if any(map(is_best, grid.cells)) else ": not evaluated yet"
    return f"{count(len(runs), 'run')} of {whose} on {tell_data_sets(grid)}{open_end}"


def tell_run(run: Run) -> str:
    recorded, asked, final = len(run.lines), run.config.rounds, measure(run, None)[RANKED_BY]
    name, where = method_name(run), f"on {data_set_name(run)} with {count(run.config.num_clients, 'client')}"
    rounds = count(recorded, "round") if recorded >= asked else f"{recorded} of {count(asked, 'round')}"
    if run.diverged is not None:
        return f"{name} diverged {where} in round {run.diverged} of {asked}"
    if final.value is None:
        return f"{name} {where}: {rounds} done, not evaluated yet"
    late = "" if final.round == recorded else f", last evaluated after round {final.round}"
    return f"{name} reached {100 * final.value:.2f} % {where} after {rounds}{late}"


def differ_in_one_thing(grid: Grid) -> bool:
    """Whether each row is another method, or all are one method with other values of one setting."""
    groups = [next(filter(None, cells)).summary.group for cells in grid.rows.values()]
    if len({group.method for group in groups}) == len(groups):
        return True
    keys = {key for group in groups for key in group.settings} - {*PARTITION, "data.name"}
    return sum(len({repr(group.settings.get(key)) for group in groups}) > 1 for key in keys) == 1


def columns_of(grid: Grid) -> list[tuple[Cell | None, ...]]:
    return list(zip(*grid.rows.values(), strict=True))


def tell_what(runs: Sequence[Run], grid: Grid) -> str:
    """How much is compared, and on what."""
    methods = list(dict.fromkeys(map(method_name, runs)))
    if len(grid.rows) == 1:
        what = methods[0]
    elif len(methods) == 1:
        what = f"{methods[0]} with {count(len(grid.rows), 'setting')}"
    else:
        what = count(len(grid.rows), "method")
    return f"{what}, {count(len(runs), 'run')} on {tell_data_sets(grid)}"


def tell_data_sets(grid: Grid) -> str:
    """The data sets, and how many partitions they have where that is more than one each."""
    data_sets = list(dict.fromkeys(column.data_set for column in grid.columns))
    partitions = len(grid.columns)
    return join(data_sets) + (f", {count(partitions, 'partition')}" if partitions > len(data_sets) else "")


def tell_best(grid: Grid) -> str:
    """Which row is the best, in how many columns; those in which a run is missing or has no number do not count."""
    told = [all(cells) and not any(map(is_awaited, filter(None, cells))) for cells in columns_of(grid)]
    best = {
        row: {
            column: cell
            for column, cell, counts in zip(grid.columns, cells, told, strict=True)
            if counts and cell and is_best(cell)
        }
        for row, cells in grid.rows.items()
    }
    most, of = max(map(len, best.values())), len(grid.columns)
    rows = [row for row, cells in best.items() if len(cells) == most]
    if not most:
        return "not all evaluated yet" if any(map(is_best, grid.cells)) else "not evaluated yet"
    if len(grid.rows) == 1:
        return f"mean accuracy {tell_scores([*best[rows[0]].values()])}"
    same_method = len({row.split(", ")[0] for row in grid.rows}) == 1
    names = [row.split(", ", 1)[-1] if same_method else row for row in rows]
    who = join(names if len(names) <= MOST_NAMES else [names[0], f"{len(names) - 1} others"])
    if of == 1:
        return f"{who} reached the highest mean accuracy, {tell_scores([*best[rows[0]].values()])}"
    if most == len(rows) == 1:
        return f"{who} reached the highest mean accuracy on {tell_column(next(iter(best[rows[0]])), grid.columns)}"
    where = most if most < of else "both" if of == 2 else f"all {of}"
    return f"{who} {'each ' if len(names) > 1 else ''}reached the highest mean accuracy on {where} of them"


def tell_column(column: Column, columns: Sequence[Column]) -> str:
    """A column by what tells it from the others: its data set, its partition, or both."""
    data_sets = [other.data_set for other in columns]
    names = {column.data_set: len(set(data_sets)) > 1, column.words: data_sets.count(column.data_set) > 1}
    return ", ".join(name for name, tells in names.items() if tells)


def is_best(cell: Cell) -> bool:
    """Whether nothing in its column is better; a cell alone has no place."""
    return cell.place in (0, 1) and cell.summary.score.mean is not None


def is_awaited(cell: Cell) -> bool:
    """Whether it has no number yet; a run that diverged gets none."""
    return cell.summary.score.mean is None and all(run.diverged is None for run in cell.summary.runs)


def tell_scores(cells: Sequence[Cell]) -> str:
    """The accuracy of a cell, or the lowest and the highest of several."""
    spreads = [cell.summary.score for cell in cells]
    means = [100 * (spread.mean or 0.0) for spread in spreads]
    if len(cells) > 1:
        return f"from {min(means):.2f} to {max(means):.2f} %"
    deviation = "" if spreads[0].std is None else f" ± {100 * spreads[0].std:.2f}"
    return f"{means[0]:.2f}{deviation} % over {count(len(spreads[0].values), 'seed')}"


def join(names: Sequence[str]) -> str:
    """Names in a sentence: a, b and c."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# In words.


def describe_run(run: Run) -> list[tuple[str, str]]:
    """What was run: names, and some words for each."""
    return [(name, tell(run)) for name, tell in ABOUT.items()]


def describe_common(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """The part of that which all runs have in common."""
    return [(name, words.pop()) for name, tell in ABOUT.items() if len(words := {tell(run) for run in runs}) == 1]


def tell_data(run: Run) -> str:
    data = run.config.data
    ways = {
        "iid": "split evenly at random",
        "file": f"split as {data.file} says",
        "dirichlet": f"split by a Dirichlet distribution, α = {data.alpha:g}",
        "shards": f"split by label, {data.classes_per_client} classes per client asked for",
    }
    parts = [
        data_set_name(run),
        f"the first {data.limit:,} training samples" if data.limit else "",
        "cropped and mirrored by chance" if data.augment else "",
        ways.get(data.partition, data.partition),
    ]
    return ", ".join(part for part in parts if part)


def tell_clients(run: Run) -> str:
    ranks, clients = run.environment().get("world_size"), run.config.num_clients
    on_ranks = f" on {count(ranks, 'rank')}" if type(ranks) is int else ""
    return f"{clients:,}{on_ranks}"


def tell_graph(run: Run) -> str:
    graph = run.config.graph
    kind = choose("graph.kind", graph.kind, KINDS)
    if kind.is_server:
        return f"none: a server averages {100 * run.config.participation:.3g} % of the clients each round"
    parts = [
        graph.kind.replace("_", " "),
        f"{count(graph.out_degree, 'out-neighbour')} per client" if kind.uses == "out_degree" else "",
        "the same every round" if graph.static else "",
        f"{graph.gossip_steps} exchanges per round" if graph.gossip_steps > 1 else "",
        f"pushed models arrive {count(run.config.overlap, 'round')} later" if run.config.overlap else "",
    ]
    return ", ".join(part for part in parts if part)


def tell_schedule(local: Local) -> str:
    """How the learning rate changes from round to round."""
    decay = f", × {local.lr_decay:g} per round" if local.lr_decay != 1 else ""
    change = {"exponential": decay, "cosine": ", along a cosine to 0", "constant": ""}[local.schedule]
    return change + (f", warmed up over {count(local.warmup_rounds, 'round')}" if local.warmup_rounds else "")


def tell_local(run: Run) -> str:
    local = run.config.local
    amounts = {"step": local.steps, "epoch": local.epochs}  # one of them
    parts = [
        *(count(number, noun) for noun, number in amounts.items() if number is not None),
        f"batches of {local.batch_size}" if local.batch_size else "the whole shard at once",
        f"learning rate {local.lr:g}{tell_schedule(local)}",
        f"momentum {local.momentum:g}" if local.momentum else "no momentum",
        f"SAM radius {local.rho:g}" if local.rho else "plain gradient",
    ]
    return ", ".join(parts)


ABOUT: dict[str, Callable[[Run], str]] = {
    "Method": method_name,
    "Data": tell_data,
    "Clients": tell_clients,
    "Graph": tell_graph,
    "Local work": tell_local,
    "Model": lambda run: run.config.model.name,
    "Seed": lambda run: str(run.config.seed),
    "Folder": lambda run: str(run.folder),
}
