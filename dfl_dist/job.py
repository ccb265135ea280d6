"""From arguments to a job: the settings in force, the run folder, the checkpoint to go on from."""

import dataclasses
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dfl_dist import checkpoint, run_folder, schedule
from dfl_dist.algorithms import ALGORITHMS
from dfl_dist.config import Config, ConfigError, choose, dump, from_mapping, get, known, refusal, replace
from dfl_dist.data.datasets import DATASETS
from dfl_dist.evaluate import EvalSchedule
from dfl_dist.models import MODELS
from dfl_dist.randomness import stream
from dfl_dist.resolve import count_clients, resolve
from dfl_dist.runtime import World, run_id
from dfl_dist.topology import Options


@dataclass(frozen=True)
class Job:
    """What all ranks run: rank 0 makes it, the others are told."""

    asked: Config
    resolved: Config
    token: str  # names the run, wherever its folder is moved to
    start_id: str  # names this start of it
    folder: Path | None = None
    checkpoint: Path | None = None
    drained: bool = False  # whether the checkpoint was made at the end of a run with overlap, nothing left in flight
    scores_to_drop: list[str] = field(default_factory=list)  # of the checkpoint's round, see `scores_to_drop`

    def to_text(self) -> str:
        return json.dumps(dataclasses.asdict(self), default=str)

    @classmethod
    def from_text(cls, text: str) -> "Job":
        values = json.loads(text)
        values |= {key: from_mapping(values[key]) for key in ("asked", "resolved")}
        values |= {key: Path(values[key]) for key in ("folder", "checkpoint") if values[key]}
        return cls(**values)

    @property
    def rounds_done(self) -> int:
        return checkpoint.round_of(self.checkpoint) if self.checkpoint else 0


def plan_job(given: Mapping[str, Any], world: World) -> Job:
    """Rank 0: the settings, and the run to go on with."""
    config = replace(Config(), given)
    found = None
    if config.resume == "auto":
        found = run_folder.find_same_job(config, run_id())
    elif config.resume != "never":
        found = run_folder.open_continuation(Path(config.resume))
    if found is None:
        run_folder.check_free(config.out)
        return Job(config, settle(config, world), secrets.token_hex(8), secrets.token_hex(8))
    asked = replace(found.asked, given)
    resolved = settle(asked, world, default_clients=found.resolved.num_clients)
    run_folder.check_continuation(found, resolved)
    token = run_folder.read_environment(found.folder).get("run")
    if token is None:
        raise ConfigError(f"resume: {found.folder / 'environment.json'} is missing or damaged, so the run is not known")
    dropped = scores_to_drop(found, resolved)
    return Job(asked, resolved, token, secrets.token_hex(8), found.folder, found.checkpoint, scores_to_drop=dropped)


def scores_to_drop(found: run_folder.Continuation, resolved: Config) -> list[str]:
    """How the names of scores begin that the checkpoint's round has only because it was the last one then."""
    last = found.rounds_done - 1
    if last + 1 == resolved.rounds:
        return []
    schedule = EvalSchedule(found.resolved.eval.every, found.resolved.eval.clients_every)
    of_mean = [] if schedule.due(last, last=False) else ["test_", "consensus_"]
    return of_mean + ([] if schedule.each_client(last, last=False) else ["client_accuracy_"])


def settle(asked: Config, world: World, default_clients: int | None = None) -> Config:
    """The config in force on these ranks."""
    if asked.num_clients is None and default_clients is not None:
        asked = replace(asked, {"num_clients": default_clients})
    row = choose("algorithm", asked.algorithm, ALGORITHMS)
    default_model = model_of(asked)
    if asked.graph.kind is not None and asked.graph.kind not in schedule.NAMES:
        raise refusal("graph.kind", asked.graph.kind, ", ".join(schedule.NAMES), schedule.NAMES)
    resolved = resolve(asked, row, default_model, count_clients(asked, world.size, world.torchrun))
    with as_config_error():
        weights = schedule.weights_in_force(known(resolved.graph.kind), asked.graph.weights)
    return replace(resolved, {"graph.weights": weights})


def model_of(asked: Config) -> str:
    """The model that `auto` means; with data of one's own there is none."""
    name = asked.data.name
    if name in DATASETS:
        return DATASETS[name].model
    if ":" not in name:
        raise refusal("data.name", name, ", ".join(DATASETS) + " or package.module:function", DATASETS)
    if asked.model.name == "auto":
        raise refusal("model.name", "auto", f"{', '.join(MODELS)} or package.module:function, with data.name {name}")
    return asked.model.name


def make_schedule(resolved: Config) -> schedule.Schedule:
    """The graphs of this run."""
    graph = resolved.graph
    with as_config_error():
        return schedule.make_schedule(
            known(graph.kind),
            known(resolved.num_clients),
            lambda round_idx: stream(resolved.seed, "graph", round_idx=round_idx),
            options=Options(out_degree=known(graph.out_degree), p=graph.p or 0.0),
            weights=graph.weights,
            static=graph.static,
            file=graph.file,
            participation=known(resolved.participation),
        )


@contextmanager
def as_config_error() -> Iterator[None]:
    """Turn a refusal of the mathematics, which knows no settings, into one of the settings."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(str(error)) from error


def open_folder(job: Job) -> Job:
    """Rank 0: make or reopen the run folder, with a sign in it by which the others know that they see it too."""
    try:
        names = (job.resolved.out, job.resolved.algorithm, job.resolved.data.name)
        folder = job.folder or run_folder.claim(*names, run_id())
        (folder / "STOP").unlink(missing_ok=True)
        facts = {"run": job.token, "start": job.start_id, "run_id": run_id()}
        run_folder.write_environment(folder, run_folder.read_environment(folder) | facts)
        run_folder.point_latest(folder)
    except OSError as error:
        raise ConfigError(f"out: given {job.resolved.out}, which cannot be written: {error}") from error
    return dataclasses.replace(job, folder=folder)


def write_settings(job: Job, *, backend: str, device: str, threads: int) -> None:
    """Rank 0: write down what was asked and what is in force."""
    folder = known(job.folder)
    found = {"out": str(folder), "backend": backend, "device": device, "threads": threads}
    checkpoint.write_atomic(folder / "config.yaml", dump(job.asked, without=run_folder.NOT_ASKED).encode())
    checkpoint.write_atomic(folder / "resolved.yaml", dump(replace(job.resolved, found)).encode())


def identity(job: Job, parameters: int) -> dict[str, Any]:
    """What a checkpoint and the run that goes on from it have in common."""
    plain = {
        key: get(job.resolved, key) for key in ("num_clients", "model.name", "dtype", "algorithm", "data.name", "seed")
    }
    return {**plain, "parameters": parameters, "run": job.token}
