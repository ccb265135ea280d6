"""Trackers: where the settings, the numbers of each round, the end and the model of a run go beside its folder."""

import importlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

import yaml

from dfl_dist.config.names import imported, lookup
from dfl_dist.config.values import format_value
from dfl_dist.errors import ConfigError, one_line, reasons, refusal, user_error
from dfl_dist.run_folder.files import read_json
from dfl_dist.run_folder.status import FINISHED, STOPPED
from dfl_dist.system import children_of_thread

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

log = logging.getLogger(__name__)
FINISH_WITHIN_S = 25.0  # torchrun ends a rank 30 s after a signal
DIVERGED = "diverged"  # beside the launcher's words, which a tracker is told too
CLEAN_UP_S = 1.0  # for a tracker that hung until the process ended that it waited for
PROJECT = "dfl_dist"  # of W&B and MLflow, where the user's environment names none


class Tracker(Protocol):
    """What a tracker's function returns: called from a thread of its own, one call after the other."""

    def log(self, line: Mapping[str, Any], /) -> None:
        """A recorded round, as metrics.jsonl has it; one that comes again replaces what was told from it on."""

    def finish(self, state: str, model_path: Path | None, /) -> None:
        """This start ends: `finished`, `stopped`, `diverged` or `failed`; with the mean model, if it was written."""


Make = Callable[[Mapping[str, Any], Path], Tracker]  # of the settings in force by dotted key, and the run folder


# What is built in.


class TensorBoard:
    """Events in the run folder."""

    def __init__(self, settings: Mapping[str, Any], folder: Path) -> None:
        self.settings, self.folder = settings, folder / "tensorboard"
        self.writer: SummaryWriter | None = None
        self.round = 0

    def log(self, line: Mapping[str, Any]) -> None:
        if self.writer is None or line["round"] <= self.round:
            self._open(line["round"])
        assert self.writer is not None
        self.round = line["round"]
        for key, value in numbers(line).items():
            self.writer.add_scalar(key, value, self.round)
        self.writer.flush()

    def finish(self, state: str, model_path: Path | None) -> None:
        if self.writer is None:
            self._open(0)
        assert self.writer is not None
        self.writer.add_text("state", state, self.round)
        if model_path:
            self.writer.add_text("model", str(model_path), self.round)
        self.writer.close()

    def _open(self, round_idx: int) -> None:
        """Begin a file of events that hides those of earlier files from this round on."""
        from torch.utils.tensorboard import SummaryWriter

        if self.writer is not None:
            self.writer.close()
        self.writer = SummaryWriter(str(self.folder), purge_step=round_idx)
        self.writer.add_text("settings", f"```\n{yaml.safe_dump(dict(self.settings))}```", round_idx)


class WandB:
    """A run of Weights & Biases: the same one when the run goes on. What is not uploaded in time stays on the disk."""

    def __init__(self, settings: Mapping[str, Any], folder: Path) -> None:
        import wandb

        quiet = wandb.Settings(console="off", silent=True, finish_timeout=0.8 * patience_s(settings["timeout_s"]))
        wandb.setup(quiet)  # or it asks for a key, if somebody watches
        try:
            self.run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=os.environ.get("WANDB_NAME", folder.name),
                dir=os.environ.get("WANDB_DIR", folder),
                id=token_of(folder),
                resume="allow",
                reinit="create_new",  # beside one that a script has begun
                config=dict(settings),
                allow_val_change=True,
                settings=quiet,
            )
        except BaseException:
            with suppress(Exception):
                if wandb.run is None:
                    wandb.teardown()  # or this process, when it ends, waits for wandb's
            raise
        if self.run.url:
            log.info("wandb: %s", self.run.url)

    def log(self, line: Mapping[str, Any]) -> None:
        self.run.log(numbers(line), step=line["round"])

    def finish(self, state: str, model_path: Path | None) -> None:
        self.run.summary["state"] = state
        if model_path:
            self.run.save(model_path, base_path=model_path.parent, policy="now")
        self.run.finish(exit_code=0 if state in (FINISHED, STOPPED) else 1)


class MLflow:
    """A run of MLflow: the same one when the run goes on. Without a tracking server it is kept in the run folder."""

    def __init__(self, settings: Mapping[str, Any], folder: Path) -> None:
        import mlflow
        from mlflow.entities import Param, RunTag

        server = None
        if "MLFLOW_TRACKING_URI" not in os.environ:  # mlflow.set_tracking_uri sets it too
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # other stores need more than mlflow-skinny
            server = (folder / "mlflow").as_uri()
        self.client = mlflow.MlflowClient(server)
        self.run_id, known = self._find_run(folder)
        texts = {key: format_value(value) for key, value in settings.items()}
        params = [Param(key, text) for key, text in texts.items() if key not in known]
        changed = [RunTag(key, text) for key, text in texts.items() if known.get(key, text) != text]
        self.client.log_batch(self.run_id, params=params, tags=changed)  # a parameter cannot change

    def log(self, line: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(key, value, now, line["round"]) for key, value in numbers(line).items()]
        self.client.log_batch(self.run_id, metrics=metrics)

    def finish(self, state: str, model_path: Path | None) -> None:
        self.client.set_tag(self.run_id, "state", state)
        if model_path:
            self.client.log_artifact(self.run_id, str(model_path))
        self.client.set_terminated(self.run_id, {FINISHED: "FINISHED", STOPPED: "KILLED"}.get(state, "FAILED"))

    def _find_run(self, folder: Path) -> tuple[str, Mapping[str, str]]:
        """The run that has this one's token, or one that is made for it; and the parameters that it has."""
        name, token = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT), token_of(folder)
        found = self.client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self.client.create_experiment(name)
        runs = self.client.search_runs([experiment], f"tags.dfl_dist_run = '{token}'")
        if runs:
            self.client.update_run(runs[0].info.run_id, "RUNNING")
            return runs[0].info.run_id, runs[0].data.params
        made = self.client.create_run(experiment, tags={"dfl_dist_run": token}, run_name=folder.name)
        return made.info.run_id, {}


