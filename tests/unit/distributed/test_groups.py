"""How ranks meet: those that send frames of one format, in a store that nothing stale is in."""

import pytest
import torch.distributed as dist

from dfl_dist.distributed import groups
from dfl_dist.distributed.world import World
from dfl_dist.errors import ConfigError
from dfl_dist.formats import FORMAT

WORDS = f"format: given {FORMAT + 1} by rank %d, allowed: {FORMAT}: the same version of dfl_dist on all hosts"


def test_rank_0_refuses_a_rank_of_another_format() -> None:
    store = dist.HashStore()  # type: ignore[attr-defined]
    store.set("dfl_dist/format/1", str(FORMAT + 1))
    store.set("dfl_dist/hello/1", "a word")
    with pytest.raises(ConfigError, match=f"^{WORDS % 1}$"):
        groups.meet(World(rank=0, size=2), store, 5.0)
    assert store.check(["dfl_dist/start/a word"]), "which hears of it, to refuse too"


def test_a_rank_refuses_rank_0_of_another_format(monkeypatch: pytest.MonkeyPatch) -> None:
    store = dist.HashStore()  # type: ignore[attr-defined]
    monkeypatch.setattr("secrets.token_hex", lambda size: "a word")
    store.set("dfl_dist/start/a word", "a start")
    store.set("dfl_dist/format/0", str(FORMAT + 1))
    with pytest.raises(ConfigError, match=f"^{WORDS % 0}$"):
        groups.meet(World(rank=1, size=2), store, 5.0)


def test_what_nccl_has_left_of_the_start_before_is_removed_before_any_group_is_made() -> None:
    """torchrun gives each attempt a prefix of its own; NCCL's watchdog writes and looks below all of them."""
    raw = dist.HashStore()  # type: ignore[attr-defined]
    raw.set(groups.NCCL_FAILURE, "rank 2 timed out")
    raw.set("another's", "word")
    attempt = dist.PrefixStore("attempt_1", dist.PrefixStore("worker", raw))  # type: ignore[attr-defined]
    groups.meet(World(), attempt, 5.0)
    assert not raw.check([groups.NCCL_FAILURE])
    assert raw.check(["another's"])
