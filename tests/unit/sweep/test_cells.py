"""What a cell left behind: the end of its log, its last accuracy, what is removed where it begins again."""

import socket
from pathlib import Path

import pytest

from dfl_dist.config.resolve import resolve
from dfl_dist.config.values import ask
from dfl_dist.launcher.jobs import Job
from dfl_dist.run_folder.folder import CELL
from dfl_dist.sweep.cells import State, last_accuracy, last_lines, prepare, write_last_words
from dfl_dist.sweep.grid import Cell


def test_a_cell_that_begins_again_is_emptied_of_what_runs_write_and_of_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder = tmp_path / "cell"
    for name in ("logs/attempt-0", "checkpoints/round-000010"):
        (folder / name).mkdir(parents=True)
    (folder / "wandb").symlink_to(tmp_path / "elsewhere")
    for name in ("metrics.jsonl", ".environment.json.123", "notes.md", "config.yaml.bak", ".notes.123"):
        (folder / name).touch()
    prepare(Cell("a", {}, resolve(ask({}))), folder, State.BEGIN_ANEW)
    assert sorted(path.name for path in folder.iterdir()) == [".notes.123", "config.yaml.bak", "notes.md", CELL]
    assert (tmp_path / "elsewhere").is_dir()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n\nb  \n", ["a", "b"]),
        ("".join(f"{n}\n" for n in range(9)), ["4", "5", "6", "7", "8"]),
        ("", []),
    ],
)
def test_the_last_lines_are_those_of_this_start(tmp_path: Path, text: str, shown: list[str]) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"--- before\nold\n--- command\n{text}")
    assert last_lines(log, len("--- before\nold\n")) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"round": 0, "test_accuracy": 0.5}\n{"round": 1, "test_accuracy": 0.625}\n{"round": 2}\n', "62.50%"),
        ('{"round": 0, "test_accuracy": null}\n', "-"),  # it was not finite
        ('{"round": 0}\n{"round": 1, "test_acc', "-"),
    ],
)
def test_the_last_accuracy_is_that_of_the_last_evaluation(tmp_path: Path, text: str, shown: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(text)
    assert last_accuracy(tmp_path) == shown


@pytest.mark.parametrize(
    ("code", "ending", "words", "added"),
    [
        (1, "failed", "Traceback …\nKeyError: 'a'", ["Traceback …", "KeyError: 'a'"]),
        (-9, None, None, ["launch: the processes of this job were killed by SIGKILL"]),
        (128 + 9, None, None, ["launch: the processes of this job were killed by SIGKILL"]),
        (1, None, None, []),
    ],
)
def test_what_a_launch_would_end_with_is_the_end_of_the_log(
    tmp_path: Path, code: int, ending: str | None, words: str | None, added: list[str]
) -> None:
    (log := tmp_path / "a.log").write_text("--- command\n")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        job = Job(1, ours)
        job.code, job.told.ending, job.told.words = code, ending, words
        write_last_words(log, job)
    assert last_lines(log, 0) == added
