"""What a model is trained for: the loss of a batch, and what an evaluation adds up."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from dfl_dist.models.task import Classification, Score


def test_classification_is_cross_entropy_and_counts_what_is_right() -> None:
    outputs = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.5]])
    targets = torch.tensor([0, 1, 2, 2])
    model, task = nn.Identity(), Classification()
    mean = float(functional.cross_entropy(outputs, targets))
    assert float(task.loss(model, outputs, targets)) == mean
    score = task.score(model, outputs, targets)
    assert score == Score(correct=3, loss=pytest.approx(4 * mean))
    assert isinstance(score.correct, int)


def test_a_summed_loss_is_exact_to_double_precision() -> None:
    outputs, targets = torch.zeros(10_000, 3), torch.zeros(10_000, dtype=torch.int64)
    expected = 10_000 * float(torch.log(torch.tensor(3.0, dtype=torch.float64)))
    assert Classification().score(nn.Identity(), outputs, targets).loss == pytest.approx(expected, rel=1e-13)
