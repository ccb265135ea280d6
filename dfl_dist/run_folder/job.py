"""What to run, where, and from which state: rank 0 plans it, the others are told."""

import contextlib
import json
import os
import secrets
import socket
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dfl_dist.config.resolve import resolve
from dfl_dist.config.schema import SETTINGS, Config
from dfl_dist.config.values import (
    Asked,
    ask,
    changed_on_resume,
    dump,
    get,
    load_asked,
    load_resolved,
    make_config,
    may_change,
    replace,
    values_of,
)
from dfl_dist.errors import ConfigError, refusal
from dfl_dist.formats import FORMAT, described, format_of
from dfl_dist.run_folder import checkpoint
from dfl_dist.run_folder.files import ENDED_BY, write_atomic
from dfl_dist.run_folder.folder import (
    RUNS,
    check_free,
    claim,
    is_finished,
    is_run,
    point_latest,
    read_environment,
    refused_where_unwritable,
    write_environment,
    write_facts,
)
from dfl_dist.run_folder.metrics import METRICS, EvalSchedule
from dfl_dist.run_folder.status import LAUNCH
from dfl_dist.system import born, is_alive

AUTO, NEVER = "auto", "never"  # of `resume`, beside a folder
NOT_ASKED = ("out", "resume")  # where a run is kept is no part of what it is
IDENTITY = ("num_clients", "model.name", "dtype", "algorithm", "data.name", "seed")


@dataclass(frozen=True)
class Continuation:
    """A run to go on with: its folder, the checkpoint to start from (none: anew), what was asked and was in force."""

    folder: Path
    checkpoint: Path | None
    asked: Asked
    resolved: Config
    token: str

    @property
    def rounds_done(self) -> int:
        return checkpoint.round_of(self.checkpoint) if self.checkpoint else 0


@dataclass(frozen=True)
class Plan:
    """What is to be run, before there is a folder for it."""

    asked: Asked
    resolved: Config
    run_id: str | None  # what stays the same when the same job is started again
    start: Continuation | None
    finished: bool = False  # this very job has done it all before it was started again

    def identity(self, parameters: int) -> dict[str, Any]:
        """What a checkpoint and this run have in common if it goes on from there."""
        assert self.start is not None
        return identity(self.resolved, self.start.token, parameters)


@dataclass(frozen=True)
class Job:
    """What all ranks run, and where it is kept."""

    asked: Asked
    resolved: Config
    run_id: str | None
    token: str  # names the run, wherever its folder is moved to
    start_id: str  # names this start of it
    folder: Path
    checkpoint: Path | None  # to go on from
    drained: bool = False  # whether the checkpoint was made at the end of a run with overlap, nothing left in flight
    scores_to_drop: list[str] = field(default_factory=list)  # of the checkpoint's round, see `scores_to_drop`
    finished: bool = False  # this very job has done it all before it was started again

    def to_text(self) -> str:
        return json.dumps(vars(self) | {"resolved": values_of(self.resolved)}, default=str)

    @classmethod
    def from_text(cls, text: str) -> "Job":
        values = json.loads(text)
        values |= {key: Path(values[key]) for key in ("folder", "checkpoint") if values[key]}
        return cls(**values | {"resolved": make_config(values["resolved"])})

    @property
    def rounds_done(self) -> int:
        return checkpoint.round_of(self.checkpoint) if self.checkpoint else 0

    def identity(self, parameters: int) -> dict[str, Any]:
        """What a checkpoint and the run that goes on from it have in common."""
        return identity(self.resolved, self.token, parameters)


def identity(resolved: Config, token: str, parameters: int) -> dict[str, Any]:
    return {**{key: get(resolved, key) for key in IDENTITY}, "parameters": parameters, "run": token}


# Planning, before anything is written.


def plan_job(given: Mapping[str, Any], ranks: int | None, run_id: str | None, *, begun: Container[Path] = ()) -> Plan:
    """Rank 0: the settings, and the run to go on with; `ranks` is None without torchrun.

    `begun` are the folders of runs that this process has begun itself, which it cannot have been started again for.
    """
    asked = ask(given)
    found = None
    if asked["resume"] == AUTO:
        found = find_same_job(asked, run_id, begun)
    elif asked["resume"] != NEVER:
        check_has_ended(run_folder_of(Path(asked["resume"])), run_id)
        found = open_continuation(Path(asked["resume"]))
    if found is None:
        check_free(asked["out"])
        return Plan(asked, resolve(asked, ranks), run_id, None)
    asked = ask(given, before=found.asked)
    resolved = resolve(asked | in_force(found.resolved, asked), ranks)
    if has_been_done(found, resolved, run_id, searched=asked["resume"] == AUTO):
        return Plan(asked, resolved, run_id, found, finished=True)
    check_continuation(found, resolved)
    return Plan(asked, resolved, run_id, found)


