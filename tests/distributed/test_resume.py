"""Going on with a run: the same bits as without an interruption, on any number of ranks; bad checkpoints refused."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from launching import (
    TRAINER,
    assert_same_run,
    elastic,
    lines,
    ranks,
    run,
    running,
    train,
    wait_for_rounds,
    without_times,
)

from dfl_dist.run_folder import checkpoint

SETTINGS = ("--num_clients", "4", "--local.epochs", "1", "--checkpoint.every", "5", "--eval.every", "4")
SETTINGS = (*SETTINGS, "--eval.clients_every", "7")


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 rounds without an interruption."""
    return train(4, tmp_path_factory.mktemp("straight") / "run", "--rounds", "20", *SETTINGS)


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10 rounds; tests work on copies of it."""
    return train(4, tmp_path_factory.mktemp("half") / "run", "--rounds", "10", *SETTINGS)


@pytest.fixture
def copy(half: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(half, tmp_path / "run"))


def resume(world_size: int, folder: Path, *arguments: str) -> Any:
    return run(ranks(world_size, TRAINER, "--resume", str(folder), *arguments), folder.parent)


@pytest.mark.parametrize("world_size", [4, 3, 1])
def test_ten_and_ten_rounds_are_twenty(straight: Path, copy: Path, world_size: int) -> None:
    done = resume(world_size, copy, "--rounds", "20")
    assert done.code == 0, done.err
    assert_same_run(straight, copy, 20)
    assert yaml.safe_load((copy / "resolved.yaml").read_text())["rounds"] == 20
    mean, other = (torch.load(folder / "model.pt", weights_only=True) for folder in (straight, copy))
    assert all(torch.allclose(mean[name], other[name], atol=1e-6, rtol=0) for name in mean)


def test_an_older_checkpoint_can_be_named(straight: Path, copy: Path) -> None:
    done = resume(2, copy / "checkpoints" / "round-000005", "--rounds", "20")
    assert done.code == 0, done.err
    assert_same_run(straight, copy, 20)


def test_a_finished_run_can_be_gone_back_in(half: Path, copy: Path) -> None:
    """As is offered when the newest checkpoint is damaged: the command as it is printed, no rounds told."""
    done = resume(2, copy / "checkpoints" / "round-000005")
    assert done.code == 0, done.err
    assert "goes on after 5 rounds" in done.err
    assert_same_run(half, copy, 10)


def test_going_back_leaves_no_checkpoint_of_what_is_done_again(straight: Path, copy: Path) -> None:
    """Killed after it went back, the run goes on from there, not from a checkpoint that its records lack."""
    back = ("--resume", str(copy / "checkpoints" / "round-000005"), "--rounds", "2000", "--checkpoint.every", "0")
    with running(ranks(4, TRAINER, *back), copy.parent):
        wait_for_rounds(copy, 12)
    assert checkpoint.round_of(checkpoint.complete(copy)[-1]) == 5
    done = resume(2, copy, "--rounds", "20", "--checkpoint.every", "5")
    assert done.code == 0, done.err
    assert_same_run(straight, copy, 20)


def test_results_that_were_not_written_are_written_on_resume(half: Path, copy: Path) -> None:
    """As after a kill between the last checkpoint and model.pt."""
    (copy / "model.pt").unlink()
    facts = json.loads((copy / "environment.json").read_text())
    assert facts.pop("finished_after") == 10
    (copy / "environment.json").write_text(json.dumps(facts))
    done = resume(2, copy)
    assert done.code == 0, done.err
    assert_same_run(half, copy, 10)
    mean, other = (torch.load(folder / "model.pt", weights_only=True) for folder in (half, copy))
    assert all(torch.allclose(mean[name], other[name], atol=1e-6, rtol=0) for name in mean)
    assert "rounds: given 10, allowed: more than 10" in resume(1, copy).err


def test_a_partition_that_is_missing_is_made_again_and_a_damaged_one_refused(straight: Path, copy: Path) -> None:
    (copy / "partition.npz").write_bytes(b"no archive")
    done = resume(2, copy, "--rounds", "20")
    assert done.code == 2
    assert f"resume: {copy / 'partition.npz'} is damaged" in done.err
    (copy / "partition.npz").unlink()
    done = resume(2, copy, "--rounds", "20")
    assert done.code == 0, done.err
    assert_same_run(straight, copy, 20)


def test_killed_in_the_middle(straight: Path, tmp_path: Path) -> None:
    """SIGKILL leaves a torn line and whatever was being written; the newest complete checkpoint is taken."""
    folder = tmp_path / "run"
    with running(ranks(4, TRAINER, "--out", str(folder), "--rounds", "20", *SETTINGS), tmp_path):
        wait_for_rounds(folder, 7)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 99, "lr')
    torn = folder / "checkpoints" / "round-000018"
    torn.mkdir()
    (torn / "client-0000.pt").write_bytes(b"half a file")
    done = resume(4, folder)
    assert done.code == 0, done.err
    assert_same_run(straight, folder, 20)


@pytest.mark.parametrize("how", ["STOP file", "SIGTERM", "SIGINT", "SIGTERM to rank 2 only"])
def test_a_clean_stop_after_the_same_round_everywhere(straight: Path, tmp_path: Path, how: str) -> None:
    folder = tmp_path / "run"
    arguments = (*SETTINGS, "--checkpoint.every", "0")
    with running(ranks(4, TRAINER, "--out", str(folder), "--rounds", "2000", *arguments), tmp_path) as job:
        wait_for_rounds(folder, 3)
        if how == "STOP file":
            (folder / "STOP").touch()
        else:
            for pid in job.ranks()[2:3] if "only" in how else job.ranks():
                os.kill(pid, signal.SIGINT if how == "SIGINT" else signal.SIGTERM)
        done = job.finish()
    assert done.code == {"STOP file": 0, "SIGINT": 130}.get(how, 143), done.err
    count = len(lines(folder / "metrics.jsonl"))
    assert 3 <= count < 2000
    assert f"after round {count} of 2000" in done.out
    told = {"STOP file": "a STOP file", "SIGTERM to rank 2 only": "a signal to rank 2", "SIGINT": "Ctrl-C (SIGINT)"}
    assert f"stopped by {told.get(how, how)} after" in done.out, done.out
    assert f"go on with: torchrun --nproc_per_node=4 -m dfl_dist.train --resume {folder.name}\n" in done.out
    assert [path.name for path in (folder / "checkpoints").iterdir()] == [f"round-{count:06d}"], "though it is off"
    assert "test_accuracy" in lines(folder / "metrics.jsonl")[-1], "the last round is evaluated"
    assert not (folder / "STOP").exists()
    goal = str(max(20, count + 1))
    more = resume(2, folder, "--rounds", goal, "--checkpoint.every", goal)
    assert more.code == 0, more.err
    recorded, expected = without_times(folder), without_times(straight)
    for a, b in zip(recorded[:19], expected[:19], strict=True):
        assert list(a) == list(b)
        assert a == pytest.approx(b, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["--rounds", "20", "--model.name", "small_models:softmax"],
            "model.name: given small_models:softmax, allowed: digits_mlp",
        ),
        (["--rounds", "20", "--num_clients", "5"], "num_clients: given 5, allowed: 4, as in the run that is resumed"),
        (["--rounds", "20", "--seed", "3"], "seed: given 3, allowed: 0, as in the run that is resumed"),
        (["--rounds", "20", "--algorithm", "osgp"], "algorithm: given osgp, allowed: dfedsgpsm"),
        (["--rounds", "10"], "rounds: given 10, allowed: more than 10"),
        (["--rounds", "20", "--out", "elsewhere"], "out: given elsewhere, allowed: null: the run goes on in"),
    ],
)
def test_a_continuation_that_would_be_another_run_is_refused(copy: Path, arguments: list[str], line: str) -> None:
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    done = resume(1, copy, *arguments)
    assert done.code == 2, done.err
    assert f"dfl_dist: {line}" in done.err
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before, "nothing is touched"


def test_no_run_there(tmp_path: Path) -> None:
    done = resume(1, tmp_path / "nowhere")
    assert done.code == 2
    assert "allowed: auto, never, or the folder of a run or of one of its checkpoints" in done.err


@pytest.mark.parametrize("how", ["cut short", "one bit flipped"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_works(straight: Path, copy: Path, how: str) -> None:
    file = copy / "checkpoints" / "round-000010" / "client-0002.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content[:-9] if how == "cut short" else content)
    records = (copy / "metrics.jsonl").read_bytes()
    done = resume(2, copy, "--rounds", "20")
    assert done.code == 2
    assert f"resume: {file} is damaged" in done.err
    assert (copy / "metrics.jsonl").read_bytes() == records, "nothing is cut back for a checkpoint that is refused"
    offered = done.err.rpartition("--resume ")[2].strip()
    assert offered == str(copy / "checkpoints" / "round-000005")
    again = run(ranks(2, TRAINER, "--resume", offered, "--rounds", "20"), copy.parent)
    assert again.code == 0, again.err
    assert_same_run(straight, copy, 20)


def test_a_refusal_is_told_before_any_rank_leaves(copy: Path) -> None:
    """Whoever started the ranks ends the others when the first leaves, as torchrun does."""
    (copy / "partition.npz").write_bytes(b"nothing")
    done = run(ranks(2, "broken_trainer:slow_to_tell", "--resume", str(copy), "--rounds", "20"), copy.parent)
    assert done.code == 2
    assert f"dfl_dist: resume: {copy / 'partition.npz'} is damaged" in done.err


def test_a_foreign_checkpoint_is_refused_by_name(copy: Path, tmp_path: Path) -> None:
    other = train(4, tmp_path / "other", "--rounds", "11", *SETTINGS, "--checkpoint.every", "11", "--seed", "5")
    shutil.copytree(other / "checkpoints" / "round-000011", copy / "checkpoints" / "round-000011")
    done = resume(1, copy, "--rounds", "20")
    assert done.code == 2
    assert "round-000011/manifest.json is of another run: seed 5, expected 0" in done.err
    assert f"--resume {copy / 'checkpoints' / 'round-000010'}" in done.err


def test_the_same_job_started_again_finds_its_own_folder(straight: Path, tmp_path: Path) -> None:
    """As a requeue does: the same command, the same job id, nothing told."""
    command = elastic(4, 0, TRAINER, "--rounds", "20", *SETTINGS)
    folder = tmp_path / "runs" / "dfedsgpsm-digits-001"
    with running(command, tmp_path, SLURM_JOB_ID="77"):
        wait_for_rounds(folder, 6)
    done = run(command, tmp_path, SLURM_JOB_ID="77")
    assert done.code == 0, done.err
    assert_same_run(straight, folder, 20)
    assert [path.name for path in (tmp_path / "runs").iterdir() if not path.is_symlink()] == [folder.name]
    third = run(ranks(1, TRAINER, "--rounds", "1", *SETTINGS), tmp_path, SLURM_JOB_ID="77")
    assert third.code == 0, third.err
    assert (tmp_path / "runs" / "dfedsgpsm-digits-002").is_dir(), "a finished run is not gone on with"
