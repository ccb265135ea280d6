"""`dfl-dist NAME …`: each command is a module of `commands/`, or a folder where it has several files."""

import importlib
import os
import sys

from dfl_dist import __version__
from dfl_dist.errors import ConfigError, not_installed, refusal
from dfl_dist.signals import ending_quietly, require_linux
from dfl_dist.text import help_page, show_life

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # else numpy starts threads, and cannot be forked
QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # torch warns of every address without a name
SLOW_TO_START = (
    "doctor",
    "launch",
    "partition",
    "sweep",
    "topology",
    "train",
)  # a second or two, until there is something to tell
COMMANDS = {  # where its function `main` is, and what it is for
    "algorithms": ("algorithms", "the methods and the settings each stands for"),
    "doctor": (
        "doctor.command",
        "whether this machine, or all hosts of a job, can run it: versions, devices, network, disk",
    ),
    "files": ("files", "configs and launch scripts that come with the package: what there is, and copies of them"),
    "launch": ("launch", "train on one host or on several, with restarts and clean stops"),
    "partition": ("partition.command", "which client has how many samples of which class, without training"),
    "report": ("report", "what runs have reached: tables, LaTeX, figures, one page"),
    "runs": ("runs", "what runs there are, how they stand, what they have reached; also while they run"),
    "sweep": (
        "sweep",
        "the runs of a grid, some at a time; finished ones are skipped, interrupted ones resumed",
    ),
    "train": ("train", "train in this process, for a debugger, or on -n ranks as launch does"),
    "topology": ("topology.command", "what graphs do to averaging and to the network, without training"),
    "watch": ("watch", "the report of what is running, as a page that follows it in a browser"),
}


def main(argv: list[str] | None = None) -> int:
    """Hand the arguments over to the command they name."""
    name, *arguments = (sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        require_linux()
        if name in ("-h", "--help"):
            print(help_text())
            return 0
        if name == "--version":
            print(f"dfl-dist {__version__}")
            return 0
        if name not in COMMANDS:
            raise refusal("command", name, ", ".join(COMMANDS), COMMANDS)
        if name in SLOW_TO_START and not {"-h", "--help"} & set(arguments):
            show_life(name)
        os.environ.update(ONE_THREAD | QUIET | dict(os.environ))  # before anything is imported that reads it
        sys.path.append(os.getcwd())  # import paths such as my_project.sets:load mean what they mean to the trainer
        module, _ = COMMANDS[name]
        with ending_quietly("dfl-dist"):
            try:
                command = importlib.import_module(f"dfl_dist.commands.{module}").main
            except ModuleNotFoundError as error:
                raise not_installed(error) from error
            code: int = command(arguments)
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ConfigError as error:
        print(f"dfl-dist: {error}", file=sys.stderr)
        return 2


def help_text() -> str:
    return help_page(
        "usage: dfl-dist NAME [options]",
        {command: text for command, (_, text) in COMMANDS.items()},
        "Settings of a run: dfl-dist train --help; torchrun --nproc_per_node=8 -m dfl_dist.train takes the same.",
    )
