"""Early stopping: when the accuracies of the mean model say that a run has done enough."""

import math
from collections.abc import Mapping
from typing import Any


class Stopping:
    """What has been reached so far, and whether that is enough; rank 0's alone to judge."""

    def __init__(self, target: float | None, patience: int | None) -> None:
        self.target, self.patience = target, patience
        self.accuracy = self.best = -math.inf
        self.best_round = self.since = 0  # rounds count from 1; evaluations since the best one

    def note(self, line: Mapping[str, Any]) -> None:
        """Take a recorded round into account; only those that were evaluated tell something."""
        accuracy = line.get("test_accuracy")
        if accuracy is None:
            return
        self.accuracy = accuracy
        if accuracy > self.best:
            self.best, self.best_round, self.since = accuracy, line["round"] + 1, 0
        else:
            self.since += 1

    @property
    def reason(self) -> str | None:
        """Why there is to be no further round; None where there is."""
        if self.target is not None and self.accuracy >= self.target:
            return f"stop.target {self.target:g}"
        if self.patience is not None and self.since >= self.patience:
            return f"stop.patience {self.patience} (best: {self.best:.2%} after round {self.best_round})"
        return None
