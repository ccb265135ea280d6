"""Checkpoints: complete or not at all, kept and pruned, damaged and foreign ones refused by name."""

import dataclasses
import hashlib
import io
import json
import os
from pathlib import Path

import pytest
import torch

from dfl_dist.errors import ConfigError
from dfl_dist.formats import FORMAT
from dfl_dist.run_folder import checkpoint
from dfl_dist.run_folder.checkpoint import ClientState, Holdings, Parcel

IDENTITY = {"num_clients": 3, "model.name": "m", "run": "abc"}
X = torch.arange(12, dtype=torch.float32).view(3, 4)
W = torch.tensor([0.5, 1.0, 1.5], dtype=torch.float64)


def save(run: Path, round_count: int, *, manifest: bool = True) -> Path:
    folder = run / "checkpoints" / checkpoint.folder_name(round_count)
    holdings = [Holdings(X[row] + round_count, float(W[row])) for row in range(3)]
    states = [ClientState(row, round_count, (0.1, None, 0.3)[row], holdings[row]) for row in range(3)]
    checksums = [checkpoint.save_client(folder, state) for state in states]
    if manifest:
        checkpoint.write_manifest(folder, checksums, IDENTITY)
    return folder


def load_all(folder: Path) -> list[ClientState]:
    manifest = checkpoint.read_manifest(folder, IDENTITY)
    return [checkpoint.load_client(folder, client, manifest) for client in range(3)]


def test_states_come_back(tmp_path: Path) -> None:
    folder = save(tmp_path, 10)
    assert sorted(path.name for path in folder.iterdir()) == [
        *("client-0000.pt", "client-0001.pt", "client-0002.pt", "manifest.json"),
    ]
    assert folder.name == "round-000010"
    states = load_all(folder)
    assert [(state.client, state.round_count, state.train_loss, state.holdings.w) for state in states] == [
        (0, 10, 0.1, 0.5),
        (1, 10, None, 1.0),
        (2, 10, 0.3, 1.5),
    ]
    assert all(torch.equal(state.holdings.x, X[row] + 10) for row, state in enumerate(states))
    assert torch.load(folder / "client-0001.pt", weights_only=True)["x"].untyped_storage().nbytes() == 16


def test_what_is_in_flight_comes_back_and_what_a_drained_client_had_before() -> None:
    parcels = [Parcel(due=7, step=0, sender=2, w=0.25, x=X[2]), Parcel(due=7, step=1, sender=0, w=0.5, x=X[0])]
    before = Holdings(X[1], 0.25, parcels)
    state = ClientState(1, 7, 0.5, Holdings(X[1] + 1, 1.0), before)
    found = ClientState.from_dict(torch.load(io.BytesIO(state.to_bytes()), weights_only=True))
    assert found.holdings.in_flight == []
    assert found.before_drain is not None
    assert (found.before_drain.w, len(found.before_drain.in_flight)) == (0.25, 2)
    for parcel, original in zip(found.before_drain.in_flight, parcels, strict=True):
        assert (parcel.due, parcel.step, parcel.sender, parcel.w) == (7, original.step, original.sender, original.w)
        assert torch.equal(parcel.x, original.x)


def test_the_file_of_a_client_is_what_other_tools_read() -> None:
    """Plain values by name, in a file that `torch.load(…, weights_only=True)` takes."""
    parcel = Parcel(due=7, step=1, sender=2, w=0.25, x=X[2])
    state = ClientState(1, 7, 0.5, Holdings(X[1], 1.0, [parcel]))
    content = torch.load(io.BytesIO(state.to_bytes()), weights_only=True)
    assert list(content) == ["format", "client", "round", "train_loss", "x", "w", "in_flight"]
    assert [list(entry) for entry in content["in_flight"]] == [["due", "step", "sender", "w", "x"]]
    drained = dataclasses.replace(state, before_drain=state.holdings)
    assert list(torch.load(io.BytesIO(drained.to_bytes()), weights_only=True)["before_drain"]) == [
        "x",
        "w",
        "in_flight",
    ]


