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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn

from dfl_dist.errors import ConfigError, refusal
from dfl_dist.formats import FORMAT
from dfl_dist.run_folder import checkpoint
from dfl_dist.run_folder.files import (
    ENDED_BY,
    check_can_be_made,
    read_json,
    read_lines,
    says_finished,
    write_atomic,
    write_lines,
)

log = logging.getLogger(__name__)
RUNS = Path("runs")
ENVIRONMENT = "environment.json"
CELL = "sweep.json"  # in the folders that a sweep began, and so may empty
OF_A_START = (ENVIRONMENT, "partition.npz", "classes.json", "config.yaml", "logs")  # before resolved.yaml; also aside
OF_A_RUN = (
    *(*OF_A_START, "resolved.yaml", "metrics.jsonl", "topology.jsonl", "checkpoints", "model.pt", "STOP"),
    *("report.html", "report.png", "tensorboard", "wandb", "mlflow"),
)
SEEN_WITHIN_S = 30.0  # a network file system may show a new file late


def is_run(folder: Path) -> bool:
    return (folder / "resolved.yaml").is_file()


def is_of_a_run(name: str) -> bool:
    """Whether runs write what has this name in their folder; or it is what a kill has left of that, half written."""
    return re.sub(r"^\.(.+)\.\d+$", r"\1", name) in OF_A_RUN


def is_finished(folder: Path, rounds: int) -> bool:
    """Whether the results after this number of rounds were written, the model last; or of fewer, by `stop`."""
    return says_finished(read_environment(folder), rounds)


def mark_finished(folder: Path, rounds: int, ended_by: str | None = None) -> None:
    """Note that the results after these rounds are there, and what ended the run before its last one, if `stop` did."""
    write_facts(
        folder, read_environment(folder) | {"finished_after": rounds} | ({ENDED_BY: ended_by} if ended_by else {})
    )


def check_free(out: str | None) -> None:
    """Refuse a named folder that holds anything, but for what a start has left that came to nothing."""
    folder = Path(out or "").resolve()  # runs/.. is this folder, also where there is no runs/ yet
    if out is None or not folder.is_dir():
        return
    if is_run(folder):
        way = f"--resume {out}" if checkpoint.newest(folder) else "this one removed: no checkpoint of it was written"
        raise ConfigError(f"out: given {out}, which already holds a run, allowed: a new folder, or {way}")
    begun = "run" in read_environment(folder)
    for path in sorted(folder.iterdir()):
        ours = path.name == CELL or path.name.startswith(f".{ENVIRONMENT}.")  # the latter from a kill as it was written
        ours |= begun and path.name.lstrip(".").startswith(OF_A_START)
        if not ours and (path.is_symlink() or not path.is_dir() or any(path.iterdir())):
            raise ConfigError(f"out: given {out}, which holds {path.name}, allowed: a new or empty folder")


def choose(out: str | None, algorithm: str, data: str, run_id: str | None = None) -> tuple[Path, bool]:
    """The folder of a new run, and whether it may be there already.

    It is the named one, or one that this job took before a restart, or the next free one.
    """
    if out is not None:
        return Path(out), True
    stem = re.sub(r"[^\w.-]+", "-", f"{algorithm}-{data}")
    for folder in RUNS.glob(f"{stem}-*") if run_id else ():
        if not is_run(folder) and read_environment(folder).get("run_id") == run_id:
            return folder, True
    taken = [int(path.name[len(stem) + 1 :]) for path in RUNS.glob(f"{stem}-*") if path.name[len(stem) + 1 :].isdigit()]
    return RUNS / f"{stem}-{max(taken, default=0) + 1:03d}", False


def claim(out: str | None, algorithm: str, data: str, run_id: str | None = None) -> Path:
    """Make the folder of a new run, as `choose` chooses it."""
    if out is None:
        RUNS.mkdir(exist_ok=True)
    while True:
        folder, may_be_there = choose(out, algorithm, data, run_id)
        try:
            folder.mkdir(parents=True, exist_ok=may_be_there)
        except FileExistsError:
            if may_be_there:  # but a file is in its place
                raise
            continue  # another run took it meanwhile
        return folder.resolve()


def check_can_be_claimed(folder: Path) -> None:
    """Raise what `claim` would, as far as can be told without making anything."""
    if folder.parent == RUNS:
        check_can_be_made(RUNS)
    check_can_be_made(folder)


@contextmanager
def refused_where_unwritable(out: str | None) -> Iterator[None]:
    """Turn what a disk says of the run folder into a refusal."""
    try:
        yield
    except OSError as error:
        given = f"nothing, which means a new folder in {RUNS.absolute()}" if out is None else out
        allowed = "a folder that can be written"
        raise ConfigError(f"out: given {given}, which cannot be written: {error}, allowed: {allowed}") from error


def point_latest(folder: Path) -> None:
    """Let runs/latest point to a run that lies in runs/."""
    if folder.parent != RUNS.resolve():
        return
    latest, aside = RUNS / "latest", RUNS / f".latest.{os.getpid()}"
    try:
        if latest.exists() and not latest.is_symlink():
            raise FileExistsError("it is no link of ours")
        aside.symlink_to(folder.name)
        aside.replace(latest)
    except OSError as error:  # also on a file system without links
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
        last = kept["metrics.jsonl"][-1]
        last |= {"push_weight_min": min(push_weights), "push_weight_max": max(push_weights)}
        kept["metrics.jsonl"][-1] = {key: value for key, value in last.items() if key not in scores_to_drop}
    for name, lines in kept.items():
        write_lines(folder / name, lines)


def write_classes(folder: Path, names: Sequence[str], counts: numpy.ndarray) -> None:
    """Write down how many training samples of each class each client has."""
    content = {"classes": list(names), "counts": counts.tolist()}
    write_atomic(folder / "classes.json", (json.dumps(content) + "\n").encode())


def read_classes(folder: Path) -> list[list[int]]:
    """What `write_classes` wrote; nothing where it is missing or damaged."""
    counts: list[list[int]] = read_json(folder / "classes.json").get("counts", [])
    return counts


def read_environment(folder: Path) -> dict[str, Any]:
    return read_json(folder / ENVIRONMENT)


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
    where = {"versions": versions, "platform": platform.platform(), "git_commit": git_commit()}
    write_facts(folder, {"format": FORMAT, **where, **facts})


def write_facts(folder: Path, facts: Mapping[str, Any]) -> None:
    write_atomic(folder / ENVIRONMENT, (json.dumps(facts, indent=1) + "\n").encode())


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


def write_model(folder: Path, module: nn.Module) -> None:
    """Write a model as an ordinary state_dict."""
    buffer = io.BytesIO()
    torch.save({name: value.detach().cpu().clone() for name, value in module.state_dict().items()}, buffer)
    write_atomic(folder / "model.pt", buffer.getvalue())
