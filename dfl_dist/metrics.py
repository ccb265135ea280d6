"""What each rank reports of a round, what is recorded of it, and what must hold for a run to go on."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

CURES = "likely cures, in a new run: a smaller --local.lr, --local.clip_norm 10, or --local.step z"
MASS_TOLERANCE = 1e-9  # relative; the w's are float64 and shares are exact to 1e-16


@dataclass(frozen=True)
class RankReport:
    """The scalars of one rank in one round."""

    wants_stop: bool
    seconds_local: float
    seconds_exchange: float
    seconds_total: float
    bytes_sent: int
    weight_in_flight: float
    losses: list[float]  # of clients that did not train in the round: anything
    push_weights: list[float]
    finite: list[bool]

    @staticmethod
    def size(clients: int) -> int:
        return 6 + 3 * clients

    def pack(self) -> Tensor:
        seconds = [self.seconds_local, self.seconds_exchange, self.seconds_total]
        head = [self.wants_stop, *seconds, self.bytes_sent, self.weight_in_flight]
        return torch.tensor([*head, *self.losses, *self.push_weights, *self.finite], dtype=torch.float64)

    @classmethod
    def unpack(cls, packed: Tensor) -> "RankReport":
        wants_stop, local, exchange, total, num_bytes, in_flight, *rest = packed.tolist()
        clients = len(rest) // 3
        losses, weights, finite = rest[:clients], rest[clients : 2 * clients], map(bool, rest[2 * clients :])
        return cls(bool(wants_stop), local, exchange, total, int(num_bytes), in_flight, losses, weights, list(finite))


def record(
    round_idx: int, lr: float, reports: Sequence[RankReport], trained: Sequence[int], scores: Mapping[str, float]
) -> dict[str, Any]:
    """The line of a round in metrics.jsonl: means and sums over clients, the slowest rank's seconds."""
    every_loss = [loss for report in reports for loss in report.losses]
    losses = [every_loss[client] for client in trained]
    weights = [weight for report in reports for weight in report.push_weights]
    return {
        "round": round_idx,
        "lr": lr,
        "train_loss": math.fsum(losses) / len(losses),
        "push_weight_min": min(weights),
        "push_weight_max": max(weights),
        "push_weight_sum": math.fsum([*weights, *(report.weight_in_flight for report in reports)]),
        "bytes_sent": sum(report.bytes_sent for report in reports),
        "seconds_local": max(report.seconds_local for report in reports),
        "seconds_exchange": max(report.seconds_exchange for report in reports),
        "seconds_total": max(report.seconds_total for report in reports),
        **scores,
    }


def find_fault(
    round_idx: int,
    reports: Sequence[RankReport],
    trained: Sequence[int],
    expected_weights: Sequence[float],
    owners: Sequence[int],
) -> str | None:
    """Why the run must not go on: it diverged, or push-sum lost mass; None when all is well."""
    losses = [loss for report in reports for loss in report.losses]
    weights = [weight for report in reports for weight in report.push_weights]
    finite = [flag for report in reports for flag in report.finite]
    diverged = [client for client, sound in enumerate(finite) if not sound]
    diverged = sorted({*diverged, *(client for client in trained if not math.isfinite(losses[client]))})
    if diverged:
        return (
            f"round {round_idx}: the training diverged (loss or model not finite at {name(diverged, owners)}); {CURES}"
        )
    wrong = [
        client
        for client, weight in enumerate(weights)
        if not math.isclose(weight, expected_weights[client], rel_tol=MASS_TOLERANCE)
    ]
    total = math.fsum([*weights, *(report.weight_in_flight for report in reports)])
    if wrong or not math.isclose(total, len(weights), rel_tol=MASS_TOLERANCE):
        found = ", ".join(
            f"client {client} has w {weights[client]!r} instead of {expected_weights[client]!r}" for client in wrong[:4]
        )
        return (
            f"round {round_idx}: push-sum lost mass: the w's sum to {total!r}, expected {len(weights)}; "
            f"wrong at {name(wrong, owners)} ({found})"
        )
    return None


def name(clients: Sequence[int], owners: Sequence[int]) -> str:
    """Clients and their ranks in words, shortened when there are many."""
    shown = ", ".join(f"client {client} on rank {owners[client]}" for client in clients[:4])
    return shown + (f" and {len(clients) - 4} more" if len(clients) > 4 else "") or "no single client"


def plain(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line as JSON can say it: null for what is not finite."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in line.items()
    }


class LineFile:
    """A file with a JSON object a line, appended and flushed line by line."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("a")

    def write(self, line: Mapping[str, Any]) -> None:
        self.file.write(json.dumps(plain(line)) + "\n")
        self.file.flush()

    def sync(self) -> None:
        os.fsync(self.file.fileno())

    def close(self) -> None:
        self.file.close()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of such a file; a torn last one, from a process that was killed, is dropped."""
    lines = []
    if path.exists():
        for text in path.read_text(errors="replace").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                break
            if not (isinstance(line, dict) and "round" in line):
                break
            lines.append(line)
    return lines
