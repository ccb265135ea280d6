"""How fast push-sum averages on a schedule of graphs, without training."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dfl_dist.topology.connectivity import Mixing

FLOOR = 1e-12  # a relative error below this is mostly rounding
WEIGHTLESS = 1e-290  # a client to whom nobody ever pushes gives all its weight away; what it last knew counts


@dataclass(frozen=True)
class Averaging:
    """Push-sum on its own, without training: the consensus error after each round, the smallest weight of any client.

    errors[t] is the largest |x_i/w_i − mean| after t rounds, divided by the largest at the start.
    """

    errors: np.ndarray
    smallest_weight: float

    def rounds_until(self, error: float) -> int | None:
        """The first round after which the error is this or less; None if it never is."""
        below = np.flatnonzero(self.errors <= error)
        return int(below[0]) if len(below) else None

    @property
    def contraction(self) -> float:
        """The measured factor q per round over the second half of the rounds, as far as rounding has not taken over.

        0 where the error drops to rounding at once, from above its square root: the graphs average exactly, or so
        fast that floating point cannot tell. Near 1 where nothing comes together, as in a graph that is not connected.
        """
        last = len(self.errors) - 1
        floored = self.rounds_until(FLOOR)
        if floored is not None:
            last = floored - 1
            if last < 0 or self.errors[last] > FLOOR**0.5:
                return 0.0
        half = last // 2  # the first rounds are faster: what lives in small neighbourhoods goes first
        return float((self.errors[last] / self.errors[half]) ** (1 / (last - half))) if last else 1.0


def average(rounds: Iterable[Mixing], start: np.ndarray, *, gossip_steps: int = 1, overlap: int = 0) -> Averaging:
    """Push-sum from these values, [clients, columns], and weights of 1, over the graphs of the rounds.

    With overlap τ, what is pushed to others in a gossip step of a round is mixed in in the same step τ rounds later.
    """
    columns, mean = start.shape[1], start.mean(axis=0)
    spread = np.abs(start - mean).max()
    state = np.column_stack([start, np.ones(len(start))])  # the columns of x, then w
    z = start.copy()
    errors, smallest = [1.0 if spread else 0.0], 1.0
    in_flight: deque[list[np.ndarray]] = deque()  # one list per round, one entry per gossip step
    for mixing in rounds:
        in_flight.append([])
        due = in_flight[0] if len(in_flight) > overlap else None
        for step in range(gossip_steps):
            in_flight[-1].append(mixing.push(state))
            state = mixing.own[:, None] * state
            if due is not None:
                state += due[step]
        if due is not None:
            in_flight.popleft()
        x, w = state[:, :columns], state[:, columns:]
        np.divide(x, w, out=z, where=w > WEIGHTLESS)
        errors.append(float(np.abs(z - mean).max() / spread) if spread else 0.0)
        smallest = min(smallest, float(w.min()))
    return Averaging(np.array(errors), smallest)
