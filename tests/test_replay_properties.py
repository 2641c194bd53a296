"""Bounds and predictions over conversations of any kind, each with its slow twin."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replay_cases import (
    ALL,
    RECORDED,
    STABLE,
    Recorder,
    fake_engine,
    growing,
    replay,
    said,
    tool,
    user,
)

from duramen.experiments.accounts import Accounts
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.target import LiveTarget, ModelTarget, Target
from duramen.experiments.trajectory import Call, Message, Session, Tool
from duramen.layout.blocks import common_prefix
from duramen.serving.vllm.protocol import Sampling


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return load_model(smollm2, None)


ROOTS = ["Be brief.", "Be brief. Use tools.", ""]
TEXTS = ["", "ok", "ok ok ok", " indented\n", "<|im_end|>", "né 日本 🙂", "word " * 12]
TOOLS: list[tuple[Tool, ...]] = [(), (tool("read"),), (tool("read"), tool("grep"))]
CALLING: Message = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "read", "arguments": '{"a": 1}'}}
    ],
}
REPLIES: list[Message | None] = [*map(said, TEXTS), CALLING, None]


def answered(messages: list[Message], reply: Message | None, new: Message) -> list[Message]:
    return [*messages, *([reply] if reply else []), new]


EDITS: dict[str, Callable[[list[Message], Message | None, Message], list[Message]]] = {
    "append": answered,
    "drop the reply": lambda messages, reply, new: [*messages, new],
    "rewrite the reply": lambda messages, reply, new: [*messages, said("rewritten"), new],
    "retry": lambda messages, reply, new: messages,
    "edit": lambda messages, reply, new: [*messages[:1], new, *messages[2:]],
    "forget": lambda messages, reply, new: answered([messages[0], *messages[3:]], reply, new),
}


@st.composite
def any_session(draw: st.DrawFn, session_id: str, *, append_only: bool) -> Session:
    messages: list[Message] = [{"role": "system", "content": draw(st.sampled_from(ROOTS))}]
    messages.append(user(draw(st.sampled_from(TEXTS))))
    tools = draw(st.sampled_from(TOOLS))
    calls: list[Call] = []
    for _ in range(draw(st.integers(0, 5))):
        reply = draw(st.sampled_from(REPLIES))
        changed = None if append_only else draw(st.sampled_from([None, None, None, *TOOLS]))
        calls.append(Call(tuple(messages), reply, tools=changed))
        edit = "append" if append_only else draw(st.sampled_from([*EDITS, "append", "append"]))
        role = "tool" if reply is CALLING else "user"
        new = {"role": role, "content": draw(st.sampled_from(TEXTS))}
        messages = EDITS[edit](messages, reply, new)
    return Session(session_id, tuple(calls), tools)


def conversations(*, append_only: bool = False) -> st.SearchStrategy[list[Session]]:
    one = st.integers(0, 3).flatmap(
        lambda count: st.tuples(
            *(any_session(f"s{number}", append_only=append_only) for number in range(count))
        )
    )
    return one.map(list)


thorough = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class PerCall:
    """Splits the sums back into calls, as progress reports them."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []
        self._last = (0, 0, 0, 0, 0)

    def __call__(self, layout: Layout, sums: Accounts) -> None:
        assert sums.delivered is not None
        bounds = (sums.content, sums.token, sums.unit, sums.delivered)
        now = (sums.prompt_tokens, *bounds)
        self.rows.append(tuple(a - b for a, b in zip(now, self._last, strict=True)))
        self._last = now


