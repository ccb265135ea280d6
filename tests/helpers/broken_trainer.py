"""The trainer with something broken on one rank, called through `launching.ranks` or under torchrun."""

import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

from dfl_dist.distributed import groups
from dfl_dist.distributed.control import Control
from dfl_dist.distributed.gloo import GlooTransport
from dfl_dist.run_folder import checkpoint
from dfl_dist.run_folder.folder import read_environment, write_environment
from dfl_dist.run_folder.recorder import Recorder
from dfl_dist.training import ending, leader, prepare, setup
from dfl_dist.training import main as training_main
from dfl_dist.training.clients import Clients
from dfl_dist.training.evaluate import Evaluator
from dfl_dist.training.exchange import PushSum
from dfl_dist.training.main import main

MOMENTS: dict[str, tuple[object, str]] = {
    "start": (setup, "load_clients"),
    "local steps": (Clients, "step"),
    "frames pushed": (GlooTransport, "push"),
    "evaluation": (Evaluator, "evaluate"),
    "a client's file": (checkpoint, "write_atomic"),
    "manifest": (checkpoint, "write_manifest"),
    "old checkpoints": (checkpoint, "prune"),
    # The last second.
    "model file": (leader, "write_model"),
    "finished mark": (leader, "mark_finished"),
    "summary": (leader, "tell_end"),
    "last messages": (Control, "finish"),
    "report": (training_main, "tell_report"),
    "ending told": (training_main, "end_well"),
    "leaving": (groups, "disconnect"),
}
OVERTAKEN: dict[str, tuple[object, str, int]] = {  # and the how-maniest time
    "partition": (prepare, "write_partition", 1),
    "records": (setup, "open_records", 1),
    "clients": (PushSum, "states", 1),
    "manifest": (Recorder, "sync", 1),
    "old checkpoints": (checkpoint, "write_manifest", 3),
    "results": (leader.Leader, "finish", 1),
    "mark": (leader, "write_model", 1),
    "STOP": (leader, "tell_end", 1),
    "report": (Control, "finish", 1),
}


def raise_in_round_4(arguments: list[str]) -> int:
    """The trainer, with a bug that shows on rank 2 in round 4."""
    original = Clients.step

    def step(self, round_idx, model, work, training):  # type: ignore[no-untyped-def]
        if round_idx == 3 and os.environ["RANK"] == "2":
            raise ValueError("the disk of this client is on fire")
        original(self, round_idx, model, work, training)

    Clients.step = step  # type: ignore[method-assign]
    return main(arguments)


def late_in_round_3(arguments: list[str]) -> int:
    """The trainer, with a rank 1 that trains in round 3 until rank 0 is through with that round, or has given up."""
    step, mix, through = Clients.step, PushSum.mix, Path("rank-0-is-through")
    patience_s = 2 * float(arguments[arguments.index("--timeout_s") + 1])

    def late_step(self, round_idx, model, work, training):  # type: ignore[no-untyped-def]
        step(self, round_idx, model, work, training)
        end = time.monotonic() + patience_s
        while round_idx == 2 and os.environ["RANK"] == "1" and not through.exists() and time.monotonic() < end:
            time.sleep(0.02)

    def marked_mix(self, round_idx, graph):  # type: ignore[no-untyped-def]
        mix(self, round_idx, graph)
        if round_idx == 2 and os.environ["RANK"] == "0":
            through.touch()

    Clients.step, PushSum.mix = late_step, marked_mix  # type: ignore[method-assign]
    return main(arguments)


def bug_in_the_plan(arguments: list[str]) -> int:
    """The trainer, with a function of its own that raises a ValueError before any rank has met another."""
    prepare.graph_schedule = [].index  # type: ignore[assignment]  # a built-in, so that no frame of a test is seen
    return main(arguments)


def bug_on_rank_1(arguments: list[str]) -> int:
    """The same where all ranks build what they need."""
    if os.environ["RANK"] == "1":
        setup.local_work = [].index  # type: ignore[assignment]
    return main(arguments)


def slow_to_tell(arguments: list[str]) -> int:
    """The trainer, whose rank 0 takes a moment to say why the run ends, long enough for the others to leave first."""

    def slow_print(*words, **options):  # type: ignore[no-untyped-def]
        time.sleep(0.5)
        print(*words, **options)

    ending.print = slow_print  # type: ignore[attr-defined]
    return main(arguments)


def lose_mass(arguments: list[str]) -> int:
    """The trainer, with a rank that forgets a part of its w in round 5."""
    original = PushSum.mix

    def forget(self, round_idx, graph):  # type: ignore[no-untyped-def]
        original(self, round_idx, graph)
        if round_idx == 4 and os.environ["RANK"] == "1":
            self.clients.w *= 0.9

    PushSum.mix = forget  # type: ignore[method-assign]
    return main(arguments)


def killed(arguments: list[str]) -> int:
    """The trainer, of which one rank is killed once: MOMENT RANK COUNT, the moment the COUNT-th time that it comes."""
    moment, rank, count, *arguments = arguments
    if os.environ["RANK"] == rank and not Path("killed").exists():
        coming = iter(range(int(count) - 1, -1, -1))
        owner, name = MOMENTS[moment]
        original = getattr(owner, name)

        def at_that_moment(*words, **options):  # type: ignore[no-untyped-def]
            if next(coming, None) == 0:
                Path("killed").touch()
                if moment == "local steps":  # in the midst of them
                    threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGKILL)).start()
                else:
                    if moment == "frames pushed":
                        original(*words, **options)
                    os.kill(os.getpid(), signal.SIGKILL)
            return original(*words, **options)

        setattr(owner, name, at_that_moment)
    return main(arguments)


def without_room(arguments: list[str]) -> int:
    """The trainer, whose disk is full when rank 1 writes the file of its client after round 6."""
    original = Clients.step

    def step(self, round_idx, model, work, training):  # type: ignore[no-untyped-def]
        if round_idx == 5 and os.environ["RANK"] == "1":
            folder = Path("run/checkpoints/round-000006")
            folder.mkdir(exist_ok=True)
            (folder / f".client-0001.pt.{os.getpid()}").symlink_to("/dev/full")
        original(self, round_idx, model, work, training)

    Clients.step = step  # type: ignore[method-assign]
    return main(arguments)


def taken_over(arguments: list[str]) -> int:
    """The trainer in one process, whose folder `run` another start takes over: MOMENT. `seen` is a copy from then."""
    moment, *arguments = arguments
    owner, name, count = OVERTAKEN[moment]
    original, coming = getattr(owner, name), iter(range(count - 1, -1, -1))

    def at_that_moment(*words, **options):  # type: ignore[no-untyped-def]
        folder = Path("run").resolve()
        if next(coming) == 0:
            write_environment(folder, read_environment(folder) | {"start": "another"})
            (folder / "STOP").touch()  # for the other start
            shutil.copytree(folder, "seen")
        return original(*words, **options)

    setattr(owner, name, at_that_moment)
    return main(arguments)


if __name__ == "__main__":  # under torchrun: broken_trainer.py NAME ARGUMENTS
    sys.exit(globals()[sys.argv[1]](sys.argv[2:]))
