"""What a model is trained for: the loss of a batch, and what an evaluation adds up over batches."""

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional


class Score(NamedTuple):
    """Sums over the samples of one or several batches."""

    correct: int
    loss: float


class Classification:
    """One class per sample: cross-entropy, and how many predictions are right."""

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of a batch, to be differentiated."""
        return functional.cross_entropy(model(inputs), targets)

    def score(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Score:
        """Correct predictions and summed loss of a batch, the loss in double precision."""
        outputs = model(inputs)
        correct = int((outputs.argmax(dim=1) == targets).sum())
        return Score(correct, float(functional.cross_entropy(outputs.double(), targets, reduction="sum")))
