"""Models for tests, reached by import path."""

import os
import time

from torch import Tensor, nn


def softmax() -> nn.Module:
    return nn.Linear(64, 10)


def misfit() -> nn.Module:
    return nn.Linear(65, 10)


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Linear(16, 10))


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.Dropout(0.5), nn.Linear(32, 10))


class Fragile(nn.Linear):
    """Gives NaN from its eighth training pass on."""

    passes = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.passes += self.training
        outputs: Tensor = super().forward(inputs)
        return outputs * float("nan") if self.training and self.passes > 7 else outputs


def fragile() -> nn.Module:
    return Fragile(64, 10)


class Cubic(nn.Linear):
    """Explodes within a few steps that are too large, over losses that are still numbers."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = super().forward(inputs)
        return outputs**3


def cubic() -> nn.Module:
    return Cubic(64, 10)


class Slow(nn.Linear):
    """Takes as long for a training pass as the environment says; its numbers are the same however long that is."""

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            time.sleep(float(os.environ.get("DFL_TEST_PASS_S", "0")))
        return super().forward(inputs)


def slow() -> nn.Module:
    return Slow(64, 10)


class Failing(nn.Linear):
    """Raises in its second training pass."""

    passes = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.passes += self.training
        if self.passes == 2:
            raise KeyError("a layer that is not there")
        return super().forward(inputs)


def failing() -> nn.Module:
    return Failing(64, 10)


class Endless(nn.Linear):
    """On rank 1, does not come back from its fourth training pass."""

    passes = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.passes += self.training
        while self.passes == 4 and os.environ.get("RANK") == "1":
            pass
        return super().forward(inputs)


def endless_on_rank_1() -> nn.Module:
    return Endless(64, 10)


class FailingOnRank1(nn.Linear):
    """Raises in its second training pass, on one rank only."""

    passes = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.passes += self.training
        if self.passes == 2 and os.environ["RANK"] == "1":
            raise KeyError("a layer that is not there")
        return super().forward(inputs)


def failing_on_rank_1() -> nn.Module:
    return FailingOnRank1(64, 10)
