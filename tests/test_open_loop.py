"""Open loop under a clock that jumps: who is sent when, what is late, what waits for nobody."""

import asyncio
import math
import selectors
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.accounts import Accounts
from duramen.experiments.arrival import OpenLoop, due_times_s, send_on_time
from duramen.experiments.layout_run import Overflow
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.replay import Replay
from duramen.experiments.target import LiveTarget, ModelTarget
from duramen.experiments.trajectory import Call, Message, Session
from duramen.layout.errors import DuramenError, EngineError, LayoutError, TrajectoryError
from duramen.serving.vllm.fake import FakeEngine
from duramen.serving.vllm.protocol import Completion, Sampling

CLOCK, RECORDED, STABLE = ALL = [Layout.parse(n) for n in ("clock", "recorded", "stable")]


class JumpingSelector(selectors.DefaultSelector):
    """Never waits for a timer: it moves the time there."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            self.now_s += timeout
            timeout = 0
        return super().select(timeout)


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its time passes only while everything waits, or where `work` says so."""

    def __init__(self) -> None:
        self.jumping = JumpingSelector()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now_s


def jump(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(main)


def work(seconds: float) -> None:
    """Nothing else runs meanwhile, as when Python computes."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)
    loop.jumping.now_s += seconds


def now_s() -> float:
    return round(asyncio.get_running_loop().time(), 6)  # timers add up with the last bit wrong


# --- when calls are due -----------------------------------------------------------------------


def at(*times_s: float | None, start_s: float | None = None, name: str = "s") -> Session:
    """A growing session with these times."""
    messages: list[Message] = [{"role": "user", "content": f"Count with {name}."}]
    calls = []
    for number, time_s in enumerate(times_s):
        reply: Message = {"role": "assistant", "content": f"That makes {number}."}
        calls.append(Call(tuple(messages), reply, time_s))
        messages += [reply, {"role": "user", "content": f"And after {number}?"}]
    return Session(name, tuple(calls), start_time_s=start_s)


@pytest.mark.parametrize(
    ("sessions", "scale", "expected"),
    [
        ([at(0, 4, 6)], 1, [[0, 4, 6]]),
        ([at(0, 4, 6)], 0.25, [[0, 1, 1.5]]),
        ([at(0, 4, start_s=2e9), at(0, 1, start_s=2e9 + 3)], 1, [[0, 4], [3, 4]]),
        ([at(0, 1, start_s=2e9 + 3), at(0, 4, start_s=2e9)], 2, [[6, 8], [0, 8]]),
        ([at(0, 4, start_s=2e9), at(0, 2)], 1, [[0, 4], [0, 2]]),  # without a start: at the first
        ([at(None, None, None)], 1, [[0, 1, 2]]),  # without times: a second each
        ([at(5, 7)], 1, [[0, 2]]),
        ([at(0, -2, 3)], 1, [[2, 0, 5]]),  # out of order: sent by time all the same
        ([at(), at(1)], 1, [[], [0]]),
        ([at()], 1, [[]]),
        ([], 1, []),
    ],
)
def test_when_calls_are_due(
    sessions: list[Session], scale: float, expected: list[list[float]]
) -> None:
    assert due_times_s(sessions, scale) == expected


@pytest.mark.parametrize("time_s", [math.nan, math.inf])
def test_a_time_that_is_no_number(time_s: float) -> None:
    with pytest.raises(TrajectoryError, match="session s: a recorded time is no number"):
        due_times_s([at(0, time_s)], 1)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_everything_starts_when_it_is_due(plan: list[tuple[int, int]]) -> None:
    """The slow twin sorts by time. `(due, takes)`; what takes long delays nobody."""
    started: list[tuple[float, int]] = []

    async def go(number: int, takes_s: float, due_s: float) -> None:
        assert now_s() == due_s
        started.append((due_s, number))
        await asyncio.sleep(takes_s)

    async def main() -> None:
        begun_s = now_s()
        await send_on_time(
            (due_s, lambda at_s, n=n, takes_s=takes_s: go(n, takes_s, at_s))  # type: ignore[misc]
            for n, (due_s, takes_s) in enumerate(plan)
        )
        assert now_s() - begun_s == max((due + takes for due, takes in plan), default=0)

    jump(main())
    assert started == sorted((float(due_s), n) for n, (due_s, _) in enumerate(plan))


def test_the_first_failure_ends_all() -> None:
    ended = []

    async def go(number: int) -> None:
        try:
            await asyncio.sleep(10)
        finally:
            ended.append((number, now_s()))

    async def fail() -> None:
        raise EngineError("it died")

    async def main() -> None:
        with pytest.raises(EngineError, match="it died"):
            await send_on_time([(0, lambda _: go(0)), (8, lambda _: go(8)), (2, lambda _: fail())])

    jump(main())
    assert ended == [(0, 2)]


def test_lateness() -> None:
    sums = OpenLoop()
    for late_s, ttft_s in ((0.0, 1.0), (0.01, None), (0.02, 0.5)):
        sums.finished(late_s, ttft_s)
    assert (sums.num_late, sums.ttft_from_due_s) == (1, [1.0, 0.52])
    accounts = Accounts(16, open_loop=sums)
    assert accounts.as_json()["open_loop"] == {
        "num_late": 1,
        "late_after_s": 0.01,
        "lateness_s": {"p50": 0.01, "p95": 0.02, "max": 0.02},
        "ttft_from_due_s": {"p50": 0.52, "p95": 1.0, "p99": 1.0},
        "max_in_flight": 0,
    }
    assert Accounts(16).as_json()["open_loop"] is None
    empty = Accounts(16, open_loop=OpenLoop()).as_json()["open_loop"]
    assert empty["lateness_s"] == {"p50": None, "p95": None, "max": None}


# --- a replay ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return load_model(smollm2, None)


class Slow(FakeEngine):
    """Takes `takes_s` for a call, and `blocks_s` of that without letting anything else run."""

    def __init__(self, model: Model, takes_s: float, blocks_s: float = 0.0) -> None:
        super().__init__(model.tokenizer.decode)
        self.takes_s, self.blocks_s = takes_s, blocks_s
        self.sent: list[tuple[float, list[int]]] = []

    async def complete(
        self, token_ids: Sequence[int], sampling: Sampling, **more: Any
    ) -> Completion:
        self.sent.append((now_s(), list(token_ids)))
        work(self.blocks_s)
        await asyncio.sleep(self.takes_s - self.blocks_s)
        done = await super().complete(token_ids, sampling, **more)
        return replace(done, ttft_s=self.takes_s, itl_s=())


def replay(
    model: Model, engine: FakeEngine, sessions: Sequence[Session], layout: Layout, **options: Any
) -> Accounts:
    target = LiveTarget(engine, Sampling(4), serial=False, salt="")
    made = Replay(sessions, model, target, **({"time_scale": 1.0} | options))
    jump(made.run([layout]))
    return made.accounts[layout]


def test_no_call_waits_for_the_one_before(model: Model) -> None:
    """One that takes 10 s does not hold up those that are due meanwhile."""
    engine = Slow(model, takes_s=10)
    sums = replay(model, engine, [at(0, 2, 30, name="a"), at(1, 3, name="b")], RECORDED)
    assert [sent_s for sent_s, _ in engine.sent] == [0, 1, 2, 3, 30]
    assert sums.open_loop is not None
    assert (sums.open_loop.max_in_flight, sums.open_loop.num_in_flight) == (4, 0)
    assert (sums.num_calls, sums.num_sessions, sums.open_loop.num_late) == (5, 2, 0)
    assert sums.ttft_s == [10] * 5
    assert sums.open_loop.ttft_from_due_s == pytest.approx([10] * 5)
    assert sums.makespan_s == pytest.approx(40)
    assert sums.is_complete


def test_what_is_sent_late_waits_from_when_it_was_due(model: Model) -> None:
    """Each call blocks everything for 3 s, and one is due each second."""
    engine = Slow(model, takes_s=3, blocks_s=3)
    sums = replay(model, engine, [at(0, 1, 2, 20)], STABLE)
    assert [sent_s for sent_s, _ in engine.sent] == [0, 3, 6, 20]
    assert sums.open_loop is not None
    assert sums.open_loop.late_s == pytest.approx([0, 2, 4, 0])
    assert sums.ttft_s == [3] * 4  # as the one who sends sees it
    assert sums.open_loop.ttft_from_due_s == pytest.approx([3, 5, 7, 3])
    assert sums.open_loop.num_late == 2


def test_prompts_are_made_before_the_first_is_sent(model: Model) -> None:
    """Making one takes 5 s here, and none is late."""

    def slowly(layout: Layout, sums: Accounts) -> None:
        work(5 if sums.num_calls == 0 else 0)

    engine = Slow(model, takes_s=1)
    sums = replay(model, engine, [at(0, 1, 2)], RECORDED, progress=slowly)
    assert [sent_s for sent_s, _ in engine.sent] == [15, 16, 17]
    assert sums.open_loop is not None
    assert sums.open_loop.num_late == 0
    assert sums.makespan_s == pytest.approx(3)


def test_the_time_scale(model: Model) -> None:
    engine = Slow(model, takes_s=1)
    replay(model, engine, [at(0, 10, 20)], CLOCK, time_scale=0.1)
    assert [sent_s for sent_s, _ in engine.sent] == [0, 1, 2]


@pytest.mark.parametrize("layout", ALL)
def test_prompts_and_counts_are_those_of_the_closed_loop(model: Model, layout: Layout) -> None:
    """Where calls do not overlap. Where they do, prompts are the same all the same."""
    sessions = [at(0, 20, 40, name="a"), at(10, 30, name="b")]
    engines = [Slow(model, takes_s=1) for _ in range(3)]
    closed = replay(model, engines[0], sessions, layout, time_scale=None)
    apart = replay(model, engines[1], sessions, layout)
    at_once = replay(model, engines[2], sessions, layout, time_scale=0.001)
    prompts = [sorted(ids for _, ids in engine.sent) for engine in engines]
    assert prompts[0] == prompts[1] == prompts[2]
    for key in ("num_sessions", "num_calls", "prompt_tokens", "deviations", "notes"):
        assert closed.as_json()[key] == apart.as_json()[key] == at_once.as_json()[key]
    assert closed.as_json()["bounds"]["token"] == apart.as_json()["bounds"]["token"]
    assert len(closed.breaks) == len(apart.breaks) == len(at_once.breaks)
    for sums in (apart, at_once):
        assert sums.content >= sums.token >= sums.unit >= (sums.delivered or 0)
        assert set(sums.mismatches) <= {"in_flight_sharing", "evicted"}


def test_a_prompt_that_repeats_one_in_flight_breaks_nothing(model: Model) -> None:
    """A break is measured against what was sent, answered or not."""
    engine = Slow(model, takes_s=10)
    sums = replay(model, engine, [at(0, 1, 2, 3)], STABLE)
    assert (sums.num_calls, sums.breaks) == (4, [])
    edited = at(0, 1)
    calls = (edited.calls[1], replace(edited.calls[0], time_s=2))
    again = replay(model, Slow(model, 10), [Session("s", calls)], RECORDED)
    assert [found.call for found in again.breaks] == [1]


def test_skipped_calls_are_not_sent_and_the_others_keep_their_times(model: Model) -> None:
    engine = Slow(model, takes_s=1)
    engine.info = replace(engine.info, max_model_len=60)
    target = LiveTarget(engine, Sampling(4), serial=False, salt="")
    made = Replay([at(0, 5, 10, 15), Session("none", ())], model, target, time_scale=1.0)
    jump(made.run([RECORDED]))
    sums = made.accounts[RECORDED]
    assert sums.num_calls + sums.num_skipped["longer_than_context"] == 4
    assert [sent_s for sent_s, _ in engine.sent] == [0, 5, 10, 15][: sums.num_calls]
    assert 0 < sums.num_calls < 4
    assert sums.num_sessions == 2
    with pytest.raises(LayoutError, match="leave no room"):
        jump(replace(made, overflow=Overflow.FAIL, runs={}).run([RECORDED]))


@pytest.mark.parametrize("error", [EngineError("it died"), KeyboardInterrupt()])
def test_what_was_done_survives_an_end_in_the_middle(model: Model, error: BaseException) -> None:
    """The third call ends the run, while the second still waits for its answer."""

    class Dying(Slow):
        async def complete(self, *arguments: Any, **options: Any) -> Completion:
            if len(self.sent) == 2:
                raise error
            return await super().complete(*arguments, **options)

    engine = Dying(model, takes_s=5)
    target = LiveTarget(engine, Sampling(4), serial=False, salt="")
    made = Replay([at(0, 6, 7, 8)], model, target, time_scale=1.0)
    with pytest.raises(type(error)):
        jump(made.run([RECORDED, STABLE]))
    assert list(made.runs) == [RECORDED]
    [sums] = made.runs[RECORDED]
    assert (sums.num_calls, sums.num_sessions, sums.is_complete) == (1, 0, False)
    assert sums.open_loop is not None
    assert (sums.open_loop.max_in_flight, sums.open_loop.num_in_flight) == (2, 0)
    assert sums.makespan_s == pytest.approx(7)


@pytest.mark.parametrize("time_scale", [0, -1, math.nan, math.inf])
def test_a_time_scale_that_is_none(model: Model, time_scale: float) -> None:
    target = LiveTarget(FakeEngine(model.tokenizer.decode), Sampling(4), serial=False, salt="")
    with pytest.raises(DuramenError, match="is no positive number"):
        Replay([at(0)], model, target, time_scale=time_scale)


def test_what_cannot_run_at_recorded_times(model: Model) -> None:
    live = LiveTarget(FakeEngine(model.tokenizer.decode), Sampling(4), serial=False, salt="")
    for target, live_replies in ((live, True), (ModelTarget(None, 16, None), False)):
        with pytest.raises(DuramenError, match="do not wait for replies"):
            Replay([at(0)], model, target, live_replies=live_replies, time_scale=1.0)
