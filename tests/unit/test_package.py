"""The package itself: what it exports, and rules that hold for all of its code."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dfl_dist

SOURCES = sorted(Path(dfl_dist.__file__).parent.rglob("*.py"))
CHANGING = {"next", "pop", "popleft", "append", "add", "remove", "write", "read", "wait", "setdefault", "update"}


def test_the_library_call_is_an_ordinary_function() -> None:
    import dfl_dist.training.main

    assert {"train", "open_run", "ConfigError", "Result"} <= set(dir(dfl_dist))
    assert inspect.isfunction(dfl_dist.train)
    assert list(inspect.signature(dfl_dist.train).parameters) == ["config", "model", "data", "on_round"]


def test_what_is_promised_to_be_importable() -> None:
    from dfl_dist.data.datasets import Dataset
    from dfl_dist.models import digits_mlp

    assert digits_mlp()[0].in_features == 64
    assert inspect.isclass(Dataset)


def test_importing_the_package_leaves_torch_out() -> None:
    code = "import sys, dfl_dist; dfl_dist.train; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize("module", ["dfl_dist.train", "dfl_dist"])
def test_a_python_without_the_environment_is_told_how_to_get_it(module: str) -> None:
    """Without the packages that the project was installed with: one line and exit code 2."""
    root = Path(dfl_dist.__file__).parents[1]
    command = [sys.executable, "-S", "-m", module, *(["runs"] if module == "dfl_dist" else ["--rounds", "2"])]
    done = subprocess.run(command, cwd=root, env={}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    line, *more = done.stderr.splitlines()
    assert not more
    assert re.match(r"dfl.dist: (torch|numpy|yaml): not installed for .*, allowed: source \.venv/bin/activate", line)


def test_an_older_python_is_told_which_one_it_takes() -> None:
    root = Path(dfl_dist.__file__).parents[1]
    code = "import runpy, sys; sys.version_info = (3, 9, 18); runpy.run_module('dfl_dist.train')"
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=root, env={}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert re.fullmatch(r"dfl_dist: needs Python 3\.10 or newer, given 3\.9\.18 \(.*\)\n", done.stderr)


def test_no_assert_does_something() -> None:
    """Under `python -O` assertions are not run, so nothing may depend on their running."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assert):
                for part in ast.walk(node.test):
                    called = part.func if isinstance(part, ast.Call) else None
                    name = getattr(called, "attr", getattr(called, "id", None))
                    if name in CHANGING or isinstance(part, ast.NamedExpr):
                        found.append(f"{path.name}:{node.lineno}")
    assert not found
