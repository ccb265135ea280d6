"""report.html: one page that needs nothing but itself, for a run or for groups of runs that are compared."""

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dfl_dist.config.schema import SETTINGS
from dfl_dist.config.values import format_value, get
from dfl_dist.report.groups import Group
from dfl_dist.report.page_curves import AXES, gather_curves, plan_charts
from dfl_dist.report.page_graphs import evenly, pack_graphs
from dfl_dist.report.page_summary import (
    count_states,
    describe_common,
    describe_run,
    describe_state,
    headline,
    make_tiles,
)
from dfl_dist.report.page_table import compare_groups, gather_grid, place_group
from dfl_dist.report.paper_table import make_grid
from dfl_dist.report.read import Classes, Run
from dfl_dist.run_folder.files import write_atomic

TEMPLATE = Path(__file__).parent / "template"
SCRIPTS = (
    *("basics", "scales", "chart", "curves", "summary", "comparison"),
    *("graph_circle", "graph_matrix", "graph_weights", "graph", "classes", "settings", "main"),
)
LIVE = "live"  # a script and a style that only a page has which is served while its runs go on
# How much of the page's data each part may take, over all runs together: a page stays below 5 MB.
GRAPH_CHARS, CLASS_CHARS = 2_500_000, 600_000
MOST_COLUMNS = 400  # clients in the picture of who holds which classes
GatherOne = Callable[[Run, int, float | None], dict[str, Any]]
NAMES_TOKEN = re.compile(r" \(\{\w+\}\)")  # in a setting's help: names that are filled in where torch is imported


def write_page(groups: Sequence[Group], path: Path, target: float | None = None) -> None:
    """Write the page of some groups of runs, whole or not at all; it also tells when they reached a target."""
    write_atomic(path, render(groups, target).encode())


def render(groups: Sequence[Group], target: float | None = None) -> str:
    """The page as text."""
    return fill_template(gather(groups, target))


def fill_template(data: Mapping[str, Any], *, live: bool = False) -> str:
    """The page with its data in it: as JSON without any "<", so nothing in it can end the script or be markup.

    A live page has a part more, which asks the server that it came from for newer data; any other page loads nothing.
    """
    more = [LIVE] if live else []
    parts = {
        "TITLE": html.escape(data["headline"]),
        "HEADLINE": html.escape(data["headline"]).replace(" %", "&nbsp;%").replace(" ± ", "&nbsp;±&nbsp;"),
        "CONNECT": "; connect-src 'self'" if live else "",
        "STYLE": read_parts("css", ["page", *more]),
        "DATA": to_json(data).replace("<", "\\u003c"),
        "SCRIPT": read_parts("js", [*SCRIPTS, *more]),
    }
    first, *pieces = (TEMPLATE / "page.html").read_text(encoding="utf-8").split("{{")
    filled = (piece.partition("}}") for piece in pieces)
    return first + "".join(parts[name] + rest for name, _, rest in filled)


def read_parts(kind: str, names: Sequence[str]) -> str:
    return "\n".join((TEMPLATE / f"{name}.{kind}").read_text(encoding="utf-8") for name in names)


def to_json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def gather(groups: Sequence[Group], target: float | None, gather_one: GatherOne | None = None) -> dict[str, Any]:
    """All that the page shows, as JSON; `gather_one` stands in for `gather_run`, such as one that remembers."""
    runs = [run for group in groups for run in group.runs]
    tables, held = gather_classes(runs)
    members = [number for number, group in enumerate(groups) for _ in group.runs]
    shown = [
        {"group": member, "classes": place, **(gather_one or gather_run)(run, len(runs), target)}
        for run, member, place in zip(runs, members, held, strict=True)
    ]
    grid, (headings, rows) = make_grid(groups), compare_groups(groups, target)
    return {
        "headline": headline(runs, grid),
        "states": count_states([run["state"] for run in shown]),
        "common": describe_common(runs),
        "grid": gather_grid(grid) if groups else None,
        "columns": headings,
        "charts": plan_charts(groups),
        "axes": [asdict(axis) for axis in AXES],
        "groups": [
            row | place_group(group, grid) | {"curves": gather_curves(group, len(groups))}
            for group, row in zip(groups, rows, strict=True)
        ],
        "settings": [
            [key, format_value(spec.default), NAMES_TOKEN.sub("", spec.help)] for key, spec in SETTINGS.items()
        ],
        "classes": tables,
        "runs": shown,
    }


def gather_run(run: Run, num_runs: int, target: float | None) -> dict[str, Any]:
    """One run: what it was, what it reached, its graphs, settings and environment."""
    return {
        "name": run.folder.name or str(run.folder),
        "folder": str(run.folder),
        "seed": run.config.seed,
        "state": describe_state(run),
        "about": describe_run(run),
        "tiles": make_tiles(run, target),
        "overlap": run.config.overlap,
        "gossip_steps": run.config.graph.gossip_steps,
        "graph": pack_graphs(run, GRAPH_CHARS // num_runs),
        "settings": [[format_value(get(run.config, key)), format_value(run.asked[key])] for key in SETTINGS],
        "environment": list(list_facts(run.environment())),
    }


def gather_classes(runs: Sequence[Run]) -> tuple[list[dict[str, Any]], list[int | None]]:
    """Who holds which classes: the tables, which runs of one seed mostly share, and the place of each run's among them.

    A run without a table that makes sense has no place.
    """
    found = [check_classes(run.classes()) for run in runs]
    texts = [None if classes is None else json.dumps([classes.names, classes.counts]) for classes in found]
    distinct = [text for text in dict.fromkeys(texts) if text is not None]
    tables = [thin_classes(*json.loads(text), most_chars=CLASS_CHARS // len(distinct)) for text in distinct]
    return tables, [None if text is None else distinct.index(text) for text in texts]


def thin_classes(names: list[str], counts: list[list[int]], *, most_chars: int) -> dict[str, Any]:
    """A table of classes in about `most_chars` characters: if need be of some clients only, evenly chosen."""
    each = len(json.dumps(counts)) // len(counts) + 1
    clients = evenly(len(counts), max(1, min(MOST_COLUMNS, most_chars // each)))
    return {"names": names, "clients": clients, "of": len(counts), "counts": [counts[client] for client in clients]}


def check_classes(found: Classes | None) -> Classes | None:
    """The table if every client has a count for every class."""
    if found is None or not (isinstance(found.names, list) and isinstance(found.counts, list) and found.counts):
        return None
    width = len(found.names)
    whole = all(
        isinstance(row, list) and len(row) == width and all(type(count) is int and count >= 0 for count in row)
        for row in found.counts
    )
    return Classes([str(name) for name in found.names], found.counts) if whole and width else None


def list_facts(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Nested facts as lines; of a list, each value once with how often it comes."""
    for key, entry in value.items():
        name = f"{prefix}{key}"
        if isinstance(entry, Mapping):
            yield from list_facts(entry, f"{name}: ")
        elif isinstance(entry, list):
            counts = Counter(map(format_value, entry))
            yield name, ", ".join(text if times == 1 else f"{text} × {times}" for text, times in counts.items())
        else:
            yield name, format_value(entry)
