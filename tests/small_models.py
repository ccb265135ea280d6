"""Models for tests, reached by import path."""

from torch import nn


def softmax() -> nn.Module:
    return nn.Linear(64, 10)


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Linear(16, 10))


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.Dropout(0.5), nn.Linear(32, 10))
