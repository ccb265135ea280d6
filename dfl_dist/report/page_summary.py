"""What a page says first: in a sentence what was reached, in words what was run, in numbers how well."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from dfl_dist.config import word
from dfl_dist.report.groups import Group
from dfl_dist.report.paper_table import DATA_SETS, METHODS
from dfl_dist.report.runs import Run, finite
from dfl_dist.report.statistics import LAST_ROUNDS, Spread, measure, summarise

# The columns of the table that compares groups: what it is called, how it is written, which measure it is.
COLUMNS = (
    ("final accuracy", "percent", "final_accuracy"),
    ("best accuracy", "percent", "best_accuracy"),
    (f"mean of last {LAST_ROUNDS}", "percent", "last_accuracy"),
    ("test loss", "number", "test_loss"),
    ("clients’ own", "percent", "client_accuracy_mean"),
    ("lowest client", "percent", "client_accuracy_min"),
    ("highest client", "percent", "client_accuracy_max"),
    ("consensus", "number", "consensus_distance"),
    ("lowest w", "number", "push_weight_min"),
    ("highest w", "number", "push_weight_max"),
    ("sent", "bytes", "bytes_sent"),
    ("time", "seconds", "seconds"),
)


def read_scores(run: Run, target: float | None = None) -> dict[str, Any]:
    """What a run has reached, and after which rounds; None for what was not measured or is not finite."""
    scores = asdict(measure(run, target))
    each = next((line for line in reversed(run.lines) if "client_accuracy_mean" in line), None)
    best = (line for line in run.evaluated if finite(line, "test_accuracy") == scores["best_accuracy"])
    return scores | {
        "last_rounds": LAST_ROUNDS,
        "target": target,
        "final_round": done(run.evaluated[-1]) if run.evaluated else None,
        "best_round": done(next(best)) if scores["best_accuracy"] is not None else None,
        "clients_round": done(each) if each else None,
        "rounds": len(run.lines),
    }


def columns(target: float | None) -> list[tuple[str, str, str]]:
    """The columns of the table, with one more where an accuracy is to be reached."""
    reached = [] if target is None else [(f"rounds to {100 * target:g} %", "number", "rounds_to_target")]
    return [*COLUMNS, *reached]


def compare_group(group: Group, target: float | None) -> dict[str, Any]:
    """A group's line in the table: over how many seeds, rounds done, and a mean and deviation for each column."""
    summary = summarise(group, target)
    rounds = sorted({len(run.lines) for run in summary.runs})
    spreads: list[Spread] = [getattr(summary.over_seeds, name) for _, _, name in columns(target)]
    return {
        "label": label(group),
        "seeds": len(summary.runs),
        "left_out": [str(run.folder) for run in summary.left_out],
        "rounds": "–".join(map(str, dict.fromkeys((rounds[0], rounds[-1])))),
        "finished": summary.finished,
        "scores": [{"mean": one.mean, "std": one.std, "missing": one.missing, "values": one.values} for one in spreads],
    }


def label(group: Group) -> str:
    """A group by its method and what else tells it apart."""
    others = (f"{key} {word(value)}" for key, value in group.settings.items() if key != "algorithm")
    return ", ".join([method(group.runs[0]), *others])


def done(line: dict[str, Any]) -> int:
    """Rounds done by the end of a line's; files count from 0."""
    return int(line["round"]) + 1


def state(run: Run) -> dict[str, str]:
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
    recorded, asked, scores = len(run.lines), run.config.rounds, read_scores(run)
    clients = f" with {count(run.config.num_clients, 'client')}" if run.config.num_clients else ""
    where = f"on {data_set(run)}{clients}"
    rounds = count(recorded, "round") if recorded >= asked else f"{recorded} of {count(asked, 'round')}"
    if run.diverged is not None:
        return f"{method(run)} diverged {where} in round {run.diverged} of {asked}"
    if scores["final_accuracy"] is None:
        return f"{method(run)} {where}: {rounds} done, not evaluated yet"
    late = "" if scores["final_round"] == recorded else f", last evaluated after round {scores['final_round']}"
    return f"{method(run)} reached {100 * scores['final_accuracy']:.2f} % {where} after {rounds}{late}"


