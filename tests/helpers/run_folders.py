"""Run folders written by hand, so that what a report must say of them is known."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dfl_dist.config.resolve import resolve
from dfl_dist.config.values import ask, dump, values_of
from dfl_dist.report.groups import Group, group_runs
from dfl_dist.report.read import read_run


def write_run(
    folder: Path, accuracies: Sequence[float | None], more: Sequence[dict[str, Any]] = (), **settings: Any
) -> Path:
    """A run with one line per round: evaluated where there is an accuracy, `more` on top of its first lines.

    Settings are written with two underscores for the dot.
    """
    folder.mkdir(parents=True)
    asked = ask({"rounds": 4} | {key.replace("__", "."): value for key, value in settings.items()})
    (folder / "config.yaml").write_text(dump(asked))
    (folder / "resolved.yaml").write_text(dump(values_of(resolve(asked, None))))
    with (folder / "metrics.jsonl").open("w") as file:
        for round_idx, accuracy in enumerate(accuracies):
            line = {"round": round_idx, "train_loss": 2.0 / (round_idx + 1), "bytes_sent": 500_000}
            line |= {"push_weight_min": 0.5, "push_weight_max": 1.5, "seconds_total": 0.25}
            scores = {"test_accuracy": accuracy, "test_loss": 0.25, "consensus_distance": 0.125}
            line |= scores if accuracy is not None else {}
            line |= more[round_idx] if round_idx < len(more) else {}
            file.write(json.dumps(line) + "\n")
        file.write('{"round": 9, "torn')
    return folder


def read_groups(*folders: Path) -> list[Group]:
    return group_runs([read_run(folder) for folder in folders])