def in_force(resolved: Config, asked: Asked) -> Asked:
    """What a run that goes on keeps where nothing is asked for, though defaults may be others by now."""
    values = values_of(resolved)
    none = {key for key in asked if SETTINGS[key].is_optional and may_change(key)}  # there null is an answer
    return {key: values[key] for key in asked if asked[key] is None and key not in {*NOT_ASKED, *none}}


def check_has_ended(folder: Path, run_id: str | None) -> None:
    """Refuse to take a run from a job that is at work on it on this host; the job itself may start it again."""
    facts = read_environment(folder)
    leader = facts.get("leader")
    same_job = run_id is not None and facts.get("run_id") == run_id
    if not isinstance(leader, dict) or leader["host"] != socket.gethostname() or same_job or not is_first_start():
        return
    if leader.get("folder", str(folder)) != str(folder):  # it is at work there, and this is a copy
        return
    if leader["pid"] != os.getpid() and is_alive(leader["pid"], leader["born"]):
        given = f"{folder}, which is running (process {leader['pid']} on this host)"
        raise refusal("resume", given, "a run that has ended; stop it first with Ctrl-C or a file STOP in it")


def open_continuation(path: Path) -> Continuation:
    """The run behind a run folder (its newest complete checkpoint) or behind one of its checkpoint folders."""
    path = path.resolve()
    folder = run_folder_of(path)
    named = folder != path
    if not is_run(folder):
        raise refusal("resume", path, "auto, never, or the folder of a run or of one of its checkpoints")
    whole = checkpoint.complete(folder)
    if not whole:
        allowed = "a run with one; without any, remove the folder and begin anew"
        raise refusal("resume", f"{folder}, which has no complete checkpoint", allowed)
    if named and path not in whole:
        raise ConfigError(f"resume: {path} is not a complete checkpoint; {checkpoint.way_out(path)}")
    return read_continuation(folder, path if named else whole[-1])


def run_folder_of(path: Path) -> Path:
    """The run folder that a path means: itself, or that of which it is a checkpoint."""
    path = path.resolve()
    return path.parent.parent if path.parent.name == "checkpoints" and not is_run(path) else path


def read_continuation(folder: Path, start: Path | None) -> Continuation:
    facts = read_environment(folder)
    if format_of(facts) != FORMAT:
        raise refusal("resume", f"{folder}, of {described(facts)}", f"format {FORMAT}, which this version writes")
    if (token := facts.get("run")) is None:
        raise ConfigError(f"resume: {folder / 'environment.json'} is missing or damaged, so the run is not known")
    asked, resolved = load_asked(folder / "config.yaml"), load_resolved(folder / "resolved.yaml")
    return Continuation(folder, start, asked, resolved, token)


def find_same_job(asked: Asked, run_id: str | None, begun: Container[Path]) -> Continuation | None:
    """The run that this very job began before it was restarted, if there is one."""
    if run_id is None:
        return None
    candidates = (
        [Path(asked["out"])]
        if asked["out"]
        else [path.parent for path in RUNS.glob("*/environment.json") if not path.parent.is_symlink()]
    )
    for folder in sorted(candidates, key=lambda path: path.stat().st_mtime if path.exists() else 0, reverse=True):
        if folder.resolve() in begun or not is_run(folder) or read_environment(folder).get("run_id") != run_id:
            continue
        found = read_continuation(folder.resolve(), checkpoint.newest(folder.resolve()))
        same = found.asked["rounds"] == asked["rounds"] and not changed_on_resume(found.asked, asked)
        if same and (not is_finished(folder, asked["rounds"]) or is_of_this_launch(folder)):
            return found
    return None


def is_of_this_launch(folder: Path) -> bool:
    """Whether a run was last started by what has started this process; without a launcher nobody can tell."""
    return bool(read_environment(folder).get("launch") == os.environ.get(LAUNCH))


