"""The rounds of a run on the screen: shown when they are done, with values that say which round they are of."""

import logging
import re
import time
from typing import Any

import pytest

from dfl_dist.training import progress
from dfl_dist.training.progress import Field, Progress, draw

FIELDS = [
    Field("loss 0.1951", 2, 11),
    Field("accuracy 91.39%", 0, 10),
    Field("consensus 0.553", 4, 10),
    Field("0.252 s/round", 3),
    Field("ETA 00:00:05", 1),
]


def line(number: int, **scores: float) -> dict[str, Any]:
    return {"round": number, "train_loss": 1.5, "seconds_total": 0.5, **scores}


def test_a_round_is_shown_when_it_is_done_with_what_is_known_then(caplog: pytest.LogCaptureFixture) -> None:
    """Losses are known a round later, and at once where the mean model is evaluated."""
    shown = Progress(done=0, rounds=20)
    shown.start()
    with caplog.at_level(logging.INFO):
        for number in range(20):
            if number == 6:
                shown.note(line(5))
                shown.note(line(6, test_accuracy=0.5, consensus_distance=0.25))
            elif number != 7 and number > 0:
                shown.note(line(number - 1))
            shown.show(number + 1)
    shown.close()
    assert [message.partition("  loss")[0] for message in caplog.messages] == [
        f"round {n:2}/20" for n in range(2, 21, 2)
    ]
    assert caplog.messages[0].startswith("round  2/20  loss 1.5000 (after round 1)  0.500 s/round  ETA 00:00:00")
    eighth = "round  8/20  loss 1.5000  accuracy 50.00%  consensus 0.25 (after round 7)  0.500 s/round  ETA "
    assert caplog.messages[3].startswith(eighth)


def test_pace_and_time_left_are_right_from_the_first_round_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever came before the first round does not count; evaluations count for the time left only."""
    clock = iter([100.0, 110.0, 120.0])
    shown = Progress(done=5, rounds=8)
    monkeypatch.setattr(progress, "time", Clock(clock))
    shown.start()
    with caplog.at_level(logging.INFO):
        shown.show(6)
        shown.note(line(5) | {"seconds_total": 8.0})
        shown.show(7)
    assert caplog.messages == [
        "round 6/8  10.000 s/round  ETA 00:00:20",
        "round 7/8  loss 1.5000 (after round 6)  8.000 s/round  ETA 00:00:10",
    ]


def test_slow_rounds_are_told_though_there_are_many(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Progress(done=0, rounds=1000)
    monkeypatch.setattr(progress, "time", Clock(iter([0.0, 20.0, 40.0, 60.0, 80.0])))
    shown.start()
    with caplog.at_level(logging.INFO):
        for done in range(1, 5):
            shown.show(done)
    assert [message.split()[1] for message in caplog.messages] == ["1/1000", "3/1000"], "the first one at once"


class Clock:
    """A clock that is read so often."""

    strftime, gmtime = time.strftime, time.gmtime

    def __init__(self, moments: Any) -> None:
        self.moments = moments

    def monotonic(self) -> float:
        return float(next(self.moments))


@pytest.mark.parametrize(
    ("columns", "dropped"),
    [
        (160, []),
        (112, []),
        (100, ["consensus 0.553"]),
        (80, ["consensus 0.553", "0.252 s/round"]),
        (60, ["consensus 0.553", "0.252 s/round", "loss 0.1951"]),
        (45, ["consensus 0.553", "0.252 s/round", "loss 0.1951", "ETA 00:00:05"]),
    ],
)
def test_where_there_is_no_room_whole_fields_go_the_least_important_first(columns: int, dropped: list[str]) -> None:
    text = draw("round 12/30", FIELDS, 12, 30, columns)
    assert len(text) == columns - 1
    assert {field.text for field in FIELDS if field.text not in text} == set(dropped)
    assert ("consensus 0.553 (10)" if "consensus 0.553" in text else "accuracy 91.39% (10)") in text
    assert "loss 0.1951 (11)" in text or "loss 0.1951" in dropped
    bar = re.search(r"\|(█*)( *)\|", text)
    assert bar
    assert len(bar[1]) == len(bar[1] + bar[2]) * 12 // 30


def test_in_a_very_narrow_terminal_the_count_is_left() -> None:
    assert draw("round 12/30", FIELDS, 12, 30, 15) == "round 12/30"
