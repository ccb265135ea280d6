"""Imports point one way: every import statement of the package, also inside functions and for type checkers only."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dfl_dist

PACKAGE = Path(dfl_dist.__file__).parent

# What each package, or module beside them, may import of the others. `dfl_dist` is the package's own `__init__`.
BASE = {"errors", "formats", "randomness", "text", "signals", "system"}
BELOW_CONFIG = BASE | {"topology", "models", "algorithms", "data"}
BELOW_REPORT = BELOW_CONFIG | {"config", "run_folder", "dfl_dist"}
BELOW_SWEEP = BELOW_REPORT | {"report", "distributed", "training", "launcher"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "formats": set(),
    "randomness": set(),
    "text": set(),
    "system": set(),
    "signals": {"errors", "system"},
    "topology": BASE,
    "models": BASE,
    "data": BASE,
    "distributed": BASE,
    "algorithms": BASE | {"topology", "models"},
    "config": BELOW_CONFIG,
    "run_folder": BELOW_CONFIG | {"config", "dfl_dist"},
    "report": BELOW_REPORT,
    "training": BELOW_REPORT | {"report", "distributed"},
    "launcher": BELOW_REPORT,
    "sweep": BELOW_SWEEP,
    "commands": BELOW_SWEEP | {"sweep"},
    "dfl_dist": {"errors", "run_folder", "training"},
    "train": {"errors", "signals", "text", "training"},
    "__main__": {"commands"},
}
MAY_DISTRIBUTE = {"distributed", "launcher"}  # import torch.distributed


def part_of(file: Path) -> str:
    """The package, or the module beside the packages, that a file belongs to."""
    first = file.parts[0].removesuffix(".py")
    return "dfl_dist" if first == "__init__" else first


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the full name of everything that is imported, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.distributed":
            yield node.lineno, "torch.distributed"


def find_offences(file: Path, source: str) -> list[str]:
    """What a file of the package imports though it must not; `file` as seen from the package's folder."""
    own, found = part_of(file), []
    for line, name in imports(ast.parse(source)):
        first, _, rest = name.partition(".")
        part = rest.split(".")[0]
        part = part if part in ALLOWED else "dfl_dist"
        relative = name.startswith(".")
        upwards = first == "dfl_dist" and part != own and part not in ALLOWED[own]
        distributes = f"{name}.".startswith("torch.distributed.") and own not in MAY_DISTRIBUTE
        if relative or upwards or distributes:
            found.append(f"dfl_dist/{file}:{line} imports {name}")
    return found


FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def test_imports_point_one_way() -> None:
    assert {part_of(file) for file in FILES} == set(ALLOWED), "every package has its place"
    offences = [offence for file in FILES for offence in find_offences(file, (PACKAGE / file).read_text())]
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize(
    ("file", "source", "offences"),
    [
        ("topology/graph.py", "import numpy\nfrom dfl_dist.config.schema import Config", [2]),
        ("models/flat.py", "from dfl_dist import config", [1]),
        ("algorithms/table.py", "import dfl_dist.config.schema as schema", [1]),
        ("data/shard.py", "def f():\n    from dfl_dist.models.flat import FlatModel", [2]),
        ("config/parse.py", "if TYPE_CHECKING:\n    from dfl_dist.run_folder.job import Job", [2]),
        ("run_folder/job.py", "from dfl_dist import __version__, report", [1]),
        ("report/text.py", "from dfl_dist.training.judge import judge", [1]),
        ("training/main.py", "from dfl_dist.train import main", [1]),
        ("commands/main.py", "import dfl_dist.train", [1]),
        ("training/main.py", "import torch.distributed as dist\nfrom torch import distributed", [1, 2]),
        ("training/main.py", "import torch\ntorch.distributed.barrier()", [2]),
        ("training/main.py", "from torch.distributed.rendezvous import rendezvous", [1]),
        ("training/main.py", "from .judge import judge\nfrom . import judge", [1, 2]),
        ("training/main.py", "from dfl_dist import Result\nfrom dfl_dist.training.judge import judge", []),
        ("distributed/gloo.py", "import torch.distributed as dist\nfrom dfl_dist.errors import PeerError", []),
    ],
)
def test_an_import_that_points_the_other_way_is_named(file: str, source: str, offences: list[int]) -> None:
    found = find_offences(Path(file), source)
    assert [line.partition(" imports ")[0] for line in found] == [f"dfl_dist/{file}:{line}" for line in offences]
