"""What runs have reached as rows for other programs, one per evaluated round: CSV and JSON."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from dfl_dist.config.schema import DEFAULTS
from dfl_dist.config.values import format_value
from dfl_dist.report.groups import INDIFFERENT, Group, setting
from dfl_dist.report.names import partition_of
from dfl_dist.report.read import Run, finite

COLUMNS = ("algorithm", "partition", "seed", "settings", "round", "test_accuracy", "test_loss", "commit")
# In columns of their own; of data.file that column has only the end.
TOLD = ("algorithm", "seed", "data.partition", "data.alpha", "data.classes_per_client")


def settings_of(run: Run) -> str:
    """What was asked beside the defaults and what has a column: key=value;key=value."""
    asked = {key: setting(run, key) for key in DEFAULTS if not {key, key.split(".")[0]} & {*INDIFFERENT, *TOLD}}
    return ";".join(f"{key}={format_value(value)}" for key, value in asked.items() if value != DEFAULTS[key])


def rows(groups: Sequence[Group]) -> Iterator[dict[str, Any]]:
    """One per evaluated round; rounds are counted from 0, as in the files of a run."""
    for run in (run for group in groups for run in group.runs):
        partition, _ = partition_of(run.config.data)
        what = {"algorithm": run.config.algorithm, "partition": partition, "seed": run.config.seed}
        what["settings"], commit = settings_of(run), run.environment().get("git_commit")
        for line in run.evaluated:
            scores = {key: finite(line, key) for key in ("test_accuracy", "test_loss")}
            yield {**what, "round": line["round"], **scores, "commit": commit}


def as_csv(groups: Sequence[Group]) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows(groups))
    return text.getvalue()


def as_json(groups: Sequence[Group]) -> str:
    return json.dumps(list(rows(groups)), indent=1) + "\n"
