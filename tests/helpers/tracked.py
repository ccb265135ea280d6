"""Reading back what built-in trackers have written: each with the values by key and round."""

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Values = dict[str, dict[int, float]]
BLOCK, HEADER = 32768, 7  # bytes, of the log in which W&B keeps a run: LevelDB's format


def recorded(lines: list[dict[str, Any]]) -> Values:
    """The same of metrics.jsonl."""
    values: Values = defaultdict(dict)
    for line in lines:
        for key in line.keys() - {"round"}:
            values[key][line["round"]] = line[key]
    return dict(values)


def events(folder: Path) -> tuple[Values, dict[str, list[str]]]:
    """What TensorBoard shows: numbers, and texts in the order of their rounds."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "tensorboard")).Reload()
    values: Values = {}
    for key in found.Tags()["scalars"]:
        shown = found.Scalars(key)
        values[key] = {event.step: event.value for event in shown}
        assert len(values[key]) == len(shown), f"a round of {key} is shown twice"
    texts = {
        tag.removesuffix("/text_summary"): [event.tensor_proto.string_val[0].decode() for event in found.Tensors(tag)]
        for tag in found.Tags()["tensors"]
    }
    return values, texts


def wandb_records(file: Path) -> Iterator[Any]:
    """The records of a run that W&B has kept on the disk."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, place, whole = file.read_bytes(), HEADER, b""
    while place + HEADER <= len(content):
        if BLOCK - place % BLOCK < HEADER:  # the rest of a block is empty
            place += BLOCK - place % BLOCK
            continue
        size, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        whole += content[place + HEADER : place + HEADER + size]
        place += HEADER + size
        if kind in (1, 4):  # all of it, or its last part
            yield Record.FromString(whole)
            whole = b""


class OfflineRun:
    """A start of a run, as W&B has it on the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings: dict[str, Any] = {}
        self.values: Values = defaultdict(dict)
        self.summary: dict[str, Any] = {}
        (file,) = folder.glob("*.wandb")
        for record in wandb_records(file):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                self.id, self.project = record.run.run_id, record.run.project
                self.settings |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            elif kind == "history":
                for item in record.history.item:
                    key = item.key or ".".join(item.nested_key)
                    if not key.startswith("_"):  # its own, such as _runtime
                        self.values[key][record.history.step.num] = json.loads(item.value_json)
            elif kind == "summary":
                for item in record.summary.update:
                    self.summary[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
            elif kind == "exit":
                self.exit_code = record.exit.exit_code


def mlflow_run(folder: Path) -> tuple[Any, Values]:
    """The one run in a folder of MLflow's, and what it has of every round."""
    import mlflow

    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    client = mlflow.MlflowClient(folder.as_uri())
    (run,) = client.search_runs([found.experiment_id for found in client.search_experiments()])
    values: Values = {}
    for key in run.data.metrics:
        history = sorted(client.get_metric_history(run.info.run_id, key), key=lambda metric: metric.timestamp)
        values[key] = {metric.step: metric.value for metric in history}
    return run, values
