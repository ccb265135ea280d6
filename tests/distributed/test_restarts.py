"""Restarts by torchrun: a rank is killed at any moment, and the run ends with the bits of one that was not."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest
from forked import Ranks
from launching import (
    TIMEOUT_S,
    TRAINER,
    Running,
    assert_same_run,
    elastic,
    lines,
    ranks,
    run,
    running,
    torchrun,
    train,
    wait_for_rounds,
)

from dfl_dist.run_folder.folder import is_finished, read_environment, write_environment

ROUNDS = 12
SETTINGS = ("--rounds", str(ROUNDS), "--local.epochs", "1", "--checkpoint.every", "3", "--eval.every", "4")
SETTINGS += ("--graph.out_degree", "1", "--report", "false", "--timeout_s", "30")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(None, tmp_path_factory.mktemp("undisturbed") / "run", "--num_clients", "3", *SETTINGS)


def assert_same_end(undisturbed: Path, cwd: Path) -> None:
    """In the one folder that the run has chosen for itself."""
    (folder,) = [path for path in (cwd / "runs").iterdir() if not path.is_symlink()]
    assert_same_run(undisturbed, folder, ROUNDS)
    assert "test_accuracy" in lines(folder / "metrics.jsonl")[-1]
    assert (folder / "model.pt").is_file()


@pytest.mark.parametrize(
    ("moment", "rank", "count"),
    [
        ("start", 1, 1),
        ("local steps", 0, 8),
        ("local steps", 2, 5),
        ("frames pushed", 0, 6),
        ("evaluation", 2, 2),
        ("a client's file", 1, 3),
        ("manifest", 0, 3),
        ("old checkpoints", 0, 4),
        ("model file", 0, 1),
        ("last messages", 1, 1),
    ],
)
def test_a_rank_killed_at_this_moment(undisturbed: Path, tmp_path: Path, moment: str, rank: int, count: int) -> None:
    """torchrun's own engine, with ranks that are forked."""
    done = run(elastic(3, 3, "broken_trainer:killed", moment, str(rank), str(count), *SETTINGS), tmp_path)
    assert done.code == 0, done.err
    assert (tmp_path / "killed").exists(), "the moment never came"
    assert_same_end(undisturbed, tmp_path)


@pytest.mark.parametrize(
    ("moment", "rank", "out"),
    [
        ("finished mark", 0, None),
        ("summary", 0, "runs/here"),
        ("last messages", 0, None),
        ("report", 0, "runs/here"),
        ("ending told", 2, None),
        ("leaving", 0, "runs/here"),
        ("leaving", 1, None),
    ],
)
def test_a_rank_killed_in_the_last_second(
    undisturbed: Path, tmp_path: Path, moment: str, rank: int, out: str | None
) -> None:
    """The job finds its own run finished, or finishes it: model, report and events are complete."""
    asked = (*SETTINGS, "--report", "true", "--tracker", "tensorboard", *(("--out", out) if out else ()))
    done = run(elastic(3, 3, "broken_trainer:killed", moment, str(rank), "1", *asked), tmp_path)
    assert done.code == 0, done.err
    assert (tmp_path / "killed").exists(), "the moment never came"
    assert "refused" not in done.err
    assert_same_end(undisturbed, tmp_path)
    (folder,) = [path for path in (tmp_path / "runs").iterdir() if not path.is_symlink()]
    assert (folder / "report.html").is_file()
    assert (folder / "report.png").read_bytes().endswith(b"IEND\xaeB`\x82")
    assert is_finished(folder, ROUNDS)
    assert events(folder, "train_loss") == [line["train_loss"] for line in lines(folder / "metrics.jsonl")]


