"""`dfl-dist train`: train in this process, which hosts all clients, or on `-n` ranks as `dfl-dist launch` does."""

from dfl_dist.commands import launch
from dfl_dist.config.help import help_text
from dfl_dist.signals import ignore_signals, take_over

USAGE = "dfl-dist train: in one process; dfl-dist train -n RANKS, with the options of dfl-dist launch: on so many"


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(f"{USAGE}\n\n{help_text()}")
        return 0
    if any(word.partition("=")[0] in ("-n", "--ranks") for word in argv):
        return launch.main(argv)
    take_over()
    from dfl_dist.training.main import main as train  # a signal while it is imported is heard

    code = train(argv)
    ignore_signals()  # what is left is to leave
    return code
