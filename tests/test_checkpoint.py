"""Checkpoints: complete or not at all, kept and pruned, damaged and foreign ones refused by name."""

import hashlib
import json
import os
from pathlib import Path

import pytest
import torch

from dfl_dist import checkpoint
from dfl_dist.config import ConfigError

IDENTITY = {"num_clients": 3, "model.name": "m", "run": "abc"}
X = torch.arange(12, dtype=torch.float32).view(3, 4)
W = torch.tensor([0.5, 1.0, 1.5], dtype=torch.float64)


def save(run: Path, round_count: int, *, manifest: bool = True) -> Path:
    folder = run / "checkpoints" / checkpoint.folder_name(round_count)
    states = [{"x": X[row] + round_count, "w": float(W[row]), "in_flight": []} for row in range(3)]
    sums = checkpoint.save_clients(folder, round_count, range(0, 2), states[:2], [0.1, None])
    sums += checkpoint.save_clients(folder, round_count, [2], states[2:], [0.3])
    if manifest:
        checkpoint.write_manifest(folder, round_count, sums, IDENTITY)
    return folder


def load_all(folder: Path) -> list[dict[str, object]]:
    manifest = checkpoint.read_manifest(folder, IDENTITY)
    return [checkpoint.load_client(folder, client, manifest) for client in range(3)]


def test_states_come_back(tmp_path: Path) -> None:
    folder = save(tmp_path, 10)
    assert sorted(path.name for path in folder.iterdir()) == [
        *("client-0000.pt", "client-0001.pt", "client-0002.pt", "manifest.json"),
    ]
    assert folder.name == "round-000010"
    states = load_all(folder)
    assert [(state["client"], state["round"], state["w"]) for state in states] == [
        (0, 10, 0.5),
        (1, 10, 1.0),
        (2, 10, 1.5),
    ]
    assert all(torch.equal(state["x"], X[row] + 10) for row, state in enumerate(states))  # type: ignore[arg-type]
    assert torch.load(folder / "client-0001.pt", weights_only=True)["x"].untyped_storage().nbytes() == 16


def test_only_complete_ones_count(tmp_path: Path) -> None:
    save(tmp_path, 0)
    ten = save(tmp_path, 10)
    save(tmp_path, 20, manifest=False)
    assert checkpoint.complete(tmp_path)[-1] == ten


def test_prune_keeps_the_newest_and_clears_what_older_ones_left(tmp_path: Path) -> None:
    for round_count in (0, 5, 15, 20):
        save(tmp_path, round_count)
    save(tmp_path, 10, manifest=False)
    save(tmp_path, 25, manifest=False)
    checkpoint.prune(tmp_path, 0)
    assert len(list((tmp_path / "checkpoints").iterdir())) == 6
    checkpoint.prune(tmp_path, 2)
    left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert left == ["round-000015", "round-000020", "round-000025"]


def test_what_is_done_again_is_dropped_and_other_folders_are_left_alone(tmp_path: Path) -> None:
    for round_count in (0, 5, 10, 15):
        save(tmp_path, round_count)
    (tmp_path / "checkpoints" / "round-000005").rename(tmp_path / "checkpoints" / "round-000005.bak")
    assert [checkpoint.round_of(folder) for folder in checkpoint.complete(tmp_path)] == [0, 10, 15]
    checkpoint.drop_after(tmp_path, 10)
    checkpoint.prune(tmp_path, 1)
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
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    folder = save(tmp_path, 10)
    (folder / "manifest.json").write_text(text)
    with pytest.raises(ConfigError, match="is not the manifest of a checkpoint"):
        checkpoint.read_manifest(folder, IDENTITY)


class Exploit:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch exploited",)


def test_loading_never_runs_what_a_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even with a manifest that vouches for it."""
    monkeypatch.chdir(tmp_path)
    folder = save(tmp_path, 10)
    torch.save({"x": Exploit(), "w": 1.0, "round": 10}, folder / "client-0000.pt")
    manifest = json.loads((folder / "manifest.json").read_text())
    content = (folder / "client-0000.pt").read_bytes()
    manifest["files"]["client-0000.pt"] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match="is not the state of client 0"):
        load_all(folder)
    assert not (tmp_path / "exploited").exists()
