"""`dfl-dist algorithms`: the methods and the settings each stands for."""

from dfl_dist.algorithms import ALGORITHMS
from dfl_dist.config import refusal
from dfl_dist.schedule import SERVER, weights_in_force
from dfl_dist.tables import show


def main(argv: list[str]) -> int:
    if {"-h", "--help"} & set(argv):
        print("usage: dfl-dist algorithms\n\nThe methods, and the settings each gives to what is left null.")
        return 0
    if argv:
        raise refusal("algorithms", " ".join(argv), "no arguments")
    keys = list(dict.fromkeys(key for row in ALGORITHMS.values() for key in row))
    rows = [
        [name, *(str(row.get(key, "-")) for key in keys), mixing(row["graph.kind"])] for name, row in ALGORITHMS.items()
    ]
    print(show(["algorithm", *keys, "mixing"], rows))
    return 0


def mixing(kind: str) -> str:
    """How a row mixes, in words."""
    return "server average" if kind == SERVER else f"push-sum, {weights_in_force(kind, 'auto')} weights"
