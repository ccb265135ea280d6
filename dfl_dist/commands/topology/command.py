"""`dfl-dist topology`: what graphs do to averaging and to the network, without training."""

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dfl_dist.commands.options import check_picture, settings_help, split
from dfl_dist.commands.topology import plot
from dfl_dist.commands.topology.study import Study, count_parameters, make_study, study_settings
from dfl_dist.config.parse import parse
from dfl_dist.config.schema import SETTINGS, Config
from dfl_dist.distributed.frames import FrameFormat
from dfl_dist.errors import refusal
from dfl_dist.text import count, format_bytes, format_table, help_page
from dfl_dist.topology.kinds import KINDS
from dfl_dist.training.build import graph_schedule

if TYPE_CHECKING:  # it is an extra, and slow to import
    from matplotlib.figure import Figure

ROUNDS = 100
SMALL_ERROR = 1e-6
OPTIONS = {
    "plot": "a file for a picture: every graph in a round, and consensus error against rounds",
    "round": "the round whose graphs are in the picture, from 1 (default: 1)",
    "parameters": "parameters of the model, for bytes/round (default: those of model.name)",
}
USEFUL = ("algorithm", "num_clients", "rounds", "seed", "overlap", *(key for key in SETTINGS if key[:6] == "graph."))
LEGEND = {
    "weights": "how a client shares its mass with its out-neighbours",
    "out-degree": "clients that a client pushes to, itself not counted: fewest-most over all rounds",
    "in-degree": "clients that push to a client, counted the same way",
    "B": "the smallest window: within every B consecutive rounds, every client reaches every other",
    "diameter": "steps between the two clients farthest apart, over the edges of the first B rounds together",
    "q": "factor on the consensus error per round, measured over the second half: 1 never averages, 0 averages exactly",
    "δ": "the smallest push-sum weight w that any client had",
    "rounds to 1e-6": "rounds until the consensus error is a millionth of what it was",
    "edges/round": "pushes from a client to another in an exchange, mean over the rounds",
    "bytes/round": "what all clients together send in a round, as bytes_sent in metrics.jsonl",
}


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(help_text())
        return 0
    words = split(argv, OPTIONS)
    own, kinds = words.own, dict.fromkeys(words.plain)
    given: dict[str, Any] = {"rounds": ROUNDS, **parse(words.settings)}
    configs = [study_settings(given, kind) for kind in kinds] or [study_settings(given)]
    first = configs[0]
    shown_round = whole_number("round", own.get("round", "1"), 1, first.rounds)
    if "plot" in own:
        check_picture(Path(own["plot"]))
    parameters = whole_number("parameters", own["parameters"], 1) if "parameters" in own else count_parameters(first)
    schedules = [graph_schedule(config) for config in configs]
    gc.freeze()  # graphs are millions of small objects; else the collector looks through all of torch's as well, often
    studies = [make_study(config, schedule) for config, schedule in zip(configs, schedules, strict=True)]
    if "plot" in own:
        plot.write(Path(own["plot"]), draw(studies, shown_round))
    print(report(studies, parameters))
    if by_loss := [c.graph.kind for c, schedule in zip(configs, schedules, strict=True) if schedule.needs_losses]:
        why = "there are no losses without training, so clients pick uniformly here, as in the first round of a run"
        print(f"\n{', '.join(by_loss)}: {why}")
    if "plot" in own:
        print(f"\npicture: {own['plot']}")
    return 0


def help_text() -> str:
    kinds = ", ".join(name for name, kind in KINDS.items() if not kind.is_server)
    return help_page(
        "usage: dfl-dist topology [KIND ...] [--plot FILE] [--round T] [--parameters D] [--KEY VALUE ...]",
        "What graphs do to averaging and to the network, without training; several are compared.",
        f"KIND: {kinds} (default: that of the settings)",
        {"--config FILE": "a YAML file of settings"} | {f"--{key} V": text for key, text in OPTIONS.items()},
        f"All settings of a run may be given; these matter here (rounds: {ROUNDS} if not given):",
        settings_help(USEFUL),
    )


def whole_number(key: str, text: str, low: int, high: int | None = None) -> int:
    """A whole number within bounds, from an option."""
    if not text.isdecimal() or int(text) < low or (high is not None and int(text) > high):
        raise refusal(key, text, f"a whole number, {low} {'or more' if high is None else f'to {high}'}")
    return int(text)


def report(studies: list[Study], parameters: int) -> str:
    """The table, one row per graph, and what its columns mean."""
    table = format_table(["graph", *LEGEND], [table_row(found, parameters) for found in studies])
    legend = format_table(("graph", "graph.kind"), list(LEGEND.items()))
    return f"{headline(studies[0].config, parameters)}\n{table}\n\n{legend}"


def headline(config: Config, parameters: int) -> str:
    """The settings that all rows of the table have in common."""
    parts = [count(config.num_clients, "client"), count(config.rounds, "round"), f"seed {config.seed}"]
    parts += [f"overlap {config.overlap}"] if config.overlap else []
    parts += [f"{config.graph.gossip_steps} gossip steps per round"] if config.graph.gossip_steps > 1 else []
    return ", ".join([*parts, f"a model of {parameters:,} parameters in {config.dtype}"])


def table_row(found: Study, parameters: int) -> list[str]:
    """The row of a graph, in the order of the legend."""
    config, averaging = found.config, found.averaging
    reached = averaging.rounds_until(SMALL_ERROR)
    push_bytes = FrameFormat(parameters, getattr(torch, config.dtype)).bytes_sent(1)
    return [
        config.graph.kind,
        found.weights,
        format_range([np.diff(mixing.edges.ahead[0]) for mixing in set(found.rounds)]),
        format_range([np.diff(mixing.edges.behind[0]) for mixing in set(found.rounds)]),
        "never" if found.window is None else str(found.window),
        "never" if found.diameter is None else str(found.diameter),
        f"{averaging.contraction:.3g}",
        f"{averaging.smallest_weight:.3g}",
        f"over {config.rounds}" if reached is None else str(reached),
        f"{found.edges_per_round:,.0f}",
        format_bytes(found.edges_per_round * push_bytes * config.graph.gossip_steps),
    ]


def format_range(degrees: list[np.ndarray]) -> str:
    """The fewest and the most, once where they are the same."""
    low, high = min(int(each.min()) for each in degrees), max(int(each.max()) for each in degrees)
    return str(low) if low == high else f"{low}-{high}"


def draw(studies: list[Study], round_number: int) -> "Figure":
    """The picture of all graphs."""
    return plot.draw(
        {found.config.graph.kind: found.rounds[round_number - 1].edges for found in studies},
        round_number=round_number,
        curves={found.config.graph.kind: found.averaging.errors for found in studies},
        small_error=SMALL_ERROR,
    )
