"""`dfl-dist algorithms`: the methods and the settings each stands for."""

from dfl_dist.algorithms.table import ALGORITHMS, Method
from dfl_dist.config.resolve import METHOD_KEYS, settings_of
from dfl_dist.errors import refusal
from dfl_dist.text import format_table
from dfl_dist.topology.kinds import KINDS
from dfl_dist.topology.schedule import weights_in_force


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print("usage: dfl-dist algorithms\n\nThe methods, and the settings each gives to what is left null.")
        return 0
    if argv:
        raise refusal("algorithms", " ".join(argv), "no arguments")
    rows = [
        [name, *("-" if value is None else str(value) for value in settings_of(method).values()), mixing(method)]
        for name, method in ALGORITHMS.items()
    ]
    print(format_table(["algorithm", *METHOD_KEYS.values(), "mixing"], rows))
    return 0


def mixing(method: Method) -> str:
    """How a row mixes, in words."""
    if KINDS[method.graph].is_server:
        return "server average"
    return f"push-sum, {weights_in_force(method.graph, 'auto')} weights"
