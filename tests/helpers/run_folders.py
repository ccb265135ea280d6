"""Run folders written by hand, so that what a report must say of them is known."""

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dfl_dist.config.resolve import resolve
from dfl_dist.config.values import ask, dump, values_of
from dfl_dist.report.groups import Group, group_runs
from dfl_dist.report.read import read_run
from dfl_dist.system import born

HERE = {"host": socket.gethostname(), "pid": os.getpid(), "born": born(os.getpid())}  # the leader of a run at work
GONE = HERE | {"born": "1"}  # a process that has the number by now
ELSEWHERE = HERE | {"host": "elsewhere"}


def write_run(
    folder: Path, accuracies: Sequence[float | None], more: Sequence[dict[str, Any]] = (), **settings: Any
) -> Path:
    """A run with one line per round: evaluated where there is an accuracy, `more` on top of its first lines.

    Settings are written with two underscores for the dot. With all of its rounds it is finished.
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
    if len(accuracies) == asked["rounds"]:
        lead(folder, finished_after=asked["rounds"])
    return folder


def lead(folder: Path, **facts: object) -> None:
    """What environment.json says of a run, such as its leader, and whether it is finished."""
    (folder / "environment.json").write_text(json.dumps(facts))


def grow(folder: Path, round_idx: int, accuracy: float = 0.75) -> None:
    """Record one more round, in place of the torn line."""
    path = folder / "metrics.jsonl"
    whole = path.read_text().rpartition("\n")
    path.write_text(f"{whole[0]}{whole[1]}{json.dumps({'round': round_idx, 'test_accuracy': accuracy})}\n")


def read_groups(*folders: Path) -> list[Group]:
    return group_runs([read_run(folder) for folder in folders])
