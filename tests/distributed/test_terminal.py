"""A run in a terminal: a bar that fits, above it the scores that were reached."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from forked import environment

ROUNDS = 6
COMMAND = [sys.executable, "-m", "dfl_dist.train", "--rounds", str(ROUNDS), "--eval.every", "2", "--num_clients", "3"]


def read_all(terminal: int) -> bytes:
    seen = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while chunk := os.read(terminal, 1 << 16):
            seen += chunk
    return seen


@pytest.mark.parametrize("columns", [80, 140])
def test_scores_stay_on_the_screen_above_a_bar_that_fits(tmp_path: Path, columns: int) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 30, columns, 0, 0))
    words = [*COMMAND, "--local.steps", "1", "--report", "false", "--out", "run"]
    started = subprocess.Popen(words, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    seen = read_all(ours)
    assert started.wait(60) == 0
    assert seen.startswith(b"dfl_dist: starting\r\n")
    drawn = [line for line in re.split(r"[\r\n]+|\x1b\[A", seen.decode()) if line.strip().startswith("round")]
    assert max(map(len, drawn)) <= columns
    bars = [line for line in drawn if "|" in line]
    assert bars[-1].startswith(f"round {ROUNDS}/{ROUNDS} |"), drawn
    assert {int(bar.split("/")[0].split()[1]) for bar in bars} == set(range(ROUNDS + 1)), "each when it was done"
    kept = [line for line in drawn if "|" not in line]
    assert [int(line.split("/")[0].split()[1]) for line in kept] == [2, 4, 6]
    assert all(re.search(r"loss \d\.\d{4}  accuracy \d+\.\d\d%  consensus [\d.]+", line) for line in kept), kept
    words = ["loss", "accuracy", "ETA", *(["consensus", "s/round"] if columns == 140 else [])]
    assert all(word in bars[-1] for word in words), bars[-1]
