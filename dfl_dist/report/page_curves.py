"""The curves of a page: which charts there are, and the points of every group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dfl_dist.report.groups import Group
from dfl_dist.report.page_graphs import evenly
from dfl_dist.report.statistics import mean_curve, one_per_seed
from dfl_dist.run_folder.metrics import CHARTS, CURVES, METRICS, Axis, Form, label_curve

POINTS = 4_000  # of each metric, over all groups: a page stays small
MOST_POINTS, FEWEST_POINTS = 500, 20  # of one group's curve
OVER_SEEDS = "mean over seeds, band ± one standard deviation"
NOT_YET = "nothing is recorded yet."
NO_CLIENTS = "the clients’ own models were not evaluated (eval.clients_every is 0)."
DRAWN = dict.fromkeys(
    key for metric, curve in CURVES.items() for key in (metric, curve.low, curve.high) if key is not None
)


@dataclass(frozen=True)
class PageAxis:
    """What curves are drawn against: the key of its values on the page, their unit, and how it is called."""

    axis: Axis
    key: str
    unit: float
    form: Form
    choice: str
    label: str


AXES = (
    PageAxis("rounds", "round", 1, "number", "rounds", "rounds done"),
    PageAxis("bytes", "mb", 1e6, "bytes", "megabytes", "megabytes sent"),
    PageAxis("seconds", "s", 1, "seconds", "seconds", "seconds of training"),
)


def plan_charts(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """The charts: for one group one per row of CHARTS, with lines for curves; for several one per curve."""
    charts = []
    for name, title in CHARTS.items():
        keys = [key for key, curve in CURVES.items() if curve.chart == name]
        alone = len(keys) == 1
        if len(groups) == 1:
            charts.append(
                plan_chart(name, title, (CURVES[keys[0]].note or label_curve(keys[0])) if alone else "", keys)
            )
            continue
        over_seeds = OVER_SEEDS if any(len(one_per_seed(group)) > 1 for group in groups) else ""
        for key in keys:
            note = CURVES[key].note or (label_curve(key) if alone else over_seeds)
            charts.append(plan_chart(CURVES[key].name, title if alone else label_curve(key), note, [key]))
    return charts


def plan_chart(name: str, title: str, note: str, keys: Sequence[str]) -> dict[str, Any]:
    """A chart of these curves; its scale and what is said in place of an empty one are those of the first."""
    metric, curve = METRICS[keys[0]], CURVES[keys[0]]
    chart = {
        "id": name,
        "title": title[0].upper() + title[1:],
        "note": note,
        "form": metric.form,
        "log": curve.page_scale == "log",
        "canLog": curve.page_scale != "linear",
        "mark": curve.mark,
        "uneventful": curve.uneventful,
        "absent": NO_CLIENTS if metric.rounds == "clients evaluated" else NOT_YET,
        "lines": [plan_line(key) for key in keys],
    }
    return {key: value for key, value in chart.items() if value is not None}


def plan_line(key: str) -> dict[str, Any]:
    """A line and the metrics that it shows: its height, and the lower and the upper edge of its band, if it has one."""
    low, high = CURVES[key].low, CURVES[key].high
    edges = [low or key, high] if high else []
    return {"name": label_curve(key), "metrics": [key, *edges], "edges": bool(high and not low)}


def gather_curves(group: Group, num_groups: int) -> dict[str, Any]:
    """Every metric that is drawn: its places on each axis, mean and deviation over seeds, number of points before."""
    most = max(FEWEST_POINTS, min(MOST_POINTS, POINTS // num_groups))
    found: dict[str, dict[str, Any]] = {}
    for key in DRAWN:
        curves = {axis.key: mean_curve(group, axis.axis, key) for axis in AXES}
        drawn = curves[AXES[0].key]
        chosen = evenly(len(drawn.x), most)
        found[key] = {
            **{axis.key: pick(curves[axis.key].x / axis.unit, chosen) for axis in AXES},
            "mean": pick(drawn.mean, chosen),
            "std": None if drawn.std is None else pick(drawn.std, chosen),
            "of": len(drawn.x),
        }
    return found


def pick(values: np.ndarray, chosen: Sequence[int]) -> list[float]:
    """Some of the numbers, to six digits; fewer where the sums that they are drawn against are not known so far."""
    return [float(f"{values[index]:.6g}") for index in chosen if index < len(values)]
