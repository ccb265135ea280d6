"""Checkpoints: the state of all clients after a round, written so that a torn one is never taken for whole."""

import hashlib
import io
import json
import pickle
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dfl_dist.errors import ConfigError, refusal
from dfl_dist.formats import FORMAT, format_of
from dfl_dist.run_folder.files import read_json, sync_folder, write_atomic

# What is kept of a client.


@dataclass(frozen=True)
class Parcel:
    """A share in flight to a client: mixed in by gossip step `step` of round `due`."""

    due: int
    step: int
    sender: int
    w: float
    x: Tensor


@dataclass(frozen=True)
class Holdings:
    """What a client has: x, w, and what is in flight to it."""

    x: Tensor
    w: float
    in_flight: list[Parcel] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {"x": self.x, "w": self.w, "in_flight": [vars(parcel) for parcel in self.in_flight]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Holdings":
        return cls(values["x"], values["w"], [Parcel(**parcel) for parcel in values["in_flight"]])


@dataclass(frozen=True)
class ClientState:
    """A client after a number of rounds, as its file has it.

    After the last round of a run with overlap `before_drain` is what the client had before all that was in flight was
    mixed in, so that the run can be made longer as if it had not ended there.
    """

    client: int
    round_count: int
    train_loss: float | None
    holdings: Holdings
    before_drain: Holdings | None = None

    def to_bytes(self) -> bytes:
        content: dict[str, Any] = {
            "format": FORMAT,
            "client": self.client,
            "round": self.round_count,
            "train_loss": self.train_loss,
        }
        content |= self.holdings.to_dict()
        if self.before_drain:
            content["before_drain"] = self.before_drain.to_dict()
        buffer = io.BytesIO()
        torch.save(content, buffer)
        return buffer.getvalue()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ClientState":
        before = Holdings.from_dict(values["before_drain"]) if "before_drain" in values else None
        return cls(values["client"], values["round"], values["train_loss"], Holdings.from_dict(values), before)


# Writing.


def folder_name(round_count: int) -> str:
    return f"round-{round_count:06d}"


def client_file(client: int) -> str:
    return f"client-{client:04d}.pt"


def save_client(folder: Path, state: ClientState) -> str:
    """Write a client's file; return its checksum."""
    folder.mkdir(parents=True, exist_ok=True)
    content = state.to_bytes()
    write_atomic(folder / client_file(state.client), content)
    return hashlib.sha256(content).hexdigest()


def write_manifest(folder: Path, checksums: Sequence[str], identity: Mapping[str, Any]) -> None:
    """Declare a checkpoint complete; `identity` is what a run must have in common with it to go on from it."""
    files = {
        client_file(client): {"sha256": checksum, "bytes": (folder / client_file(client)).stat().st_size}
        for client, checksum in enumerate(checksums)
    }
    sync_folder(folder.parent)
    manifest = {"format": FORMAT, "round": round_of(folder), **identity, "files": files}
    write_atomic(folder / "manifest.json", json.dumps(manifest, indent=1).encode())


def is_early(rounds_done: int, every: int) -> bool:
    """Whether a round, 1, 2, 4, …, is saved for want of a regular checkpoint: a run that diverges does so soon."""
    return 0 < rounds_done < every and rounds_done.bit_count() == 1


def prune(run: Path, keep: int, every: int, *, grown: int | None = None) -> None:
    """Remove all but the newest `keep` complete checkpoints, and what older ones left unfinished; 0 keeps all.

    Of the early ones only the newest is kept, and none once there is a regular one. Where the loss has left every
    measure, in round `grown`, counted from 1, the newest checkpoint of before stays as well.
    """
    *older, last = complete(run)
    good = newest(run, before=grown)
    kept = [*(folder for folder in older if not is_early(round_of(folder), every)), last]
    for folder in folders(run):
        superfluous = folder in older and folder not in kept
        outdated = keep > 0 and folder not in kept[-keep:] and round_of(folder) < round_of(last)
        if folder != good and (superfluous or outdated):
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


# Finding and reading.


def complete(run: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first: those whose manifest was written."""
    return [folder for folder in folders(run) if (folder / "manifest.json").is_file()]


def newest(run: Path, *, before: int | None = None) -> Path | None:
    """The newest complete checkpoint of a run; of before a round, counted from 1, where one is given."""
    found = [folder for folder in complete(run) if before is None or round_of(folder) < before]
    return found[-1] if found else None


def folders(run: Path) -> list[Path]:
    """The checkpoints of a run, complete or not, oldest first."""
    found = [path for path in (run / "checkpoints").glob("round-*") if re.fullmatch(r"round-\d{6,}", path.name)]
    return sorted(found, key=round_of)


def round_of(folder: Path) -> int:
    return int(folder.name.removeprefix("round-"))


def way_out(folder: Path) -> str:
    """What is offered when a checkpoint cannot be used."""
    older = [path for path in complete(folder.parent.parent) if round_of(path) < round_of(folder)]
    return f"the one before it can be used: --resume {older[-1]}" if older else "there is none before it"


def check_format(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse a file of another format, before anything else is read from it; one without content is damaged.

    No older checkpoint is offered instead: the version that wrote this one can go on from it.
    """
    if content and format_of(content) != FORMAT:
        given = f"{path}, of format {format_of(content)}"
        raise refusal("resume", given, f"format {FORMAT}, which this version writes")


def read_manifest(folder: Path, identity: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a checkpoint; refused where it is of another run, or where a file is missing or cut short."""
    path = folder / "manifest.json"
    manifest = read_json(path)
    check_format(path, manifest)
    try:
        files, found = manifest["files"], {key: manifest[key] for key in ("round", *identity)}
    except KeyError as error:
        raise ConfigError(f"resume: {path} is not the manifest of a checkpoint; {way_out(folder)}") from error
    for key, value in ({"round": round_of(folder)} | dict(identity)).items():
        if found[key] != value:
            raise ConfigError(
                f"resume: {path} is of another run: {key} {found[key]}, expected {value}; {way_out(folder)}"
            )
    for name, facts in files.items():
        size = (folder / name).stat().st_size if (folder / name).is_file() else None
        if size != facts["bytes"]:
            state = "is missing" if size is None else f"is damaged: {size} bytes, expected {facts['bytes']}"
            raise ConfigError(f"resume: {folder / name} {state}; {way_out(folder)}")
    return manifest


def load_client(folder: Path, client: int, manifest: Mapping[str, Any]) -> ClientState:
    """One client's state, its checksum verified before anything is read from it."""
    path = folder / client_file(client)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"resume: {path} cannot be read: {error.strerror}; {way_out(folder)}") from error
    if hashlib.sha256(content).hexdigest() != manifest["files"][path.name]["sha256"]:
        raise ConfigError(f"resume: {path} is damaged: its checksum is not the manifest's; {way_out(folder)}")
    try:
        values = torch.load(io.BytesIO(content), weights_only=True)
        check_format(path, values)
        state = ClientState.from_dict(values)
        if (state.client, state.round_count) != (client, round_of(folder)):
            raise KeyError("client")
    except (RuntimeError, pickle.UnpicklingError, AttributeError, KeyError, TypeError) as error:
        raise ConfigError(f"resume: {path} is not the state of client {client}; {way_out(folder)}") from error
    return state
