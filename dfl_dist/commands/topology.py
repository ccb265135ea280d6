"""`dfl-dist topology`: what graphs do to averaging and to the network, without training."""

import gc
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dfl_dist import job
from dfl_dist.arguments import parse
from dfl_dist.build import load_dataset, make_module
from dfl_dist.commands import topology_plot
from dfl_dist.commands.options import check_picture, split
from dfl_dist.config import SETTINGS, Config, known, refusal, replace
from dfl_dist.connectivity import Averaging, Mixing, average, diameter, make_mixing, smallest_window
from dfl_dist.data.datasets import DATASETS
from dfl_dist.progress import count
from dfl_dist.runtime import World
from dfl_dist.schedule import FILE, NAMES, SERVER, Schedule
from dfl_dist.tables import show
from dfl_dist.topology import hops

UNCHANGING = frozenset({"ring", "directed_ring", "grid", "exponential", "full"})
SAME_FOR_ALL = UNCHANGING | {"one_peer_exponential"}  # every client sees the same graph around itself
INDIFFERENT = {
    "rank0": "client",
    "participation": None,
    "server_lr": 1.0,
}  # whatever a config says of ranks and servers
ROUNDS = 100
COLUMNS = 8  # numbers that each client starts the averaging with
SMALL_ERROR = 1e-6
MOST_EDGES = 5_000_000  # in a round
MOST_EDGES_KEPT = 50_000_000  # in all rounds together, of graphs that change

OPTIONS = {
    "plot": "a file for a picture: the graph of a round, and consensus error against rounds",
    "round": "the round whose graph is in the picture, from 0 (default: 0)",
    "parameters": "parameters of the model, for bytes/round (default: those of model.name)",
}
USEFUL = ("algorithm", "num_clients", "rounds", "seed", "overlap", *(key for key in SETTINGS if key[:6] == "graph."))
LEGEND = {
    "weights": "how a client shares its mass with its out-neighbours",
    "out-degree": "clients that a client pushes to, itself not counted: fewest-most over all rounds",
    "in-degree": "clients that push to a client, counted the same way",
    "B": "the smallest window: every B rounds in a row, everybody reaches everybody",
    "diameter": "steps between the two clients farthest apart, over the edges of the first B rounds together",
    "q": "factor on the consensus error a round, measured over the second half: 1 never averages, 0 averages exactly",
    "δ": "the smallest push-sum weight w that any client had",
    "rounds to 1e-6": "rounds until the consensus error is a millionth of what it was",
    "edges/round": "pushes from a client to another in an exchange, mean over the rounds",
    "bytes/round": "what all clients together send in a round, as bytes_sent in metrics.jsonl",
}


@dataclass(frozen=True)
class Study:
    """What is known of one graph."""

    config: Config
    weights: str
    rounds: list[Mixing]
    window: int | None
    diameter: int | None
    averaging: Averaging

    @property
    def edges_a_round(self) -> float:
        return float(np.mean([len(mixing.shares) for mixing in self.rounds]))


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(help_text())
        return 0
    words = split(argv, OPTIONS)
    own, kinds = words.own, dict.fromkeys(words.plain)
    given = {"rounds": ROUNDS, **parse(words.settings), **INDIFFERENT}
    configs = [settle(given, kind) for kind in kinds] or [settle(given)]
    first = configs[0]
    shown_round = whole("round", own.get("round", "0"), 0, first.rounds - 1)
    if "plot" in own:
        check_picture(Path(own["plot"]))
    parameters = whole("parameters", own["parameters"], 1) if "parameters" in own else count_parameters(first)
    schedules = [job.make_schedule(config) for config in configs]
    gc.freeze()  # graphs are millions of small objects; else the collector looks through all of torch's as well, often
    studies = [study(config, schedule) for config, schedule in zip(configs, schedules, strict=True)]
    if "plot" in own:
        draw(Path(own["plot"]), studies, shown_round)
    print(report(studies, parameters))
    if any(schedule.needs_losses for schedule in schedules):
        print("\nby_loss: there are no losses without training, so clients pick uniformly here, as in round 0 of a run")
    if "plot" in own:
        print(f"\npicture: {own['plot']}")
    return 0


def help_text() -> str:
    settings = [[f"  --{key} V", str(SETTINGS[key].metadata["help"])] for key in USEFUL]
    return "\n".join(
        [
            "usage: dfl-dist topology [KIND ...] [--plot FILE] [--round T] [--parameters D] [--KEY VALUE ...]",
            "",
            "What graphs do to averaging and to the network, without training; several are compared.",
            "",
            f"KIND: {', '.join(name for name in NAMES if name != SERVER)} (default: that of the settings)",
            "",
            show(
                ["  --config FILE", "a YAML file of settings"],
                [[f"  --{key} V", text] for key, text in OPTIONS.items()],
            ),
            "",
            f"All settings of a run may be given; these matter here (rounds: {ROUNDS} if not given):",
            show(settings[0], settings[1:]),
        ]
    )


def whole(key: str, text: str, low: int, high: int | None = None) -> int:
    """A whole number within bounds, from an option."""
    if not text.isdecimal() or int(text) < low or (high is not None and int(text) > high):
        raise refusal(key, text, f"a whole number, {low} {'or more' if high is None else f'to {high}'}")
    return int(text)


