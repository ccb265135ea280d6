"""The trainer, whose ranks write down how many bytes of tensors they keep after their rounds, and take for a while."""

import json
import os
from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import Path

from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from dfl_dist.distributed.gloo import GlooTransport
from dfl_dist.training.evaluate import Evaluation
from dfl_dist.training.exchange import PushSum
from dfl_dist.training.main import main
from dfl_dist.training.rounds import Rounds
from dfl_dist.training.server_average import ServerAverage


def main_and_weigh(arguments: list[str]) -> int:
    original = Rounds.run

    def run(self: Rounds, start: int, *, drained: bool) -> Evaluation:
        found = original(self, start, drained=drained)
        weight = weigh(self)
        weight["evaluation"] = peak(lambda: evaluate_alone(self))
        files = [state.to_bytes() for state in self.exchange.states(1)]
        weight["checkpoint"] = peak(lambda: self.exchange.states(1)) + len(files[0])
        Path(f"weight-{os.environ['RANK']}.json").write_text(json.dumps(weight))
        return found

    Rounds.run = run  # type: ignore[method-assign]
    return main(arguments)


def weigh(rounds: Rounds) -> dict[str, int]:
    clients, exchange = rounds.clients, rounds.exchange
    shards = [tensor for shard in clients.shards for tensor in (shard.inputs, shard.targets)]
    test = rounds.evaluator.test
    assert isinstance(exchange, PushSum | ServerAverage)
    scratch = exchange.scratch if isinstance(exchange, PushSum) else exchange.old
    return {
        "model": count([rounds.model.params, rounds.model.grads, clients.velocity, scratch]),
        "clients": count([clients.x, clients.spare_x]),
        "frames": count(frames(exchange)) if isinstance(exchange, PushSum) else 0,
        "shards": count(shards),
        "test": count([test.inputs, test.targets]),
    }


def frames(exchange: PushSum) -> list[Tensor]:
    """Every buffer that frames were written to or arrived in; those received are all in the pool by now."""
    assert isinstance(exchange.transport, GlooTransport)
    sent = [buffer for sends in exchange.transport.sending for _, _, _, buffer in sends]
    return [*exchange.pushed, *exchange.pool.free, *sent, *exchange.transport.pool.free]


def evaluate_alone(rounds: Rounds) -> None:
    """An evaluation without the other ranks, because gloo's threads let go of what they add up when they please."""

    class Alone:
        rank = rounds.evaluator.control.rank

        def all_reduce(self, tensor: Tensor, what: str) -> Tensor:
            return tensor

    before, rounds.evaluator.control = rounds.evaluator.control, Alone()  # type: ignore[assignment]
    rounds._evaluate(each_client=False)
    rounds.evaluator.control = before


def peak(action: Callable[[], object]) -> int:
    """The most bytes of tensors that there were at a time beside those there had been."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        action()
    events = profiler.profiler.kineto_results.events()  # type: ignore[union-attr]
    return max(accumulate(event.nbytes() for event in events if event.name() == "[memory]"))


def count(tensors: Iterable[Tensor]) -> int:
    """The bytes of these tensors, each once."""
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())
