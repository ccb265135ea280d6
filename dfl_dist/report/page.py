"""report.html: one page that needs nothing but itself, for a run or for groups of runs that are compared."""

import html
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dfl_dist.checkpoint import write_atomic
from dfl_dist.config import SETTINGS, get, word
from dfl_dist.report.groups import Group
from dfl_dist.report.page_graphs import evenly, pack_graphs
from dfl_dist.report.page_summary import about, columns, compare_group, headline, read_scores, state
from dfl_dist.report.runs import Classes, Run
from dfl_dist.report.statistics import curve

TEMPLATE = Path(__file__).parent / "template"
SCRIPTS = (
    *("basics", "scales", "chart", "curves", "summary"),
    *("graph_circle", "graph_matrix", "graph_weights", "graph", "classes", "settings", "main"),
)
# How much of the page's data each part may take, over all runs together: a page stays below 5 MB.
GRAPH_CHARS, CLASS_CHARS, POINTS = 2_500_000, 600_000, 4_000
MOST_POINTS, FEWEST_POINTS = 500, 20  # of one group's curve
MOST_COLUMNS = 400  # clients in the picture of who holds which classes
CURVES = (
    *("train_loss", "test_loss", "test_accuracy", "consensus_distance", "push_weight_min", "push_weight_max"),
    *("client_accuracy_mean", "client_accuracy_min", "client_accuracy_max"),
)


def write_page(groups: Sequence[Group], path: Path, target: float | None = None) -> None:
    """Write the page of some groups of runs, whole or not at all; it also tells when they reached a target."""
    write_atomic(path, render(groups, target).encode())


def render(groups: Sequence[Group], target: float | None = None) -> str:
    """The page as text. Data goes in as JSON without any "<", so nothing in it can end the script or be markup."""
    data = gather(groups, target)
    parts = {
        "TITLE": html.escape(data["headline"]),
        "HEADLINE": html.escape(data["headline"]).replace(" %", "&nbsp;%").replace(" ± ", "&nbsp;±&nbsp;"),
        "STYLE": (TEMPLATE / "page.css").read_text(encoding="utf-8"),
        "DATA": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "SCRIPT": "\n".join((TEMPLATE / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS),
    }
    first, *pieces = (TEMPLATE / "page.html").read_text(encoding="utf-8").split("{{")
    filled = (piece.partition("}}") for piece in pieces)
    return first + "".join(parts[name] + rest for name, _, rest in filled)


def gather(groups: Sequence[Group], target: float | None) -> dict[str, Any]:
    """All that the page shows, as JSON can say it."""
    runs = [run for group in groups for run in group.runs]
    tables, held = gather_classes(runs)
    members = [number for number, group in enumerate(groups) for _ in group.runs]
    points = max(FEWEST_POINTS, min(MOST_POINTS, POINTS // max(1, len(groups))))
    return {
        "headline": headline(groups),
        "columns": [{"label": label, "form": form} for label, form, _ in columns(target)],
        "groups": [compare_group(group, target) | {"curves": gather_curves(group, points)} for group in groups],
        "settings": [[key, word(spec.default), spec.metadata["help"]] for key, spec in SETTINGS.items()],
        "classes": tables,
        "runs": [
            {"group": member, "classes": place, **describe(run, len(runs), target)}
            for run, member, place in zip(runs, members, held, strict=True)
        ],
    }


def describe(run: Run, num_runs: int, target: float | None) -> dict[str, Any]:
    """One run: what it was, what it reached, its graphs, settings and environment."""
    return {
        "name": run.folder.name or str(run.folder),
        "seed": run.config.seed,
        "state": state(run),
        "about": about(run),
        "scores": read_scores(run, target),
        "overlap": run.config.overlap,
        "gossip_steps": run.config.graph.gossip_steps,
        "graph": pack_graphs(run, GRAPH_CHARS // num_runs),
        "settings": [[word(get(run.config, key)), word(get(run.asked, key))] for key in SETTINGS],
        "environment": list(flat(run.environment())),
    }


def gather_curves(group: Group, most: int) -> dict[str, Any]:
    """The curves of a group over its seeds, at most so many points each, with the three things to draw them against."""
    found = {}
    for key in CURVES:
        drawn = curve(group, "rounds", key)
        chosen = evenly(len(drawn.x), most)
        found[key] = {
            "round": pick(drawn.x, chosen),
            "mb": pick(curve(group, "bytes", key).x / 1e6, chosen),
            "s": pick(curve(group, "seconds", key).x, chosen),
            "mean": pick(drawn.mean, chosen),
            "std": None if drawn.std is None else pick(drawn.std, chosen),
            "of": len(drawn.x),
        }
    return found


def pick(values: np.ndarray, chosen: Sequence[int]) -> list[float]:
    """Some of the numbers, to six digits; fewer where the sums that they are drawn against are not known so far."""
    return [float(f"{values[index]:.6g}") for index in chosen if index < len(values)]


def gather_classes(runs: Sequence[Run]) -> tuple[list[dict[str, Any]], list[int | None]]:
    """Who holds which classes: the tables, which runs of one seed mostly share, and the place of each run's among them.

    A run without a table that makes sense has no place.
    """
    found = [sound(run.classes()) for run in runs]
    texts = [None if classes is None else json.dumps([classes.names, classes.counts]) for classes in found]
    distinct = [text for text in dict.fromkeys(texts) if text is not None]
    tables = [thin_classes(*json.loads(text), most_chars=CLASS_CHARS // len(distinct)) for text in distinct]
    return tables, [None if text is None else distinct.index(text) for text in texts]


def thin_classes(names: list[str], counts: list[list[int]], *, most_chars: int) -> dict[str, Any]:
    """A table of classes in about so many characters: if need be of some clients only, evenly chosen."""
    each = len(json.dumps(counts)) // len(counts) + 1
    clients = evenly(len(counts), max(1, min(MOST_COLUMNS, most_chars // each)))
    return {"names": names, "clients": clients, "of": len(counts), "counts": [counts[client] for client in clients]}


def sound(found: Classes | None) -> Classes | None:
    """The table if every client has a count for every class."""
    if found is None or not (isinstance(found.names, list) and isinstance(found.counts, list) and found.counts):
        return None
    width = len(found.names)
    whole = all(
        isinstance(row, list) and len(row) == width and all(type(count) is int and count >= 0 for count in row)
        for row in found.counts
    )
    return Classes([str(name) for name in found.names], found.counts) if whole and width else None


def flat(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Nested facts as lines; of a list, each value once with how often it comes."""
    for key, entry in value.items():
        name = f"{prefix}{key}"
        if isinstance(entry, Mapping):
            yield from flat(entry, f"{name}: ")
        elif isinstance(entry, list):
            counts = Counter(map(word, entry))
            yield name, ", ".join(text if times == 1 else f"{text} × {times}" for text, times in counts.items())
        else:
            yield name, word(entry)
