"""The trainer, in which a rank hits a process of its own job, once, at an exact moment; started by `command`.

What is to be hit stands in the variable DFL_HIT: a moment, the rank that comes to it and hits, the how-manieth time it
comes, who is hit, and the signal. The rank first writes down what it is about to do, into `hit.json` of its working
directory, so that a hit is known to have happened, and when. Every rank writes down in `began` that it has begun, and
which ranks of an earlier attempt still live at that moment: none, or there are two generations of them.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

VARIABLE, TARGET = "DFL_HIT", "hitting:trainer"
HIT, BEGAN = Path("hit.json"), Path("began")
COMMAND, SERVER, AGENT, ITSELF = "command", "fork server", "agent", "itself"  # or the number of a rank
LOCAL_STEPS, PUSHED, MEETING, CUT = "local steps", "frames pushed", "meeting", "a cut of the run"
BEGUN_WITHIN_S, ENDED_WITHIN_S = 10.0, 60.0
START_CODE = f"import dfl_dist.commands.launch as command; command.TRAINER = {TARGET!r}; "
START_CODE += "import sys; from dfl_dist.commands.main import main; sys.exit(main())"


@dataclass(frozen=True)
class Hit:
    """What to do to whom, and when."""

    moment: str
    rank: int  # which comes to that moment, and hits
    count: int  # the how-manieth time
    victim: str
    signal: str

    def variable(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}


@dataclass(frozen=True)
class Done:
    """A hit that has happened."""

    moment: str
    round: int
    rank: int
    victim: str
    pid: int  # of the victim
    state: str  # of the victim, just before, as in /proc
    alive: dict[str, int]  # all processes of the job on this host
    at: float  # time.time()


@dataclass(frozen=True)
class Began:
    """A rank that has begun."""

    rank: int
    attempt: int
    store: str  # where the ranks of this attempt meet: another one for each
    pid: int
    born: int  # the kernel's count, so that a process id that is used again is not taken for the same process
    at: float
    before: list[int]  # ranks of other attempts that live


def command(*words: str) -> list[str]:
    """`dfl-dist launch`, with ranks that hit."""
    return [sys.executable, "-c", START_CODE, "launch", *words]


def read_hit(cwd: Path) -> Done | None:
    """The hit, if it has happened."""
    try:
        return Done(**json.loads((cwd / HIT).read_text()))
    except (FileNotFoundError, ValueError):
        return None


def read_began(cwd: Path) -> list[Began]:
    """All ranks that have begun, in that order."""
    with contextlib.suppress(FileNotFoundError):
        return [Began(**json.loads(line)) for line in (cwd / BEGAN).read_text().splitlines()]
    return []


def stat_of(pid: int) -> list[str]:
    """What /proc says of a process, from its state on; of one that is gone, that it is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["X", *["0"] * 30]


def is_alive(pid: int, born: int | None = None) -> bool:
    stat = stat_of(pid)
    return stat[0] not in "ZX" and born in (None, int(stat[19]))


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# In a rank.


def trainer(arguments: list[str]) -> int:
    """The trainer."""
    from dfl_dist.training.main import main

    begin()
    hit = Hit(**json.loads(os.environ[VARIABLE])) if VARIABLE in os.environ else None
    if hit and os.environ["RANK"] == str(hit.rank) and not HIT.exists():
        prepare(hit)
    return main(arguments)


def begin() -> None:
    """Write down that this rank has begun."""
    pid, store = os.getpid(), os.environ["MASTER_PORT"]
    before = [one.pid for one in read_began(Path()) if one.store != store and is_alive(one.pid, one.born)]
    rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    own = Began(rank, attempt, store, pid, int(stat_of(pid)[19]), time.time(), before)
    with BEGAN.open("a") as file:
        file.write(json.dumps(asdict(own)) + "\n")


def prepare(hit: Hit) -> None:
    """Have this rank hit at its moment."""
    from broken_trainer import MOMENTS

    from dfl_dist.distributed import groups
    from dfl_dist.training import clients
    from dfl_dist.training.exchange import PushSum

    further: dict[str, tuple[object, str]] = {LOCAL_STEPS: (clients, "local_steps"), MEETING: (groups, "connect")}
    owner, name = (MOMENTS | further | {CUT: (PushSum, "states")})[hit.moment]
    original, coming = getattr(owner, name), iter(range(hit.count - 1, -1, -1))

    def at_that_moment(*words: Any, **options: Any) -> Any:
        if next(coming, None) != 0:
            return original(*words, **options)
        if hit.moment == LOCAL_STEPS:
            model, x, w, velocity, drawn, *rest = words
            return original(model, x, w, velocity, in_the_midst(drawn, lambda: strike(hit)), *rest, **options)
        if hit.moment == PUSHED:
            result = original(*words, **options)
            strike(hit)
            return result
        strike(hit)
        return original(*words, **options)

    setattr(owner, name, at_that_moment)


def in_the_midst(batches: Iterable[Any], action: Callable[[], None]) -> Iterator[Any]:
    """The batches of a client; between the second and the third something happens."""
    for number, batch in enumerate(batches):
        if number == 2:
            action()
        yield batch


def strike(hit: Hit) -> None:
    """Write it down, then hit."""
    from dfl_dist.distributed import positions

    end = time.monotonic() + BEGUN_WITHIN_S
    while hit.victim not in (alive := processes() | {ITSELF: os.getpid()}) and time.monotonic() < end:
        time.sleep(0.001)  # at the start: a rank that has not begun yet
    pid = alive[hit.victim]
    done = Done(hit.moment, positions.OWN.place[0], hit.rank, hit.victim, pid, stat_of(pid)[0], alive, time.time())
    aside = HIT.with_suffix(".new")
    aside.write_text(json.dumps(asdict(done)))
    aside.replace(HIT)
    os.kill(pid, signal.Signals[hit.signal])
    if hit.signal == "SIGKILL" and hit.victim in (COMMAND, SERVER, AGENT):
        time.sleep(ENDED_WITHIN_S)  # or a run that nobody has ended might come to its own end in time


def processes() -> dict[str, int]:
    """The processes of this job that are alive: the three of this host, and all ranks of this attempt by number."""
    server = os.getppid()
    found = {COMMAND: int(stat_of(server)[1]), SERVER: server, AGENT: children(server)[0]}
    ranks = {str(one.rank): one.pid for one in read_began(Path()) if one.store == os.environ["MASTER_PORT"]}
    return {name: pid for name, pid in (found | ranks).items() if is_alive(pid)}
