"""`dfl-dist train`: train in this process, which hosts all clients, or on `-n` ranks as `dfl-dist launch` does."""

from dfl_dist.commands import launch
from dfl_dist.config.help import help_text
from dfl_dist.signals import begin_to_leave, take_over
from dfl_dist.text import help_page

FORMS = {
    "dfl-dist train": "in this process, which hosts all clients",
    "dfl-dist train -n RANKS": "on so many ranks, with the options of dfl-dist launch",
}


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print(help_page(FORMS), help_text(), sep="\n\n")
        return 0
    if any(word.partition("=")[0] in ("-n", "--ranks") for word in argv):
        return launch.main(argv)
    take_over()
    from dfl_dist.training.main import main as train  # a signal while it is imported is heard

    code = train(argv)
    begin_to_leave(code)
    return code