TRACKERS: dict[str, Make] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}
PACKAGES = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "mlflow": "mlflow"}  # extras of these names


def numbers(line: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a round that have a value."""
    return {key: value for key, value in line.items() if key != "round" and value is not None}


def token_of(folder: Path) -> str:
    """What names a run wherever its folder is moved to."""
    return str(read_json(folder / "environment.json")["run"])


def patience_s(timeout_s: float) -> float:
    """How long the end of a run waits for its trackers: the other ranks wait too, for `timeout_s` at the most."""
    return min(FINISH_WITHIN_S, timeout_s / 2)


# Which are asked for.


def find(asked: str | None) -> dict[str, Make]:
    """The trackers of a setting such as "tensorboard,my_project.trackers:table", by name; nothing is imported yet."""
    names = [name.strip() for name in (asked or "").split(",")]
    return {name: partial(begin, name) for name in names if name}


def begin(name: str, settings: Mapping[str, Any], folder: Path) -> Tracker:
    """Import a tracker and make it."""
    import_package(name)
    make: Make = TRACKERS[name] if name in TRACKERS else imported(name)
    return make(settings, folder)


def import_package(name: str) -> None:
    """Import what a built-in tracker needs."""
    if name in PACKAGES:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when it is imported
        importlib.import_module(PACKAGES[name])


def check(asked: str | None) -> None:
    """Refuse trackers that are not known or cannot be imported."""
    for name in find(asked):
        if not callable(lookup("tracker", name, TRACKERS)):
            raise refusal("tracker", name, "a function of the settings and the run folder")
        try:
            import_package(name)
        except Exception as error:  # whatever a broken installation raises
            given, way_out = f"tracker: given {name}, which cannot be imported", f"pip install 'dfl-dist[{name}]'"
            raise ConfigError(*(f"{given}: {reason}; {way_out}" for reason in reasons(error))) from error


# How they are told.


class Background:
    """A tracker in a thread of its own: nobody waits for it, and with its first exception it is dropped."""

    def __init__(self, name: str, make: Callable[[], Tracker]) -> None:
        self.name, self.abandoned = name, False
        self.calls: SimpleQueue[Callable[[Tracker], None] | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._work, args=(make,), daemon=True, name=f"tracker {name}")
        self.thread.start()

    def _work(self, make: Callable[[], Tracker]) -> None:
        try:
            tracker = make()
            while call := self.calls.get():
                call(tracker)
        except BaseException as error:  # a SystemExit too
            if self.abandoned:
                return
            own = user_error(f"tracker {self.name}", error)
            told = f"{own}: {error}" if own else f"tracker {self.name} failed: {one_line(error)}"
            log.warning("%s; the run goes on without it", " ".join(told.split()))

    def tell(self, call: Callable[[Tracker], None] | None) -> None:
        """Have it called after what it was told before; nothing is the end."""
        if self.thread.is_alive():
            self.calls.put(call)

    def end(self, by: float) -> None:
        """Wait until it has done all that it was told; where it hangs it is let go, and the processes it began end."""
        self.thread.join(max(0.0, by - time.monotonic()))
        if not self.thread.is_alive():
            return
        self.abandoned = True
        log.warning("tracker %s is not done in time; the run ends without it", self.name)
        for pid in children_of_thread(self.thread.native_id):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.thread.join(CLEAN_UP_S)


class Trackers:
    """All trackers of a run. Whatever they do, the run goes on."""

    def __init__(self, makes: Mapping[str, Make], settings: Mapping[str, Any], folder: Path) -> None:
        self.patience_s = patience_s(settings["timeout_s"]) if makes else 0.0
        self.running = [Background(name, partial(make, settings, folder)) for name, make in makes.items()]

    def log(self, line: Mapping[str, Any]) -> None:
        for tracker in self.running:
            tracker.tell(lambda told: told.log(dict(line)))

    def finish(self, state: str, model_path: Path | None) -> None:
        """Tell how this start ended, and let go of the trackers; only the first call counts."""
        running, self.running = self.running, []
        for tracker in running:
            tracker.tell(lambda told: told.finish(state, model_path))
            tracker.tell(None)
        by = time.monotonic() + self.patience_s
        for tracker in running:
            tracker.end(by)
