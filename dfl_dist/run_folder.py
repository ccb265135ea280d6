"""The folder of a run: choosing it, what is written at the start, finding it again to go on."""

import io
import json
import logging
import os
import platform
import re
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from dfl_dist import checkpoint
from dfl_dist.config import Config, ConfigError, changed_on_resume, get, load, refusal
from dfl_dist.flat import FlatModel
from dfl_dist.metrics import read_lines

log = logging.getLogger(__name__)
RUNS = Path("runs")
NOT_ASKED = ("out", "resume")  # where a run is kept is no part of what it is
SEEN_WITHIN_S = 30.0  # a network file system may show a new file late


@dataclass(frozen=True)
class Continuation:
    """A run to go on with: its folder, the checkpoint to start from (none: anew), what was asked and was in force."""

    folder: Path
    checkpoint: Path | None
    asked: Config
    resolved: Config

    @property
    def rounds_done(self) -> int:
        return checkpoint.round_of(self.checkpoint) if self.checkpoint else 0


def is_run(folder: Path) -> bool:
    return (folder / "resolved.yaml").is_file()


def is_finished(folder: Path, rounds: int) -> bool:
    """Whether the results after so many rounds were written, the model last."""
    return bool(read_environment(folder).get("finished_after") == rounds)


def mark_finished(folder: Path, rounds: int) -> None:
    content = read_environment(folder) | {"finished_after": rounds}
    checkpoint.write_atomic(folder / "environment.json", (json.dumps(content, indent=1) + "\n").encode())


def open_continuation(path: Path) -> Continuation:
    """The run behind a run folder (its newest complete checkpoint) or behind one of its checkpoint folders."""
    path = path.resolve()
    named = path.parent.name == "checkpoints" and not is_run(path)
    folder = path.parent.parent if named else path
    if not is_run(folder):
        raise refusal("resume", path, "auto, never, or the folder of a run or of one of its checkpoints")
    whole = checkpoint.complete(folder)
    if not whole:
        raise ConfigError(f"resume: {folder} has no complete checkpoint")
    if named and path not in whole:
        raise ConfigError(f"resume: {path} is not a complete checkpoint; {checkpoint.before(path)}")
    return read_run(folder, path if named else whole[-1])


def read_run(folder: Path, start: Path | None) -> Continuation:
    return Continuation(folder, start, load(folder / "config.yaml"), load(folder / "resolved.yaml"))


def find_same_job(config: Config, run_id: str | None) -> Continuation | None:
    """The unfinished run that this very job began before it was restarted, if there is one."""
    if run_id is None:
        return None
    candidates = (
        [Path(config.out)]
        if config.out
        else [path.parent for path in RUNS.glob("*/environment.json") if not path.parent.is_symlink()]
    )
    for folder in sorted(candidates, key=lambda path: path.stat().st_mtime if path.exists() else 0, reverse=True):
        if not is_run(folder) or read_environment(folder).get("run_id") != run_id:
            continue
        found = read_run(folder.resolve(), next(reversed(checkpoint.complete(folder.resolve())), None))
        same = found.asked.rounds == config.rounds and not changed_on_resume(found.asked, config)
        if same and not is_finished(folder, config.rounds):
            return found
    return None


def check_continuation(found: Continuation, resolved: Config) -> None:
    """Refuse a continuation that would change what the run is, or that has nothing to do."""
    for key in changed_on_resume(found.resolved, resolved):
        raise ConfigError(
            f"{key}: given {get(resolved, key)}, allowed: {get(found.resolved, key)}, "
            f"as in the run that is resumed ({found.folder})"
        )
    written = found.rounds_done == resolved.rounds and is_finished(found.folder, resolved.rounds)
    if found.rounds_done > resolved.rounds or written:
        done = f"more than {found.rounds_done}, which {found.folder} has done; set --rounds"
        raise refusal("rounds", resolved.rounds, done)
    if resolved.out is not None and Path(resolved.out).resolve() != found.folder:
        raise refusal("out", resolved.out, f"null: the run goes on in {found.folder}")


def check_free(out: str | None) -> None:
    """Refuse a named folder that already holds a run."""
    if out is not None and (is_run(Path(out)) or (Path(out) / "metrics.jsonl").exists()):
        raise ConfigError(f"out: given {out}, which already holds a run, allowed: a new folder, or --resume {out}")


