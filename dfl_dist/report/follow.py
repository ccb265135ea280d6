"""Runs that may be at work: what has changed in their folders, how they stand together, when no more will come."""

import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dfl_dist.errors import ConfigError
from dfl_dist.report.page_summary import count, describe_state
from dfl_dist.report.read import Run, read_run
from dfl_dist.report.states import DIVERGED, FINISHED, RUNNING, UNFINISHED, changed_s, format_age, state_of

FILES = ("resolved.yaml", "config.yaml", "environment.json", "classes.json", "topology.jsonl", "metrics.jsonl")
BEGIN_S = 300.0  # for a first run to begin
RESTART_S = 20.0  # for a run whose rank 0 is gone to be started again, and for a sweep to begin its next run
ELSEWHERE_S = 600.0  # for a run of another host, of which only its files are known, to record something
Mark = tuple[tuple[int, int] | None, ...]  # time and size of each file


@dataclass(frozen=True)
class Standing:
    """How runs stand together: those at work, in words for now and for the end, and how long to wait for more."""

    running: tuple[str, ...]
    text: str
    ending: str
    patience_s: float  # while nothing changes and no run is at work; 0 where nothing more can come


@dataclass(frozen=True)
class Seen:
    """A run as its files were with this mark."""

    mark: Mark
    run: Run
    has_ended: bool  # finished, stopped or diverged: nothing more comes of it unless somebody resumes it
    host: str | None  # of rank 0, where the run names it

    @property
    def is_elsewhere(self) -> bool:
        """Whether nothing is known here of the run's processes."""
        return self.host != socket.gethostname()

    def is_at_work(self) -> bool:
        return not self.has_ended and state_of(self.run) == RUNNING


class Followed:
    """The run in a folder, or the runs directly in it; a run is read again only when one of its files has changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: dict[Path, Seen] = {}  # in the order in which they were first seen: groups keep their colours

    @property
    def runs(self) -> list[Run]:
        return [one.run for one in self.seen.values()]

    def look(self) -> bool:
        """Read what is new; whether anything was. A run that cannot be read just now stays as it was."""
        marks = {folder: mark_of(folder) for folder in folders_in(self.folder)}  # before reading: later changes are new
        seen = {folder: one for folder, one in self.seen.items() if folder in marks}
        for folder, mark in marks.items():
            if folder in seen and seen[folder].mark == mark:
                continue
            try:
                seen[folder] = see(folder, mark)
            except OSError:  # a sweep that begins a run again removes its files first
                continue
            except ConfigError:
                if folder == self.folder:
                    raise
        changed = seen != self.seen
        self.seen = seen
        return changed

    def stand(self) -> Standing:
        all_seen = list(self.seen.values())
        if not all_seen:
            return Standing((), "no run has begun yet", "no run has begun", BEGIN_S)
        at_work = [one for one in all_seen if one.is_at_work()]
        broken_off = [one for one in all_seen if not one.has_ended and one not in at_work]
        running = tuple(str(one.run.folder) for one in at_work)
        patience_s = ELSEWHERE_S if any(one.is_elsewhere for one in broken_off) else RESTART_S
        if all_seen[0].run.folder != self.folder:
            text = tell_runs(len(at_work), len(broken_off), len(all_seen))
            return Standing(running, text, tell_end(all_seen), patience_s)
        [one] = all_seen
        text = tell_run(one, at_work=bool(at_work))
        return Standing(running, text, describe_state(one.run)["text"], 0.0 if one.has_ended else patience_s)

    def note(self) -> str | None:
        """What a person should know who expects to see something grow."""
        if not self.seen:
            return f"no run has begun there yet: waits {BEGIN_S:.0f} s for one"
        first, standing = next(iter(self.seen.values())), self.stand()
        if first.run.folder == self.folder and first.is_elsewhere:
            place = f"on host {first.host}" if first.host else "on an unknown host"
            return f"its rank 0 is {place}: it counts as ended after {ELSEWHERE_S:.0f} s without anything new"
        if not standing.running:
            what = "its rank 0 is not alive" if first.run.folder == self.folder else "no run is at work there just now"
            return f"{what}: waits {standing.patience_s:.0f} s for one"
        return None


def see(folder: Path, mark: Mark) -> Seen:
    run = read_run(folder)
    facts = run.environment()
    leader = facts.get("leader")
    host = str(leader["host"]) if isinstance(leader, dict) and "host" in leader else None
    return Seen(mark, run, "finished_after" in facts or run.diverged is not None, host)


def folders_in(folder: Path) -> list[Path]:
    """The folder itself if it is a run's, else the runs directly in it; a link such as runs/latest is none of them."""
    if (folder / FILES[0]).is_file():
        return [folder]
    return [path.parent for path in sorted(folder.glob(f"*/{FILES[0]}")) if not path.parent.is_symlink()]


def mark_of(folder: Path) -> Mark:
    """What is another after every change of the files that a page is made from."""
    return tuple(mark_file(folder / name) for name in FILES)


def mark_file(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


# In words.


def tell_run(one: Seen, *, at_work: bool) -> str:
    """A run that is followed by itself."""
    run = one.run
    if one.has_ended:
        return describe_state(run)["text"]
    done = f"round {len(run.lines)} of {run.config.rounds}" if run.lines else "no round recorded yet"
    if at_work:
        return f"live, {done}" + (f", on host {one.host}" if one.is_elsewhere else "")
    silence = f"nothing new for {format_age(changed_s(run.folder))}"
    return f"{done}, {silence if one.is_elsewhere else 'but rank 0 is gone'}"


def tell_runs(at_work: int, broken_off: int, runs: int) -> str:
    """Runs that are followed together."""
    parts = {"at work": at_work, "broken off": broken_off, "ended": runs - at_work - broken_off}
    return ("live, " if at_work else "waiting, ") + ", ".join(
        f"{number} {what}" for what, number in parts.items() if number
    )


def end_of(one: Seen) -> str:
    """One word or two, of a run that is not at work."""
    state = state_of(one.run)
    if state in (FINISHED, DIVERGED):
        return state
    return "stopped early" if one.has_ended else UNFINISHED


def tell_end(seen: Sequence[Seen]) -> str:
    """What has become of runs that were followed together."""
    states = Counter(end_of(one) for one in seen)
    parts = ", ".join(f"{number} {state}" for state, number in states.items())
    return f"{count(len(seen), 'run')}, {parts}"
