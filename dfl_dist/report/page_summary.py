"""What a page says first: in a sentence what was reached, in words what was run, in numbers how well."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dfl_dist.config.names import choose
from dfl_dist.config.schema import Local
from dfl_dist.report.groups import Group, label_group
from dfl_dist.report.measures import MEASURES, RANKED_BY, Measure, Reached, measure, shown_measures, total
from dfl_dist.report.paper_table import data_set_name, method_name
from dfl_dist.report.read import Run
from dfl_dist.report.statistics import summarise
from dfl_dist.topology.kinds import KINDS


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
        if row.column and row.is_tile
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


def page_measures(target: float | None) -> dict[str, Measure]:
    """The measures in the order of the page: what needs a target comes last."""
    return dict(sorted(shown_measures(target).items(), key=lambda item: item[1].needs_target))


def page_columns(target: float | None) -> list[dict[str, str]]:
    """The columns of the table that compares groups."""
    return [{"label": fill_in(row.label, target), "form": row.form} for row in page_measures(target).values()]


def fill_in(label: str, target: float | None) -> str:
    return label if target is None else label.format(target=f"{100 * target:g} %")


def compare_group(group: Group, target: float | None) -> dict[str, Any]:
    """A group's row in that table: over how many seeds, rounds done, and a mean and deviation for each column."""
    summary = summarise(group, target)
    rounds = sorted({len(run.lines) for run in summary.runs})
    spreads = [summary.over_seeds[name] for name in page_measures(target)]
    return {
        "label": name_group(group),
        "seeds": len(summary.runs),
        "left_out": [str(run.folder) for run in summary.left_out],
        "rounds": "–".join(map(str, dict.fromkeys((rounds[0], rounds[-1])))),
        "finished": summary.finished,
        "scores": [{"mean": one.mean, "std": one.std, "missing": one.missing, "values": one.values} for one in spreads],
    }


def name_group(group: Group) -> str:
    """A group by its method and what else tells it apart."""
    return label_group(method_name(group.runs[0]), group.settings)


def describe_state(run: Run) -> dict[str, str]:
    """Whether a run came to its end, for a badge: its tone and the words."""
    rounds, asked = len(run.lines), run.config.rounds
    if run.diverged is not None:
        return {"tone": "bad", "text": f"diverged in round {run.diverged} of {asked}"}
    if rounds >= asked:
        return {"tone": "good", "text": f"finished, {count(rounds, 'round')}"}
    if not rounds:
        return {"tone": "open", "text": "no round recorded yet"}
    ended = run.environment().get("finished_after") == rounds
    return {"tone": "open", "text": f"{'stopped early' if ended else 'not finished'}, {rounds} of {asked} rounds"}


# In a sentence.


def headline(groups: Sequence[Group]) -> str:
    """The page in one sentence."""
    runs = [run for group in groups for run in group.runs]
    if not runs:
        return "No runs to report on"
    return tell_run(runs[0]) if len(runs) == 1 else tell_groups(groups, runs)


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


def tell_groups(groups: Sequence[Group], runs: Sequence[Run]) -> str:
    data = ", ".join(dict.fromkeys(map(data_set_name, runs)))
    methods = len({run.config.algorithm for run in runs})
    noun = "method" if methods == len(groups) else "setting"
    what = f"{count(len(groups), noun)}, {count(len(runs), 'run')} on {data}"
    pairs = zip((summarise(group, None).score for group in groups), groups, strict=True)
    reached = [(mean, spread, group) for spread, group in pairs if (mean := spread.mean) is not None]
    if not reached:
        return f"{what}: not evaluated yet"
    mean, spread, group = max(reached, key=lambda found: found[0])
    score = f"{100 * mean:.2f}" + ("" if spread.std is None else f" ± {100 * spread.std:.2f}") + " %"
    score += f" over {count(len(spread.values), 'seed')}"
    return f"{what}: {name_group(group)} reached {'the highest mean accuracy, ' if len(groups) > 1 else ''}{score}"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# In words.


def describe_run(run: Run) -> list[tuple[str, str]]:
    """What was run: names, and some words for each."""
    return [(name, tell(run)) for name, tell in ABOUT.items()]


def tell_data(run: Run) -> str:
    data = run.config.data
    ways = {
        "iid": "split evenly at random",
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