@thorough
@given(conversations(), st.sampled_from(ALL), st.sampled_from([1, 16]))
def test_bounds_hold_on_every_call(
    model: Model, sessions: list[Session], layout: Layout, unit: int
) -> None:
    """And each has a slow twin: the longest prefix in common with anything before."""
    per_call, target = PerCall(), Recorder(ModelTarget(None, unit, None))
    sums = replay(model, sessions, target, layout, progress=per_call)
    assert sums.num_calls == len(target.sent) == sum(len(s.calls) for s in sessions)
    assert sums.num_sessions == len(sessions)
    said_before: list[list[int]] = []
    computed: list[list[int]] = []
    for (prompt, outcome), row in zip(target.sent, per_call.rows, strict=True):
        num_tokens, content, token, in_units, delivered = row
        assert num_tokens == len(prompt) >= content >= token >= in_units >= delivered
        assert token == max((common_prefix(prompt, ids) for ids in said_before), default=0)
        assert in_units == min(token, num_tokens - 1) // unit * unit
        resident = max((common_prefix(prompt, ids) for ids in computed), default=0)
        assert delivered == min(resident // unit, (num_tokens - 1) // unit) * unit
        said_before.append([*prompt, *outcome.token_ids])
        computed.append([*prompt, *outcome.token_ids[:-1]])


@thorough
@given(conversations(), st.sampled_from([RECORDED, STABLE]), st.integers(16, 400))
def test_a_finite_cache_never_beats_the_infinite_one(
    model: Model, sessions: list[Session], layout: Layout, num_kv_tokens: int
) -> None:
    finite = Recorder(ModelTarget(num_kv_tokens, 16, None))
    infinite = Recorder(ModelTarget(None, 16, finite.max_model_len))
    sums = [replay(model, sessions, target, layout) for target in (finite, infinite)]
    assert sums[0].num_skipped.total() == sums[1].num_skipped.total()
    assert sums[0].num_calls + sums[0].num_skipped.total() == sum(len(s.calls) for s in sessions)
    for (prompt, small), (same, large) in zip(finite.sent, infinite.sent, strict=True):
        assert prompt == same
        assert (small.cached_tokens or 0) <= (large.cached_tokens or 0)


@thorough
@given(conversations(append_only=True), st.sampled_from(["model", "engine"]), st.booleans())
def test_stable_never_breaks_what_only_grows(
    model: Model, sessions: list[Session], runs_on: str, live: bool
) -> None:
    target: Target = ModelTarget(None, 16, None)
    if runs_on == "engine":
        target = LiveTarget(fake_engine(model), Sampling(6, 1.0, 1), serial=True, salt="")
    sums = replay(
        model, sessions, target, STABLE, live_replies=live and not target.samples_the_record
    )
    assert sums.breaks == []
    assert sums.mismatches == {}


@thorough
@given(conversations(), st.sampled_from(ALL), st.integers(12, 60))
def test_predicted_is_delivered_when_the_pool_is_small(
    model: Model, sessions: list[Session], layout: Layout, num_kv_blocks: int
) -> None:
    """The engine, its mirror, and the cache model of the same size all say the same."""
    engine = fake_engine(model, num_kv_blocks=num_kv_blocks, max_model_len=(num_kv_blocks - 1) * 16)
    target = Recorder(LiveTarget(engine, Sampling(6, 1.0, 1), serial=True, salt=""))
    sums = replay(model, sessions, target, layout, live_replies=True)
    assert sums.mismatches == {}
    assert sums.predicted == sums.delivered
    assert asyncio.run(in_the_model(target, (num_kv_blocks - 1) * 16)) == [
        outcome.cached_tokens for _, outcome in target.sent
    ]


async def in_the_model(target: Recorder, num_kv_tokens: int) -> list[int | None]:
    """What the cache model says when it is fed the ids that went through `target`."""
    twin = ModelTarget(num_kv_tokens, target.unit_tokens, target.max_model_len)
    replies = iter([(outcome.token_ids, outcome.message) for _, outcome in target.sent])
    return [
        (await twin.run(prompt, (), replies.__next__)).cached_tokens for prompt, _ in target.sent
    ]


@thorough
@given(conversations(), st.sampled_from(ALL), st.integers(2, 8), st.integers(40, 200))
def test_at_once_every_mismatch_has_a_cause(
    model: Model,
    sessions: list[Session],
    layout: Layout,
    concurrency: int,
    num_kv_blocks: int,
) -> None:
    """The fake shares what is in flight, queues what does not fit, and evicts."""
    engine = fake_engine(model, num_kv_blocks=num_kv_blocks, max_model_len=39 * 16)
    target = LiveTarget(engine, Sampling(6, 1.0, 1), serial=False, salt="")
    sums = replay(model, sessions, target, layout, live_replies=True, concurrency=concurrency)
    assert sums.num_calls + sums.num_skipped.total() == sum(len(s.calls) for s in sessions)
    assert sums.num_sessions == len(sessions)
    assert set(sums.mismatches) <= {"in_flight_sharing", "evicted"}
    assert sums.content >= sums.token >= sums.unit >= (sums.delivered or 0)


def test_evictions_do_happen_in_the_small_pool(model: Model) -> None:
    engine = fake_engine(model, num_kv_blocks=12, max_model_len=11 * 16)
    target = Recorder(LiveTarget(engine, Sampling(6), serial=True, salt=""))
    sessions = [growing("a", 4), growing("b", 4, root="Be long."), growing("c", 4)]
    sums = replay(model, sessions, target, STABLE, live_replies=True)
    assert engine.mirror is not None
    assert engine.mirror.num_removed > 0
    assert (sums.num_calls, sums.mismatches) == (12, {})
    assert (sums.delivered or 0) < sums.unit
    assert asyncio.run(in_the_model(target, 11 * 16)) == [o.cached_tokens for _, o in target.sent]