def tell_groups(groups: Sequence[Group], runs: Sequence[Run]) -> str:
    data = ", ".join(dict.fromkeys(map(data_set, runs)))
    methods = len({run.config.algorithm for run in runs})
    noun = "method" if methods == len(groups) else "setting"
    what = f"{count(len(groups), noun)}, {count(len(runs), 'run')} on {data}"
    accuracies = [summarise(group, None).over_seeds.final_accuracy for group in groups]
    pairs = zip(accuracies, groups, strict=True)
    reached = [(mean, spread, group) for spread, group in pairs if (mean := spread.mean) is not None]
    if not reached:
        return f"{what}: not evaluated yet"
    mean, spread, group = max(reached, key=lambda found: found[0])
    score = f"{100 * mean:.2f}" + ("" if spread.std is None else f" ± {100 * spread.std:.2f}") + " %"
    score += f" over {count(len(spread.values), 'seed')}"
    return f"{what}: {label(group)} reached {'the highest mean accuracy, ' if len(groups) > 1 else ''}{score}"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def method(run: Run) -> str:
    return METHODS.get(run.config.algorithm, run.config.algorithm)


def data_set(run: Run) -> str:
    return DATA_SETS.get(run.config.data.name, run.config.data.name)


# In words.


def about(run: Run) -> list[tuple[str, str]]:
    """What was run, a line each: a name and some words."""
    return [(name, text) for name, tell in ABOUT.items() if (text := tell(run))]


def tell_data(run: Run) -> str:
    data = run.config.data
    ways = {
        "iid": "split evenly at random",
        "dirichlet": f"split by a Dirichlet distribution, α = {data.alpha:g}",
        "shards": f"split by label, {data.classes_per_client} classes a client asked for",
    }
    parts = [
        data_set(run),
        f"the first {data.limit:,} training samples" if data.limit else "",
        "cropped and mirrored by chance" if data.augment else "",
        ways.get(data.partition, data.partition),
    ]
    return ", ".join(part for part in parts if part)


def tell_clients(run: Run) -> str:
    ranks, clients = run.environment().get("world_size"), run.config.num_clients
    on_ranks = f" on {count(ranks, 'rank')}" if type(ranks) is int else ""
    return f"{clients:,}{on_ranks}" if clients else ""


def tell_graph(run: Run) -> str:
    graph = run.config.graph
    if graph.kind == "server":
        part = 100 * (run.config.participation or 1.0)
        return f"none: a server averages {part:.3g} % of the clients each round"
    parts = [
        (graph.kind or "").replace("_", " "),
        f"{count(graph.out_degree, 'out-neighbour')} a client" if graph.out_degree is not None else "",
        "the same every round" if graph.static else "",
        f"{graph.gossip_steps} exchanges a round" if graph.gossip_steps > 1 else "",
        f"pushed models arrive {count(run.config.overlap, 'round')} later" if run.config.overlap else "",
    ]
    return ", ".join(part for part in parts if part)


def tell_local(run: Run) -> str:
    local = run.config.local
    parts = [
        count(local.steps, "step") if local.steps else count(local.epochs, "epoch") if local.epochs else "",
        f"batches of {local.batch_size}" if local.batch_size else "the whole shard at once",
        f"learning rate {local.lr:g}" + (f", × {local.lr_decay:g} a round" if local.lr_decay != 1 else ""),
        f"momentum {local.momentum:g}" if local.momentum else "no momentum",
        f"SAM radius {local.rho:g}" if local.rho else "plain gradient",
    ]
    return ", ".join(part for part in parts if part)


ABOUT: dict[str, Callable[[Run], str]] = {
    "Method": method,
    "Data": tell_data,
    "Clients": tell_clients,
    "Graph": tell_graph,
    "Local work": tell_local,
    "Model": lambda run: run.config.model.name,
    "Seed": lambda run: str(run.config.seed),
    "Folder": lambda run: str(run.folder),
}
