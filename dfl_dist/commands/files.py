"""`dfl-dist files`: what comes with the package beside the code, to look at and to copy."""

import shutil
from itertools import takewhile
from pathlib import Path

from dfl_dist.commands.options import split
from dfl_dist.config.shipped import FILES
from dfl_dist.errors import ConfigError, refusal
from dfl_dist.text import format_table, help_page


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(help_text())
        return 0
    words = split(argv, {"to": "the folder to copy into"})
    if words.settings:
        raise refusal("option", words.settings[0], "--to FOLDER", ["--to"])
    if not words.plain:
        print(format_table(("file", "what it is for"), [(name, purpose(FILES / name)) for name in shipped()]))
        return 0
    copy(words.plain, Path(words.own.get("to", ".")))
    return 0


def help_text() -> str:
    return help_page(
        "usage: dfl-dist files [NAME ... [--to FOLDER]]",
        "Configs and launch scripts that come with the package. Without a name: what there is. With names of files or "
        "folders, such as launch/slurm or configs/paper/mnist.yaml: copies them into this folder, or into --to FOLDER, "
        "each under its own path. A file that is there already is never overwritten.",
        "--config and dfl-dist sweep find configs by name, without a copy: --config quickstart, dfl-dist sweep "
        "paper/mnist.",
    )


def shipped() -> list[str]:
    """The names of all files; not of what an editor left there."""
    found = [path for folder in sorted(FILES.iterdir()) for path in sorted(folder.rglob("*")) if path.is_file()]
    return [str(path.relative_to(FILES)) for path in found if not path.name.startswith(".")]


def purpose(path: Path) -> str:
    """The first sentence of a file, which says what it is for."""
    lines = (line for line in path.read_text().splitlines() if not line.startswith("#!"))
    text = takewhile(lambda line: line and not line.startswith("#  "), lines)  # up to an example
    return " ".join(line.lstrip("# ") for line in text).partition(". ")[0].rstrip(".:")


def copy(names: list[str], to: Path) -> None:
    """Copy files, all or none: refused where a name is unknown, or something else is where one is to go."""
    everything = shipped()
    known = {*everything, *(str(folder) for name in everything for folder in Path(name).parents)} - {"."}
    wanted: dict[Path, Path] = {}
    for name in names:
        if (name := name.rstrip("/")) not in known:
            raise refusal("file", name, "those that dfl-dist files lists, and their folders", sorted(known))
        wanted |= {FILES / file: to / file for file in everything if f"{file}/".startswith(f"{name}/")}
    for source, target in wanted.items():
        if target.exists() and target.read_bytes() != source.read_bytes():
            raise refusal("to", f"{to}, which has another {target}", "a folder without it: nothing is overwritten")
    try:
        for source, target in wanted.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            target.chmod(0o755 if source.read_bytes().startswith(b"#!") else 0o644)
            print(target)
    except OSError as error:
        raise ConfigError(f"to: given {to}, which cannot be written: {error}") from error
