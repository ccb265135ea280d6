"""What the tests on clusters run, and the same run on this machine alone."""

from pathlib import Path

from launching import train

MODEL = ("--model.name", "small_models:slow", "--local.steps", "1", "--graph.out_degree", "1", "--report", "false")


def undisturbed(folder: Path, clients: int, rounds: int, *arguments: str) -> Path:
    """The same run in one process on this machine, where nothing happens to it."""
    layout = ("--num_clients", str(clients), "--rounds", str(rounds))
    return train(None, folder / "undisturbed", *layout, *MODEL, *arguments)
