"""When calls are sent: recorded times, assumed ones, and the order over sessions."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from duramen.experiments.layouts.model import ASSUMED_START_S as START
from duramen.experiments.study.schedule import Pace, in_time_order, with_times
from duramen.experiments.trajectory import Call, Origin, Session
from duramen.layout.errors import TrajectoryError


def session(name: str, times: list[float | None]) -> Session:
    origins = {"time_s": Origin.RECORDED} if None not in times else {}
    return Session(name, tuple(Call((), None, time_s) for time_s in times), origins=origins)


def sent(sessions: list[Session]) -> list[list[float]]:
    return [[s.start_time_s + call.time_s - START for call in s.calls] for s in sessions]


def test_one_session_after_another():
    placed = with_times([session("a", [None, None]), session("b", [5.0, 65.0])], Pace(gap_s=10))
    assert sent(placed) == [[0, 10], [20, 80]]
    assert [s.origins["time_s"] for s in placed] == [Origin.ASSUMED, Origin.RECORDED]
    assert {s.origins["start_time_s"] for s in placed} == {Origin.ASSUMED}


def test_the_next_session_takes_the_first_free_place():
    sessions = [session("a", [0, 100]), session("b", [0, 30]), session("c", [0, 1])]
    assert sent(with_times(sessions, Pace(concurrency=2, gap_s=10))) == [
        [0, 100],
        [0, 30],
        [40, 41],
    ]


def test_times_that_are_missing_or_go_back():
    [placed] = sent(with_times([session("a", [None, 7.0, 3.0, None])], Pace(gap_s=10)))
    assert placed == [0, 0, 0, 10]
    assert sent(with_times([session("a", [])], Pace())) == [[]]


@pytest.mark.parametrize("pace", [{"concurrency": 0}, {"gap_s": 0.0}, {"gap_s": float("nan")}])
def test_a_pace_that_makes_no_sense(pace):
    with pytest.raises(TrajectoryError, match="above 0"):
        Pace(**pace)


@dataclass(frozen=True)
class Sent:
    time_s: float
    name: str


def test_steps_come_by_time_and_sessions_begin_when_they_are_due():
    begun: list[str] = []

    def walk(each: Session) -> Iterator[Sent]:
        begun.append(each.session_id)
        for call in each.calls:
            yield Sent(each.start_time_s + call.time_s, each.session_id)

    sessions = [session("a", [0, 100]), session("b", [0, 30]), session("c", [0, 1])]
    placed = with_times(sessions, Pace(concurrency=2, gap_s=10))
    order = []
    for step in in_time_order(placed, walk):
        order.append(step.name)
        if len(order) == 2:
            assert begun == ["a", "b"]
    assert order == ["a", "b", "b", "c", "c", "a"]
    times = [step.time_s for step in in_time_order(placed, walk)]
    assert times == sorted(times)
