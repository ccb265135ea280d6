"""`dfl-dist NAME …`: one module of `commands/` a command."""

import importlib
import os
import sys

from dfl_dist.config import ConfigError, refusal

COMMANDS = {
    "algorithms": "the methods and the settings each stands for",
    "doctor": "whether this machine, or all hosts of a job, can run it: versions, devices, network, disk",
    "launch": "train through torchrun on one host or on several, with restarts and clean stops",
    "partition": "which client has how many samples of which class, without training",
    "report": "what runs have reached: tables, LaTeX, figures, one page",
    "sweep": "the runs of a grid, one after the other; finished ones are skipped, interrupted ones resumed",
    "topology": "what graphs do to averaging and to the network, without training",
}


def main(argv: list[str] | None = None) -> int:
    """Hand the arguments over to the command they name."""
    name, *arguments = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        lines = [f"  {command:<12} {text}" for command, text in COMMANDS.items()]
        print(
            "\n".join(
                [
                    "usage: dfl-dist NAME [options]",
                    "",
                    *lines,
                    "",
                    "Training: torchrun --nproc_per_node=8 -m dfl_dist.train --help",
                ]
            )
        )
        return 0
    sys.path.append(os.getcwd())  # import paths such as my_project.sets:load mean what they mean to the trainer
    try:
        if name not in COMMANDS:
            raise refusal("command", name, ", ".join(COMMANDS), COMMANDS)
        code: int = importlib.import_module(f"dfl_dist.commands.{name}").main(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except ConfigError as error:
        print(f"dfl-dist: {error}", file=sys.stderr)
        return 2
