"""Invented positions of ranks that stand still: the table, and who or what is at the root."""

import pytest

from dfl_dist.distributed.standstill import MOST_ROWS, Link, Position, Standstill

NOW = 100.0


def busy(rank: int, phase: str = "local steps", *, since: float = 70.0, at: float = NOW, host: int = 0) -> Position:
    return Position(rank, host, "ab"[host], f"10.0.0.{host + 1}", round=7, phase=phase, since=since, at=at)


def frame(rank: int, sender: int, *, since: float = 90.0, at: float = NOW, sent: int = 6, host: int = 0) -> Position:
    """It waits for the frame of another rank in round 7."""
    return Position(
        rank,
        host,
        "ab"[host],
        f"10.0.0.{host + 1}",
        round=7,
        phase="exchange",
        since=since,
        waits_for=(sender,),
        what=f"the frame of rank {sender} in round 7",
        waits_since=since,
        needs=("frame", 7),
        sent={"frame": sent},
        at=at,
    )


def together(rank: int, size: int, *, sums: int = 3, since: float = 90.0) -> Position:
    """It waits for all ranks to sum something, the third time."""
    what = "all ranks to sum their models"
    wait = {"waits_for": tuple(range(size)), "what": what, "waits_since": since, "needs": ("sum", 3)}
    return Position(rank, round=7, phase="evaluation", sent={"sum": sums}, at=NOW, **wait)  # type: ignore[arg-type]


def root_of(*positions: Position) -> str:
    root = Standstill(positions, NOW).root()
    assert root is not None
    return root.words


def test_a_stopped_rank_is_at_the_root() -> None:
    words = root_of(frame(0, 2), busy(2, at=88.0, since=87.0), frame(1, 0))
    assert words == (
        "rank 2 is at the root: nothing was heard of it for 12 s (stopped, or its host is); "
        "it was in the local steps of round 7 then"
    )


def test_a_rank_that_was_stopped_while_it_waited_is_at_the_root_all_the_same() -> None:
    """Also one that had sent all that others wait for: a message may have left only in part."""
    assert root_of(frame(0, 1, sent=7), frame(1, 0, at=88.0, sent=7)).startswith("rank 1 is at the root: nothing was")


def test_a_rank_that_never_told_anything_is_at_the_root() -> None:
    assert "rank 1 is at the root: nothing was heard of it for 100 s" in root_of(frame(0, 1), Position(1))


def test_a_dead_loop_is_at_the_root() -> None:
    words = root_of(frame(0, 2), busy(2, since=69.0), frame(1, 0))
    assert words == "rank 2 is at the root: it has been in the local steps of round 7 for 31 s"


def test_the_root_is_at_the_end_of_the_chain() -> None:
    """0 waits for 1 for 2 for 3, which is late; rank 4 works, but nobody waits for it."""
    positions = [frame(0, 1), frame(1, 2), frame(2, 3), busy(3, "checkpoint"), busy(4)]
    words = root_of(*positions)
    assert words == "rank 3 is at the root: it has been in the checkpoint of round 7 for 30 s"
    standstill = Standstill(positions, NOW)
    assert [row.split()[0] for row in standstill.describe("rank 0 says so").splitlines()[2:7]] == list("32104")


def test_the_rank_that_has_waited_longest_leads_to_the_root() -> None:
    """Rank 0 waits too, but only for one that is not much later than itself."""
    positions = [frame(0, 1, since=99.0), busy(1, since=98.0), frame(2, 3, since=90.0), busy(3)]
    assert root_of(*positions).startswith("rank 3 is at the root")


def test_everybody_waits_for_rank_0() -> None:
    assert root_of(busy(0, "evaluation"), *(frame(rank, 0) for rank in range(1, 8))).startswith("rank 0 is at the root")


