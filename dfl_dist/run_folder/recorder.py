"""What rank 0 writes down of every round: the lines of metrics.jsonl and topology.jsonl."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dfl_dist.run_folder.files import LineFile, json_safe, read_lines, write_lines
from dfl_dist.run_folder.trackers import Trackers

METRICS, TOPOLOGY = "metrics.jsonl", "topology.jsonl"
Listener = Callable[[dict[str, Any]], None]


class Recorder:
    """Appends one line per round to each file, and tells others of it; `check` is asked whether it still may."""

    def __init__(
        self,
        folder: Path,
        listeners: Sequence[Listener] = (),
        check: Callable[[], None] = lambda: None,
        trackers: Trackers | None = None,
    ) -> None:
        self.folder, self.listeners, self.check = folder, listeners, check
        self.trackers = trackers or Trackers({}, {}, folder)
        self.metrics, self.topology = LineFile(folder / METRICS), LineFile(folder / TOPOLOGY)

    def write(self, line: Mapping[str, Any], graph: Mapping[str, Any]) -> None:
        """Record a round: its metrics, and its graph as topology.jsonl has it."""
        self.check()
        self.topology.write({"round": line["round"], **graph})
        self.metrics.write(line)
        for listener in self.listeners:
            listener(json_safe(line))
        self.trackers.log(json_safe(line))

    def amend(self, values: Mapping[str, Any]) -> None:
        """Put other values into the last recorded line of metrics.jsonl."""
        self.check()
        path = self.folder / METRICS
        *lines, last = read_lines(path)
        self.metrics.close()
        last |= json_safe(values)
        write_lines(path, [*lines, last])
        self.trackers.log(last)
        self.metrics = LineFile(path)

    def sync(self) -> None:
        """Put what was recorded on the disk, before a checkpoint counts on it."""
        self.metrics.sync()
        self.topology.sync()

    def finish(self, state: str, model_path: Path | None) -> None:
        """Tell the trackers how this start ended."""
        self.check()
        self.trackers.finish(state, model_path)

    def close(self) -> None:
        self.metrics.close()
        self.topology.close()