def test_only_complete_ones_count(tmp_path: Path) -> None:
    save(tmp_path, 0)
    ten = save(tmp_path, 10)
    save(tmp_path, 20, manifest=False)
    assert checkpoint.complete(tmp_path)[-1] == checkpoint.newest(tmp_path) == ten
    assert checkpoint.newest(tmp_path / "elsewhere") is None


def test_prune_keeps_the_newest_and_clears_what_older_ones_left(tmp_path: Path) -> None:
    for round_count in (0, 5, 15, 20):
        save(tmp_path, round_count)
    save(tmp_path, 10, manifest=False)
    save(tmp_path, 25, manifest=False)
    checkpoint.prune(tmp_path, 0, 5)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 6
    checkpoint.prune(tmp_path, 2, 5)
    left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert left == ["round-000015", "round-000020", "round-000025"]


@pytest.mark.parametrize("keep", [0, 3])
def test_of_the_early_ones_the_newest_is_kept_until_there_is_a_regular_one(tmp_path: Path, keep: int) -> None:
    left = []
    for round_count in range(21):
        if round_count % 10 == 0 or checkpoint.is_early(round_count, 10):
            save(tmp_path, round_count)
            checkpoint.prune(tmp_path, keep, 10)
            left.append([checkpoint.round_of(folder) for folder in checkpoint.complete(tmp_path)])
    assert left == [[0], [0, 1], [0, 2], [0, 4], [0, 8], [0, 10], [0, 10, 20]]


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (0, [[0], [0, 1], [0, 2], [0, 2, 4], [0, 2, 8], [0, 2, 10], [0, 2, 10, 20], [0, 10, 20, 30]]),
        (1, [[0], [1], [2], [2, 4], [2, 8], [2, 10], [2, 20], [30]]),
    ],
)
def test_the_newest_of_before_the_loss_grew_stays_until_it_comes_back(
    tmp_path: Path, keep: int, left: list[list[int]]
) -> None:
    found = []
    for round_count, grown in ((0, None), (1, None), (2, None), (4, 3), (8, 3), (10, 3), (20, 3), (30, None)):
        save(tmp_path, round_count)
        checkpoint.prune(tmp_path, keep, 10, grown=grown)
        found.append([checkpoint.round_of(folder) for folder in checkpoint.folders(tmp_path)])
        good = checkpoint.newest(tmp_path, before=grown)
        assert good
        assert checkpoint.round_of(good) == (2 if grown else round_count)
    assert found == left


def test_what_is_done_again_is_dropped_and_other_folders_are_left_alone(tmp_path: Path) -> None:
    for round_count in (0, 5, 10, 15):
        save(tmp_path, round_count)
    (tmp_path / "checkpoints" / "round-000005").rename(tmp_path / "checkpoints" / "round-000005.bak")
    assert [checkpoint.round_of(folder) for folder in checkpoint.complete(tmp_path)] == [0, 10, 15]
    checkpoint.drop_after(tmp_path, 10)
    checkpoint.prune(tmp_path, 1, 5)
    left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert left == ["round-000005.bak", "round-000010"]


def damage(path: Path, how: str) -> None:
    if how == "cut short":
        os.truncate(path, path.stat().st_size - 100)
    elif how == "missing":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))


@pytest.mark.parametrize("how", ["cut short", "missing", "one bit flipped"])
def test_a_damaged_file_is_refused_by_name_and_the_one_before_is_offered(tmp_path: Path, how: str) -> None:
    before, folder = save(tmp_path, 10), save(tmp_path, 20)
    damage(folder / "client-0001.pt", how)
    with pytest.raises(ConfigError) as error:
        load_all(folder)
    assert str(folder / "client-0001.pt") in str(error.value)
    assert f"--resume {before}" in str(error.value)
    assert load_all(before)