def claim(out: str | None, algorithm: str, data: str, run_id: str | None = None) -> Path:
    """Make the folder of a new run: the named one, or one that this job took before a restart, or the next free one."""
    if out is not None:
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        return folder.resolve()
    stem = re.sub(r"[^\w.-]+", "-", f"{algorithm}-{data}")
    RUNS.mkdir(exist_ok=True)
    for folder in RUNS.glob(f"{stem}-*") if run_id else ():
        if not is_run(folder) and read_environment(folder).get("run_id") == run_id:
            return folder.resolve()
    taken = [int(path.name[len(stem) + 1 :]) for path in RUNS.glob(f"{stem}-*") if path.name[len(stem) + 1 :].isdigit()]
    number = max(taken, default=0)
    while True:
        number += 1
        try:
            (folder := RUNS / f"{stem}-{number:03d}").mkdir()
        except FileExistsError:
            continue  # another run took it meanwhile
        return folder.resolve()


def point_latest(folder: Path) -> None:
    """Let runs/latest point to a run that lies in runs/."""
    if folder.parent != RUNS.resolve():
        return
    aside = RUNS / f".latest.{os.getpid()}"
    try:
        aside.symlink_to(folder.name)
        aside.replace(RUNS / "latest")
    except OSError as error:  # a folder of that name, or a file system without links
        aside.unlink(missing_ok=True)
        log.warning("runs/latest does not point to %s: %s", folder.name, error)


def check_seen(folder: Path, start_id: str) -> None:
    """Refuse a run folder that this rank does not share with rank 0, which has just written to it."""
    end = time.monotonic() + SEEN_WITHIN_S
    while read_environment(folder).get("start") != start_id:
        if time.monotonic() > end:
            raise refusal("out", folder, f"a folder that every host sees; {socket.gethostname()} does not see it")
        time.sleep(0.2)


def cut_back(folder: Path, rounds_done: int, scores_to_drop: Sequence[str], push_weights: Sequence[float]) -> None:
    """Drop what was recorded after a checkpoint, and a torn line.

    The scores of a round that was evaluated only because it was the last one go too, and its push weights are those
    that the run goes on from, not drained: so the files of a resumed run end up as if it had never been interrupted.
    """
    kept = {}
    for name in ("metrics.jsonl", "topology.jsonl"):
        kept[name] = [line for line in read_lines(folder / name) if line["round"] < rounds_done]
        if len(kept[name]) != rounds_done:
            raise ConfigError(
                f"resume: {folder / name} has {len(kept[name])} of the {rounds_done} rounds before the checkpoint"
            )
    if rounds_done:
        last, dropped = kept["metrics.jsonl"][-1], tuple(scores_to_drop)
        last |= {"push_weight_min": min(push_weights), "push_weight_max": max(push_weights)}
        kept["metrics.jsonl"][-1] = {key: value for key, value in last.items() if not key.startswith(dropped)}
    for name, lines in kept.items():
        write_lines(folder / name, lines)


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write a file with a JSON object a line, whole or not at all."""
    checkpoint.write_atomic(path, "".join(json.dumps(line) + "\n" for line in lines).encode())


def write_classes(folder: Path, names: Sequence[str], counts: numpy.ndarray) -> None:
    """Write down how many training samples of each class each client has."""
    content = {"classes": list(names), "counts": counts.tolist()}
    checkpoint.write_atomic(folder / "classes.json", (json.dumps(content) + "\n").encode())


def read_classes(folder: Path) -> list[list[int]]:
    """What `write_classes` wrote; nothing where it is missing or damaged."""
    counts: list[list[int]] = read_json(folder / "classes.json").get("counts", [])
    return counts


def read_environment(folder: Path) -> dict[str, Any]:
    return read_json(folder / "environment.json")


def read_json(path: Path) -> dict[str, Any]:
    """The mapping in a file; an empty one where it is missing or damaged."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_environment(folder: Path, facts: Mapping[str, Any]) -> None:
    """Versions and code state beside what the caller knows of ranks and devices."""
    from dfl_dist import __version__

    versions = {
        "dfl_dist": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "cuda": torch.version.cuda,
    }
    content = {"versions": versions, "platform": platform.platform(), "git_commit": git_commit(), **facts}
    checkpoint.write_atomic(folder / "environment.json", (json.dumps(content, indent=1) + "\n").encode())


def git_commit() -> str | None:
    """The commit of the code that runs, with a + when it was changed since; None outside a checkout."""
    command = ["git", "-C", str(Path(__file__).resolve().parent)]
    try:
        commit = subprocess.check_output(
            [*command, "rev-parse", "HEAD"], text=True, stderr=subprocess.DEVNULL, timeout=10
        )
        changes = subprocess.check_output(
            [*command, "status", "--porcelain", "--untracked-files=no"], text=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.strip() + ("+" if changes else "")


def write_model(folder: Path, model: FlatModel, mean: Tensor) -> None:
    """Write the mean model as an ordinary state_dict."""
    model.params.copy_(mean)
    buffer = io.BytesIO()
    torch.save({name: value.detach().cpu().clone() for name, value in model.model.state_dict().items()}, buffer)
    checkpoint.write_atomic(folder / "model.pt", buffer.getvalue())