def events(folder: Path, key: str) -> list[object]:
    """What TensorBoard shows of the rounds of a run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "tensorboard")).Reload().Scalars(key)
    assert [event.step for event in found] == list(range(ROUNDS))
    return [pytest.approx(event.value, rel=1e-6) for event in found]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_rank_killed_at_any_moment(undisturbed: Path, tmp_path: Path, seed: int) -> None:
    """Under torchrun, from outside, two times, after so much of the run as the dice say."""
    dice = random.Random(seed)
    folder = tmp_path / "runs" / "dfedsgpsm-digits-001"
    with running(torchrun(3, *SETTINGS, max_restarts=3), tmp_path) as job:
        for rounds in sorted(dice.sample(range(1, ROUNDS - 2), 2)):
            wait_for_rounds(folder, rounds)
            time.sleep(0.1 * dice.random())
            kill_one(job, dice)
        done = job.finish()
    assert done.code == 0, done.err
    assert_same_end(undisturbed, tmp_path)


def kill_one(job: Running, dice: random.Random) -> None:
    """Kill a rank; while they are just being started again there may be none yet."""
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(dice.choice(job.torchrun_ranks()), signal.SIGKILL)
            return
    raise AssertionError("there are no ranks")


def test_ranks_whose_run_was_started_again_write_nothing_more(tmp_path: Path) -> None:
    """They were stopped in the midst of their local steps, and wake up when another start has taken over."""
    folder = tmp_path / "run"
    settings = ("--rounds", "50", "--local.steps", "1", "--local.rho", "0", "--checkpoint.every", "1")
    command = ranks(3, TRAINER, "--out", "run", *settings, "--model.name", "small_models:slow")
    with running(command, tmp_path, DFL_TEST_PASS_S="1") as job:
        wait_for(folder / "checkpoints" / "round-000001" / "manifest.json")
        time.sleep(0.3)
        for pid in job.ranks():
            os.kill(pid, signal.SIGSTOP)
        facts = read_environment(folder)
        write_environment(folder, facts | {"start": "another"})
        before = contents(folder)
        for pid in job.ranks():
            os.kill(pid, signal.SIGCONT)
        done = job.finish()
    assert done.code == 1
    assert f"another start of this run has taken over {folder}; this one writes nothing more" in done.err
    assert "Traceback" not in done.err
    assert contents(folder) == before


def test_a_job_whose_run_was_taken_over_is_not_started_again(tmp_path: Path) -> None:
    """Or two jobs would take the folder from each other, again and again."""
    folder = tmp_path / "run"
    settings = ("--rounds", "500", "--local.steps", "1", "--local.rho", "0", "--checkpoint.every", "1")
    with running(elastic(2, 3, TRAINER, "--out", "run", *settings), tmp_path) as job:
        wait_for(folder / "checkpoints" / "round-000001" / "manifest.json")
        write_environment(folder, read_environment(folder) | {"start": "another"})
        done = job.finish()
    assert done.code == 1
    assert "another start of this run has taken over" in done.err
    assert "start again" not in done.err
    assert read_environment(folder)["start"] == "another"


@pytest.mark.parametrize(
    ("moment", "just_written"),
    [
        ("partition", None),
        ("records", None),
        ("clients", None),
        ("manifest", None),
        ("old checkpoints", "checkpoints/round-000002/manifest.json"),
        ("results", None),
        ("mark", "model.pt"),
        ("STOP", None),
        ("report", None),
    ],
)
def test_nothing_is_written_when_another_start_took_over_before(
    tmp_path: Path, moment: str, just_written: str | None
) -> None:
    """Of what a run writes beside its lines: from its first file to its report."""
    words = ("--out", "run", "--rounds", "2", "--num_clients", "2", "--local.steps", "1", "--checkpoint.every", "2")
    done = run(Ranks(None, "broken_trainer:taken_over", (moment, *words, "--checkpoint.keep", "1")), tmp_path)
    assert done.code == 1, done.err
    assert "another start of this run has taken over" in done.err
    found, seen = (contents(tmp_path / name) for name in ("run", "seen"))
    if just_written:  # it was allowed to
        assert found.pop(Path(just_written))
    assert found == seen


def wait_for(path: Path) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not path.exists():
        assert time.monotonic() < end, f"{path} does not come"
        time.sleep(0.01)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_ranks_meet_though_their_hosts_have_counted_other_restarts(tmp_path: Path) -> None:
    """Words of the ranks that were there before are still in the store, and torchrun's counts differ."""
    done = run(ranks(3, "rank_programs:meet_again"), tmp_path)
    assert done.code == 0, done.err
