"""Checkpoints: the state of all clients after a round, written so that a torn one is never taken for whole."""

import hashlib
import io
import json
import os
import pickle
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from dfl_dist.config import ConfigError

FORMAT = 1


def folder_name(round_count: int) -> str:
    return f"round-{round_count:06d}"


def client_file(client: int) -> str:
    return f"client-{client:04d}.pt"


def write_atomic(path: Path, content: bytes) -> None:
    """Write aside, fsync, rename: the file is there whole or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def save_clients(
    folder: Path,
    round_count: int,
    clients: Sequence[int],
    states: Sequence[Mapping[str, Any]],
    losses: Sequence[float | None],
) -> list[str]:
    """Write the files of some clients after `round_count` rounds; return their checksums.

    A state holds x, w and what is in flight to the client; after the last round of a run with overlap also what they
    were before it was drained.
    """
    folder.mkdir(parents=True, exist_ok=True)
    checksums = []
    for client, state, loss in zip(clients, states, losses, strict=True):
        buffer = io.BytesIO()
        torch.save({"format": FORMAT, "client": client, "round": round_count, "train_loss": loss, **state}, buffer)
        write_atomic(folder / client_file(client), buffer.getvalue())
        checksums.append(hashlib.sha256(buffer.getvalue()).hexdigest())
    return checksums


def write_manifest(folder: Path, round_count: int, checksums: Sequence[str], identity: Mapping[str, Any]) -> None:
    """Declare a checkpoint complete; `identity` is what a run must have in common with it to go on from it."""
    files = {
        client_file(client): {"sha256": checksum, "bytes": (folder / client_file(client)).stat().st_size}
        for client, checksum in enumerate(checksums)
    }
    sync_folder(folder.parent)
    manifest = {"format": FORMAT, "round": round_count, **identity, "files": files}
    write_atomic(folder / "manifest.json", json.dumps(manifest, indent=1).encode())


def complete(run: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first: those whose manifest was written."""
    return [folder for folder in folders(run) if (folder / "manifest.json").is_file()]


def folders(run: Path) -> list[Path]:
    """The checkpoints of a run, complete or not, oldest first."""
    found = [path for path in (run / "checkpoints").glob("round-*") if re.fullmatch(r"round-\d{6,}", path.name)]
    return sorted(found, key=round_of)


def round_of(folder: Path) -> int:
    return int(folder.name.removeprefix("round-"))


def prune(run: Path, keep: int) -> None:
    """Remove all but the newest `keep` complete checkpoints, and what older ones left unfinished; 0 keeps all."""
    if keep == 0:
        return
    kept = complete(run)[-keep:]
    for folder in folders(run):
        if folder not in kept and round_of(folder) < round_of(kept[-1]):
            remove(folder)


def drop_after(run: Path, rounds_done: int) -> None:
    """Remove the checkpoints of rounds that are about to be done again."""
    for folder in folders(run):
        if round_of(folder) > rounds_done:
            remove(folder)


def remove(folder: Path) -> None:
    """Remove a checkpoint, its manifest first, so that a half-removed one is never taken for whole."""
    (folder / "manifest.json").unlink(missing_ok=True)
    shutil.rmtree(folder)


def before(folder: Path) -> str:
    """The way out that is offered when a checkpoint cannot be used."""
    older = [path for path in complete(folder.parent.parent) if round_of(path) < round_of(folder)]
    return f"the one before it can be used: --resume {older[-1]}" if older else "there is none before it"


def read_manifest(folder: Path, identity: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a checkpoint; refused where it is of another run, or where a file is missing or cut short."""
    path = folder / "manifest.json"
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
        files, found = manifest["files"], {key: manifest[key] for key in ("format", "round", *identity)}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"resume: {path} is not the manifest of a checkpoint; {before(folder)}") from error
    for key, value in ({"format": FORMAT, "round": round_of(folder)} | dict(identity)).items():
        if found[key] != value:
            raise ConfigError(
                f"resume: {path} is of another run: {key} {found[key]}, expected {value}; {before(folder)}"
            )
    for name, facts in files.items():
        size = (folder / name).stat().st_size if (folder / name).is_file() else None
        if size != facts["bytes"]:
            state = "is missing" if size is None else f"is damaged: {size} bytes, expected {facts['bytes']}"
            raise ConfigError(f"resume: {folder / name} {state}; {before(folder)}")
    return manifest


def load_client(folder: Path, client: int, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """One client's state, its checksum verified before anything is read from it."""
    path = folder / client_file(client)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"resume: {path} cannot be read: {error.strerror}; {before(folder)}") from error
    if hashlib.sha256(content).hexdigest() != manifest["files"][path.name]["sha256"]:
        raise ConfigError(f"resume: {path} is damaged: its checksum is not the manifest's; {before(folder)}")
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
        if (state["client"], state["round"]) != (client, round_of(folder)):
            raise KeyError("client")
    except (RuntimeError, pickle.UnpicklingError, KeyError, TypeError) as error:
        raise ConfigError(f"resume: {path} is not the state of client {client}; {before(folder)}") from error
    return state
