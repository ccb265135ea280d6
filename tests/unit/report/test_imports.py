"""Reports need run folders and nothing that trains: neither importing nor writing them imports torch."""

import subprocess
import sys
from pathlib import Path

from run_folders import write_run

PROGRAM = """
import importlib, pkgutil, sys
import dfl_dist.report
from dfl_dist.commands.main import main

for module in pkgutil.iter_modules(dfl_dist.report.__path__):
    importlib.import_module(f"dfl_dist.report.{module.name}")
for name in ("report", "watch"):
    importlib.import_module(f"dfl_dist.commands.{name}")
assert "torch" not in sys.modules, "importing"
run, out = sys.argv[1:]
code = main(["report", run, "--latex", f"{out}/table.tex", "--html", f"{out}/page.html", "--figures", f"{out}/figures"])
assert code == 0
assert "torch" not in sys.modules, "writing"
"""


def test_a_report_leaves_torch_out(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [0.5, 0.75])
    command = [sys.executable, "-c", PROGRAM, str(run), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "page.html").is_file()