def test_of_a_sum_those_are_missing_who_have_not_come() -> None:
    assert root_of(together(0, 3), together(1, 3), busy(2)).startswith("rank 2 is at the root: it has been in")
    chain = [together(0, 3), together(1, 3), frame(2, 3), busy(3)]
    assert root_of(*chain).startswith("rank 3 is at the root")


def test_a_sum_to_which_all_have_come_is_a_matter_of_the_links() -> None:
    assert root_of(*(together(rank, 3) for rank in range(3))).startswith("a link between the ranks does not carry")


def test_what_was_sent_and_does_not_come_is_a_matter_of_the_link() -> None:
    """Rank 3 is a round further, and waits for rank 5's next frame."""
    words = root_of(frame(3, 5, since=95.0, sent=8), frame(5, 3, host=1, since=90.0))
    assert words.startswith("what rank 3 (host 0, a) sends does not reach rank 5 (host 1, b): ")
    assert "one direction only" in words


def test_two_that_wait_for_one_another_have_a_link_that_does_not_carry() -> None:
    assert root_of(frame(3, 5), frame(5, 3)).startswith("rank 3, rank 5 wait for one another: a link")


@pytest.mark.parametrize("other_is_heard", [True, False])
def test_a_link_that_carries_in_one_direction_is_seen_by_the_kernel(other_is_heard: bool) -> None:
    """Host 0 gets no answer, and hears host 1 all the same."""
    one = Position(**vars(frame(3, 5, sent=7)) | {"links": {"10.0.0.2": Link(unanswered=True, heard=True)}})
    other = frame(5, 3, host=1, sent=7, at=NOW if other_is_heard else 80.0)
    other = Position(**vars(other) | {"links": {"10.0.0.1": Link(unanswered=True, heard=False)}})
    for order in ([one, other], [other, one]):
        assert root_of(*order) == (
            "what host 0 (a, 10.0.0.1) sends does not reach host 1 (b, 10.0.0.2), the other direction works"
        )


def test_a_link_that_carries_nothing_is_told_as_such() -> None:
    deaf = {"unanswered": True, "heard": False}
    one = Position(**vars(frame(3, 5)) | {"links": {"10.0.0.2": Link(**deaf)}})
    other = Position(**vars(frame(5, 3, host=1)) | {"links": {"10.0.0.1": Link(**deaf)}})
    assert root_of(one, other).startswith("nothing gets through between host 0 (a, 10.0.0.1) and host 1")
    gone = frame(5, 3, host=1, at=80.0)
    assert root_of(one, gone).startswith("host 1 (b, 10.0.0.2) does not answer host 0 (a, 10.0.0.1): it is down, or")


def test_the_table_of_a_hundred_ranks_shows_those_that_matter() -> None:
    waiting = [frame(rank, rank + 1, since=90.0 + rank / 100) for rank in range(97)]
    positions = [*waiting, busy(97), busy(98, since=99.0), busy(99, at=95.0)]
    head, *rows, more, root = Standstill(positions, NOW).describe("it is over").splitlines()[1:]
    assert head.split() == ["rank", "host", "round", "phase", "waits", "for", "since", "last", "heard"]
    assert len(rows) == MOST_ROWS
    assert rows[0].split()[0] == "97", "the root"
    assert rows[1].split()[0] == "96", "who waits for it"
    assert more == "… and 80 more ranks"
    assert root.startswith("rank 97 is at the root")


def test_a_row_says_who_waits_for_what_since_when() -> None:
    shown = Standstill([frame(0, 1), busy(1, at=88.0, host=1)], NOW).describe("rank 0 gave up").splitlines()
    assert shown[0] == "rank 0 gave up; all ranks:"
    assert shown[2].split("  ")[0] == "1"
    assert "12 s ago" in shown[2]
    assert [cell.strip() for cell in shown[3].split("  ") if cell.strip()] == [
        *("0", "0 (a)", "7", "exchange", "the frame of rank 1 in round 7", "10 s", "now"),
    ]