def test_nothing_before_is_said(tmp_path: Path) -> None:
    folder = save(tmp_path, 10)
    damage(folder / "client-0000.pt", "missing")
    with pytest.raises(ConfigError, match="is missing; there is none before it"):
        load_all(folder)


@pytest.mark.parametrize(("key", "value"), [("num_clients", 4), ("model.name", "other"), ("run", "xyz")])
def test_a_foreign_checkpoint_is_refused(tmp_path: Path, key: str, value: object) -> None:
    folder = save(tmp_path, 10)
    with pytest.raises(ConfigError, match=f"is of another run: {key} .*, expected {value}"):
        checkpoint.read_manifest(folder, IDENTITY | {key: value})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": {}}', "\x00"])
def test_a_manifest_that_is_damaged_is_refused(tmp_path: Path, text: str) -> None:
    folder = save(tmp_path, 10)
    (folder / "manifest.json").write_text(text)
    with pytest.raises(ConfigError, match="is not the manifest of a checkpoint"):
        checkpoint.read_manifest(folder, IDENTITY)


def test_the_format_counts_before_what_else_a_manifest_has(tmp_path: Path) -> None:
    _, folder = save(tmp_path, 5), save(tmp_path, 10)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest |= {"format": FORMAT + 1, "clients": manifest.pop("files")}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    words = rf"manifest\.json, of format {FORMAT + 1}, allowed: format {FORMAT}, which this version writes$"
    with pytest.raises(ConfigError, match=words):
        checkpoint.read_manifest(folder, IDENTITY)


@pytest.mark.parametrize("number", [FORMAT + 1, None])
def test_the_format_counts_before_what_else_a_clients_file_has(tmp_path: Path, number: int | None) -> None:
    """One without a number, as they once were, is of format 1."""
    folder = save(tmp_path, 10)
    content = {**Holdings(X[0], 1.0).to_dict(), "client": 0, "round": 10, "train_loss": None}
    torch.save({"format": number, "number": 0} if number else content, buffer := io.BytesIO())
    vouch_for(folder, buffer.getvalue())
    if number:
        with pytest.raises(ConfigError, match=rf"client-0000\.pt, of format {number}, allowed: format {FORMAT}, "):
            load_all(folder)
    else:
        assert load_all(folder)[0].holdings.w == 1.0


@pytest.mark.parametrize("content", [[1, 2], torch.ones(3)])
def test_a_file_that_is_no_state_at_all_is_refused(tmp_path: Path, content: object) -> None:
    folder = save(tmp_path, 10)
    torch.save(content, buffer := io.BytesIO())
    vouch_for(folder, buffer.getvalue())
    with pytest.raises(ConfigError, match="is not the state of client 0"):
        load_all(folder)


@pytest.mark.parametrize(("client", "round_count"), [(1, 10), (0, 11)])
def test_the_state_of_another_client_or_round_is_refused(tmp_path: Path, client: int, round_count: int) -> None:
    folder = save(tmp_path, 10)
    content = ClientState(client, round_count, None, Holdings(X[0], 1.0)).to_bytes()
    vouch_for(folder, content)
    with pytest.raises(ConfigError, match="is not the state of client 0"):
        load_all(folder)


def vouch_for(folder: Path, content: bytes) -> None:
    """Let a checkpoint have another file for client 0, with a manifest that says so."""
    (folder / "client-0000.pt").write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["client-0000.pt"] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    (folder / "manifest.json").write_text(json.dumps(manifest))


class Exploit:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch exploited",)


def test_loading_never_runs_what_a_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even with a manifest that vouches for it."""
    monkeypatch.chdir(tmp_path)
    folder = save(tmp_path, 10)
    torch.save({"x": Exploit(), "w": 1.0, "round": 10}, buffer := io.BytesIO())
    vouch_for(folder, buffer.getvalue())
    with pytest.raises(ConfigError, match="is not the state of client 0"):
        load_all(folder)
    assert not (tmp_path / "exploited").exists()
