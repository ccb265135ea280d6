"""The gloo transport: what it does with buffers."""

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from dfl_dist.distributed.gloo import GlooTransport
from dfl_dist.distributed.transport import Outgoing


class Done:
    def wait(self, timeout: timedelta = timedelta()) -> bool:
        return True


def test_a_frame_for_several_ranks_is_copied_to_the_host_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Tensor] = []
    monkeypatch.setattr(dist, "isend", lambda tensor, **_: sent.append(tensor) or Done())
    transport = GlooTransport(None, timeout_s=1.0, window=1, device=torch.device("cpu"))  # type: ignore[arg-type]
    monkeypatch.setattr(transport, "_to_host", lambda buffer: buffer.clone())  # as from a GPU: another tensor
    transport.expect(0, [])
    first, second = torch.zeros(8, dtype=torch.uint8), torch.ones(8, dtype=torch.uint8)
    transport.push([Outgoing(1, first), Outgoing(2, first), Outgoing(3, second), Outgoing(4, first)])
    assert len({tensor.data_ptr() for tensor in sent}) == 2
    assert [int(tensor[0]) for tensor in sent] == [0, 0, 1, 0]


@pytest.mark.parametrize(("device", "pinned"), [("cpu", False), ("cuda", True)])
def test_frames_of_a_gpu_go_through_pinned_memory(monkeypatch: pytest.MonkeyPatch, device: str, pinned: bool) -> None:
    asked: list[bool] = []
    empty = torch.empty

    def remember(*words: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        asked.append(pin_memory)
        return empty(*words, **options)

    monkeypatch.setattr(torch, "empty", remember)
    over_gloo = GlooTransport(None, timeout_s=1.0, window=2, device=torch.device(device))  # type: ignore[arg-type]
    buffer = over_gloo.pool.take(100)
    assert asked == [pinned]
    assert over_gloo._to_host(buffer) is buffer, "not copied where it is on the host already"