def settle(given: dict[str, Any], kind: str | None = None) -> Config:
    """The settings in force, as in a run, with one kind of graph; refused where there is none, or too much of it."""
    if kind is not None:
        given = given | {"graph.kind": kind, "graph.file": given.get("graph.file") if kind == FILE else None}
    config = job.settle(replace(Config(), given), World())
    kind, rounds = known(config.graph.kind), config.rounds
    if kind == SERVER:
        raise refusal(
            "graph.kind", kind, f"{', '.join(name for name in NAMES if name != SERVER)}: a server has no graph"
        )
    if kind in UNCHANGING:
        config = replace(config, {"graph.static": True})  # drawn once
    edges, clients = expected_edges(config), f"{config.num_clients} clients"
    if edges > MOST_EDGES:
        raise refusal("graph.kind", f"{kind} of {clients}, {edges:,} edges a round", f"at most {MOST_EDGES:,}")
    if not config.graph.static and edges * rounds > MOST_EDGES_KEPT:
        raise refusal("rounds", f"{rounds} of {kind}, {edges:,} edges each", f"at most {MOST_EDGES_KEPT // edges}")
    return config


def expected_edges(config: Config) -> int:
    """About how many edges a round has, before any is drawn; 0 for a file, which is small enough to be read."""
    n, graph = known(config.num_clients), config.graph
    drawn = known(graph.out_degree)
    degrees = {
        "ring": 2,
        "directed_ring": 1,
        "grid": 4,
        "exponential": len(hops(n)),
        "one_peer_exponential": 1,
        "erdos_renyi": (graph.p or 0.0) * (n - 1),
        "full": n - 1,
        FILE: 0,
    }
    return int(n * degrees.get(known(graph.kind), drawn))


def count_parameters(config: Config) -> int:
    """The size of the model that the settings name."""
    source = DATASETS.get(config.data.name)
    classes = source.classes if source else len(load_dataset(config.data).classes)
    module = make_module(config.model.name, classes)
    return sum(parameter.numel() for parameter in module.parameters())


def study(config: Config, schedule: Schedule) -> Study:
    """Draw the graphs of all rounds and find out about them."""
    arrays = lru_cache(maxsize=16)(make_mixing)  # the graph of a period is made once, and known again as the same
    rounds, weights = [], set()
    for round_idx in range(config.rounds):
        graph: Any = schedule.graph(round_idx, None)
        weights.add(graph.weights)
        rounds.append(arrays(graph))
    window = smallest_window([mixing.edges for mixing in rounds])
    farthest = None
    if window is not None:
        union = list(dict.fromkeys(mixing.edges for mixing in rounds[:window]))
        farthest = diameter(union, sources=[0] if config.graph.kind in SAME_FOR_ALL else None)
    start = np.random.default_rng(config.seed).normal(size=(known(config.num_clients), COLUMNS))
    found = average(rounds, start, gossip_steps=config.graph.gossip_steps, overlap=config.overlap)
    return Study(config, "/".join(sorted(weights)), rounds, window, farthest, found)


# What is shown.


def report(studies: list[Study], parameters: int) -> str:
    """The table, a row a graph, and what its columns mean."""
    table = show(["graph", *LEGEND], [table_row(found, parameters) for found in studies])
    return (
        f"{headline(studies[0].config, parameters)}\n{table}\n\n{show(('graph', 'graph.kind'), list(LEGEND.items()))}"
    )


def headline(config: Config, parameters: int) -> str:
    """The settings that all rows of the table have in common."""
    parts = [count(known(config.num_clients), "client"), count(config.rounds, "round"), f"seed {config.seed}"]
    parts += [f"overlap {config.overlap}"] if config.overlap else []
    parts += [f"{config.graph.gossip_steps} gossip steps a round"] if config.graph.gossip_steps > 1 else []
    return ", ".join([*parts, f"a model of {parameters:,} parameters in {config.dtype}"])


def table_row(found: Study, parameters: int) -> list[str]:
    """The row of a graph, in the order of the legend."""
    config, averaging = found.config, found.averaging
    reached = averaging.rounds_until(SMALL_ERROR)
    row_bytes = parameters * np.dtype(config.dtype).itemsize + 8  # x, and w as float64
    return [
        known(config.graph.kind),
        found.weights,
        spread([np.diff(mixing.edges.ahead[0]) for mixing in set(found.rounds)]),
        spread([np.diff(mixing.edges.behind[0]) for mixing in set(found.rounds)]),
        "never" if found.window is None else str(found.window),
        "never" if found.diameter is None else str(found.diameter),
        f"{averaging.contraction:.3g}",
        f"{averaging.smallest_weight:.3g}",
        f"over {config.rounds}" if reached is None else str(reached),
        f"{found.edges_a_round:,.0f}",
        human(found.edges_a_round * row_bytes * config.graph.gossip_steps),
    ]


def spread(degrees: list[np.ndarray]) -> str:
    """The fewest and the most, once where they are the same."""
    low, high = min(int(each.min()) for each in degrees), max(int(each.max()) for each in degrees)
    return str(low) if low == high else f"{low}-{high}"


def human(size_bytes: float) -> str:
    """Bytes in a unit that a person reads."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size_bytes < 999.5 or unit == "TB":
            break
        size_bytes /= 1000
    return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.3g} {unit}"


def draw(path: Path, studies: list[Study], round_idx: int) -> None:
    """Write the picture."""
    first = studies[0]
    curves = {known(found.config.graph.kind): found.averaging.errors for found in studies}
    topology_plot.draw(
        path,
        first.rounds[round_idx].edges,
        title=f"{first.config.graph.kind}, round {round_idx}",
        curves=curves,
        mark=SMALL_ERROR,
    )
