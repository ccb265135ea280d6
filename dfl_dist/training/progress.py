"""What a person sees of a run as it goes on: a bar where somebody watches, a line every few rounds where not."""

import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tqdm import tqdm

log = logging.getLogger(__name__)
LINES = 10  # about so many lines for a whole run that nobody watches, and more where it is slow
SILENT_S = 30.0
FIRST_SILENT_S = 2.0  # before the first line
SHORTEST_BAR = 6


class Field(NamedTuple):
    """A value for a person; one that can be missed goes first where there is no room."""

    text: str
    can_be_missed: int
    round: int | None = None  # the round that it is of, counted from 1; None: it is of now


def mark(fields: Sequence[Field], done: int, form: str) -> str:
    """Fields in one text; the last of those that are of an earlier round than `done` says which."""
    texts = []
    for field, following in zip(fields, [*fields[1:], None], strict=True):
        is_last = following is None or following.round != field.round
        texts.append(field.text + (form.format(field.round) if is_last and field.round not in (None, done) else ""))
    return "  ".join(texts)


class Progress:
    """Follows the rounds of a run on stderr.

    A round is shown when it is done. What all clients together say of it is known a little later: until then the newest
    values stand there, with the round that they are of.
    """

    def __init__(self, *, done: int, rounds: int) -> None:
        self.first, self.done, self.rounds = done, done, rounds
        self.started: float | None = None
        self.told = 0.0
        self.training_s, self.recorded = 0.0, 0
        self.loss: Field | None = None
        self.scores: list[Field] = []
        self.every = -(-rounds // LINES)
        watched = sys.stderr.isatty() and os.get_terminal_size(sys.stderr.fileno()).columns > 0
        self.bar = tqdm(total=rounds, initial=done, bar_format="{desc}", dynamic_ncols=True) if watched else None

    def start(self) -> None:
        """The first round begins."""
        self.started = self.told = time.monotonic()
        self._draw(self.started)

    def note(self, line: Mapping[str, Any]) -> None:
        """Take in what is known of a round; a score of the mean model stays on the screen."""
        number = line["round"] + 1
        if "train_loss" in line:
            self.training_s, self.recorded = self.training_s + line["seconds_total"], self.recorded + 1
            self.loss = Field(f"loss {line['train_loss']:.4f}", 2, number)
        if "test_accuracy" in line:
            accuracy, distance = f"accuracy {line['test_accuracy']:.2%}", f"consensus {line['consensus_distance']:.3g}"
            self.scores = [Field(accuracy, 0, number), Field(distance, 4, number)]
            if self.bar is not None:
                told = [*([self.loss.text] if self.loss else []), *(score.text for score in self.scores)]
                self.bar.write("  ".join([self._count(number), *told]), file=sys.stderr)

    def show(self, done: int) -> None:
        """Show that so many rounds are done."""
        if done <= self.done:
            return
        self.done, now = done, time.monotonic()
        if self.bar is not None:
            self.bar.update(done - self.bar.n)
            self._draw(now)
        elif done % self.every == 0 or done == self.rounds or now - self.told >= self._silent_s:
            self.told = now
            log.info("%s  %s", self._count(done), mark(self._fields(now), done, " (after round {})"))

    @property
    def _silent_s(self) -> float:
        """How long nothing may be said; a first round that took long is a first sign of life."""
        return FIRST_SILENT_S if self.done == self.first + 1 else SILENT_S

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()

    def _count(self, done: int) -> str:
        return f"round {done:{len(str(self.rounds))}}/{self.rounds}"

    def _fields(self, now: float) -> list[Field]:
        fields = [*([self.loss] if self.loss else []), *self.scores]
        if self.started is not None and self.done > self.first:
            took_s = (now - self.started) / (self.done - self.first)
            left = time.strftime("%H:%M:%S", time.gmtime(took_s * (self.rounds - self.done)))
            training_s = self.training_s / self.recorded if self.recorded else took_s
            fields += [Field(f"{training_s:.3f} s/round", 3), Field(f"ETA {left}", 1)]
        return fields

    def _draw(self, now: float) -> None:
        if self.bar is not None:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
            self.bar.set_description_str(
                draw(self._count(self.done), self._fields(now), self.done, self.rounds, columns)
            )


def draw(count: str, fields: Sequence[Field], done: int, rounds: int, columns: int) -> str:
    """The bar in a line that fits, with as many fields as there is room for."""
    kept = list(fields)
    while True:
        text = f"  {mark(kept, done, ' ({})')}" if kept else ""
        room = columns - 1 - len(count) - len(" ||") - len(text)
        if room >= SHORTEST_BAR or not kept:
            break
        kept.remove(max(kept, key=lambda field: field.can_be_missed))
    if room < SHORTEST_BAR:
        return count[: columns - 1]
    full = room * done // rounds
    return f"{count} |{'█' * full}{' ' * (room - full)}|{text}"