def is_first_start() -> bool:
    """Whether whoever has started this process did not start it before; torchrun and the launcher count."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) == 0


def has_been_done(found: Continuation, resolved: Config, run_id: str | None, *, searched: bool) -> bool:
    """Whether this very job has finished the run before it was started again, as after a kill in its last second.

    Where a checkpoint is named to go back to, the first start goes back to it.
    """
    facts = read_environment(found.folder)
    own = run_id is not None and facts.get("run_id") == run_id and is_of_this_launch(found.folder)
    last = facts.get("finished_after", 0)
    goes_back = not searched and found.rounds_done < last and is_first_start()
    return own and (last == resolved.rounds or has_stopped(found, resolved)) and not goes_back


def has_stopped(found: Continuation, resolved: Config) -> bool:
    """Whether a run has done enough, as `stop` says: another `stop` lets it go on."""
    return ENDED_BY in read_environment(found.folder) and found.resolved.stop == resolved.stop


def check_continuation(found: Continuation, resolved: Config) -> None:
    """Refuse a continuation that would change what the run is, or that has nothing to do."""
    for key in changed_on_resume(values_of(found.resolved), values_of(resolved)):
        raise ConfigError(
            f"{key}: given {get(resolved, key)}, allowed: {get(found.resolved, key)}, "
            f"as in the run that is resumed ({found.folder})"
        )
    if resolved.local.schedule == "cosine" and resolved.rounds != found.resolved.rounds:
        raise refusal(
            "rounds", resolved.rounds, f"{found.resolved.rounds}, which local.schedule cosine is laid out for"
        )
    written = found.rounds_done == resolved.rounds and is_finished(found.folder, resolved.rounds)
    if found.rounds_done > resolved.rounds or written:
        done = f"more than {found.rounds_done}, which {found.folder} has done; set --rounds"
        raise refusal("rounds", resolved.rounds, done)
    facts = read_environment(found.folder)
    if has_stopped(found, resolved) and facts.get("finished_after") == found.rounds_done:
        key, _, given = facts[ENDED_BY].partition(" ")
        ended = f"{found.folder} has ended by it after round {found.rounds_done}"
        raise refusal(key, given, f"another value, or null: {ended}")
    if resolved.out is not None and Path(resolved.out).resolve() != found.folder:
        raise refusal("out", resolved.out, f"null: the run goes on in {found.folder}")


def scores_to_drop(found: Continuation, resolved: Config) -> list[str]:
    """The scores that the checkpoint's round has only because it was the last one then."""
    last = found.rounds_done - 1
    if last + 1 == resolved.rounds:
        return []
    schedule = EvalSchedule(found.resolved.eval.every, found.resolved.eval.clients_every)
    extra = {
        "evaluated": not schedule.due(last, last=False),
        "clients evaluated": not schedule.each_client(last, last=False),
    }
    return [key for key, metric in METRICS.items() if extra.get(metric.rounds)]


# Opening the folder.


def open_folder(plan: Plan, *, drained: bool) -> Job:
    """Rank 0: make or reopen the run folder, with a sign in it by which the others know that they see it too."""
    resolved, start, start_id = plan.resolved, plan.start, secrets.token_hex(8)
    token = start.token if start else secrets.token_hex(8)
    with refused_where_unwritable(str(start.folder) if start else resolved.out):
        folder = start.folder if start else claim(resolved.out, resolved.algorithm, resolved.data.name, plan.run_id)
        if is_first_start():  # else it is for this job, and came while its ranks were being started again
            (folder / "STOP").unlink(missing_ok=True)
        before = read_environment(folder)
        if not plan.finished:
            for key in ("finished_after", ENDED_BY):
                before.pop(key, None)  # from here on it is not, whatever was reached before
        write_environment(folder, before | {"run": token, "start": start_id, **name_job(plan.run_id, folder)})
        point_latest(folder)
    return Job(
        plan.asked,
        resolved,
        plan.run_id,
        token,
        start_id,
        folder,
        start.checkpoint if start else None,
        drained=drained,
        scores_to_drop=scores_to_drop(start, resolved) if start else [],
        finished=plan.finished,
    )


def name_job(run_id: str | None, folder: Path) -> dict[str, Any]:
    """By what a job knows its own run again, and others whether it is still at work."""
    leader = {"host": socket.gethostname(), "pid": os.getpid(), "born": born(os.getpid())}
    leader["folder"] = str(folder.resolve())
    return {"run_id": run_id, "launch": os.environ.get(LAUNCH), "leader": leader}


def release(job: Job) -> None:
    """Rank 0 of a script, whose process lives on: note that it is not at work on the run any more."""
    facts = read_environment(job.folder)
    if facts.get("start") == job.start_id:
        with contextlib.suppress(OSError):
            write_facts(job.folder, facts | {"leader": {**facts["leader"], "born": None}})


def write_settings(job: Job, *, backend: str, device: str, threads: int) -> None:
    """Rank 0: write down what was asked and what is in force."""
    found = {"out": str(job.folder), "backend": backend, "device": device, "threads": threads}
    write_atomic(job.folder / "config.yaml", dump(job.asked, without=NOT_ASKED).encode())
    write_atomic(job.folder / "resolved.yaml", dump(values_of(replace(job.resolved, found))).encode())
