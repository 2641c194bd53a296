"""Replay over the cache model and over a fake engine: bounds, breaks, skips, what survives."""

import asyncio
import json
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duramen.experiments.accounts import Accounts, percentiles
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.replay import Overflow, Replay
from duramen.experiments.target import LiveTarget, ModelTarget, Outcome, RecordedReply, Target
from duramen.experiments.trajectory import Call, Message, Session, Tool
from duramen.layout.blocks import common_prefix
from duramen.layout.errors import EngineError, LayoutError
from duramen.layout.zones import Prompt, Span, Zone
from duramen.serving.vllm.fake import FakeEngine
from duramen.serving.vllm.protocol import Completion, Sampling

CLOCK, RECORDED, STABLE = ALL = [Layout.parse(n) for n in ("clock", "recorded", "stable")]


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return load_model(smollm2, None)


def said(text: str) -> Message:
    return {"role": "assistant", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def tool(name: str) -> Tool:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def growing(session_id: str, num_calls: int, root: str = "Be brief.") -> Session:
    """An append-only session: each call adds the last reply and one more question."""
    messages: list[Message] = [{"role": "system", "content": root}, user("Count with me.")]
    calls = []
    for number in range(num_calls):
        reply = said(f"That makes {number} for {session_id}.")
        calls.append(Call(tuple(messages), reply))
        messages += [reply, user(f"And after {number}?")]
    return Session(session_id, tuple(calls))


@dataclass
class Recorder:
    """A target that remembers what went through the one inside."""

    inner: Target
    sent: list[tuple[list[int], Outcome]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = self.inner.name
        self.unit_tokens = self.inner.unit_tokens
        self.max_model_len = self.inner.max_model_len
        self.samples_the_record = self.inner.samples_the_record
        self.limit_reason = self.inner.limit_reason

    @property
    def settling_s(self) -> float:
        return self.inner.settling_s

    async def begin_layout(self, name: str) -> None:
        self.sent = []
        await self.inner.begin_layout(name)

    async def run(
        self, token_ids: Sequence[int], tools: Sequence[Tool], recorded: RecordedReply
    ) -> Outcome:
        outcome = await self.inner.run(token_ids, tools, recorded)
        self.sent.append((list(token_ids), outcome))
        return outcome


def replay(
    model: Model, sessions: Sequence[Session], target: Target, layout: Layout, **options: Any
) -> Accounts:
    run = Replay(sessions, model, target, **options)
    asyncio.run(run.run([layout]))
    return run.accounts[layout]


def fake_engine(model: Model, **sizes: int) -> FakeEngine:
    return FakeEngine(model.tokenizer.decode, **sizes)


# --- what the layouts do -----------------------------------------------------------------------


@pytest.mark.parametrize("layout", [RECORDED, STABLE])
def test_recorded_replies_break_nothing(model: Model, layout: Layout) -> None:
    sums = replay(model, [growing("a", 5), growing("b", 5)], ModelTarget(None, 1, None), layout)
    assert (sums.num_sessions, sums.num_calls, sums.breaks) == (2, 10, [])
    assert sums.delivered == sums.unit - 8  # the last sampled token of 8 replies
    assert sums.predicted is None  # the model is what would predict
    assert sums.unit == sums.token - 1  # the first prompt of both is the same
    assert 0 < sums.prompt_tokens - sums.content <= (sums.uncached_tokens or 0)


def test_the_clock_breaks_every_call_in_the_system_prompt(model: Model) -> None:
    sums = replay(model, [growing("a", 5)], ModelTarget(None, 32, None), CLOCK)
    assert {found.source for found in sums.breaks} == {"message 0 (system)"}
    assert [found.call for found in sums.breaks] == [1, 2, 3, 4]
    assert sums.delivered == 0
    assert all(found.lost_tokens > 0 for found in sums.breaks)


def test_live_replies_break_recorded_inside_the_reply_and_stable_never(model: Model) -> None:
    """The fake samples ids that spell no canonical text."""
    sessions = [growing("a", 6), growing("b", 6)]
    broken, kept = (
        replay(
            model,
            sessions,
            LiveTarget(fake_engine(model), Sampling(24, 1.0, 7), serial=True, salt=""),
            layout,
            live_replies=True,
        )
        for layout in (RECORDED, STABLE)
    )
    assert len(broken.breaks) == 10  # each call that follows a reply
    assert all(found.source.endswith("(assistant) text") for found in broken.breaks)
    assert (kept.breaks, kept.mismatches, broken.mismatches) == ([], {}, {})
    assert kept.predicted == kept.delivered == kept.unit
    assert (kept.uncached_tokens or 0) < (broken.uncached_tokens or 0)


@pytest.mark.parametrize(
    ("second", "sources"),
    [
        ((user("Go."), user("And now?")), ["message 1 (user)"]),  # in place of an answer's opening
        ((user("Go."), said("rewritten"), user("And now?")), []),
        ((user("Go."),), []),  # sent again
    ],
)
def test_a_reply_that_the_client_does_not_keep_is_not_what_breaks(
    model: Model, second: tuple[Message, ...], sources: list[str]
) -> None:
    session = Session("s", (Call((user("Go."),), said("recorded")), Call(second, None)))
    target = LiveTarget(fake_engine(model), Sampling(8), serial=True, salt="")
    recorded = replay(model, [session], target, RECORDED, live_replies=True)
    assert [found.source for found in recorded.breaks] == sources
    watched = Recorder(target)
    stable = replay(model, [session], watched, STABLE, live_replies=True)
    assert (stable.num_calls, stable.breaks) == (2, [])
    (first, outcome), (then, _) = watched.sent
    assert then[: len(first)] == first
    assert then[len(first) :][: len(outcome.token_ids)] != list(outcome.token_ids)


def test_an_edit_is_a_break_where_it_was_made(model: Model) -> None:
    calls = tuple(
        Call(
            (user("Read this. " * 20), said("Done."), user(f"Try {n}"), said("x"), user("y")), None
        )
        for n in (1, 2)
    )
    for layout in (RECORDED, STABLE):
        sums = replay(model, [Session("s", calls)], ModelTarget(None, 1, None), layout)
        assert [(found.call, found.source) for found in sums.breaks] == [(1, "message 2 (user)")]


# --- properties over conversations of any kind -------------------------------------------------

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


# --- what does not fit, what is refused, what is cut short ---------------------------------------


def test_overflow_is_skipped_and_counted(model: Model) -> None:
    target = Recorder(ModelTarget(None, 16, 80))
    sums = replay(model, [growing("a", 5)], target, STABLE)
    assert max(len(prompt) for prompt, _ in target.sent) < 80
    limit = len(target.sent[-1][0])  # a prompt that fills the context leaves no room for a reply
    filled = replay(model, [growing("a", 5)], ModelTarget(None, 16, limit), STABLE)
    assert filled.num_calls == sums.num_calls - 1
    assert sums.num_calls == len(target.sent) == 5 - sums.num_skipped.total()
    assert dict(sums.num_skipped) == {"longer_than_context": 5 - sums.num_calls}
    assert 0 < sums.num_calls < 5


def test_overflow_is_truncated_to_the_newest_tokens_and_noted(model: Model) -> None:
    whole, cut = Recorder(ModelTarget(None, 16, None)), Recorder(ModelTarget(None, 16, 80))
    replay(model, [growing("a", 5)], whole, RECORDED)
    sums = replay(model, [growing("a", 5)], cut, RECORDED, overflow=Overflow.TRUNCATE)
    assert [prompt for prompt, _ in cut.sent] == [prompt[-79:] for prompt, _ in whole.sent]
    assert (sums.num_calls, sums.num_skipped) == (5, {})
    [(note, count)] = sums.notes.items()
    assert "cut off" in note
    assert count == sum(len(prompt) > 79 for prompt, _ in whole.sent)


def test_overflow_fails_with_the_place_and_keeps_what_was_done(model: Model) -> None:
    run = Replay(
        [growing("a", 5)], model, ModelTarget(None, 16, 80), overflow=Overflow.FAIL, concurrency=2
    )
    with pytest.raises(
        LayoutError, match=r"session a, call \d: \d+ tokens .* longer_than_context, 80"
    ):
        asyncio.run(run.run([STABLE, RECORDED]))
    assert list(run.accounts) == [STABLE]
    assert 0 < run.accounts[STABLE].num_calls < 5


def test_a_pool_that_is_no_whole_number_of_units(model: Model) -> None:
    """The context is what fits: the last, broken unit holds nothing."""
    target = ModelTarget(95, 16, 1000)
    assert target.max_model_len == 80
    sums = replay(model, [growing("a", 5)], target, STABLE)
    assert sums.num_skipped["larger_than_pool"] > 0
    with pytest.raises(LayoutError, match="15 tokens holds no unit of 16"):
        ModelTarget(15, 16, None)


REFUSING = """{% for message in messages %}{% if message.content == 'NO' %}
{{- raise_exception('not that') }}{% endif %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.mark.parametrize("layout", ALL)
def test_what_the_template_refuses_is_counted(
    smollm2: Path, tmp_path: Path, layout: Layout
) -> None:
    """The call before and the one after are sent."""
    (tmp_path / "refusing.jinja").write_text(REFUSING)
    refusing = load_model(smollm2, tmp_path / "refusing.jinja")
    first, middle, last = (user("Go."),), (user("Go."), said("ok"), user("NO")), (user("Stop."),)
    calls = tuple(Call(messages, said("ok")) for messages in (first, middle, last))
    sums = replay(refusing, [Session("s", calls)], ModelTarget(None, 16, None), layout)
    assert (sums.num_calls, dict(sums.num_skipped)) == (2, {"refused_by_template": 1})
    assert [note for note in sums.notes if "not that" in note]


@pytest.mark.parametrize("layout", ALL)
def test_a_recorded_reply_that_the_template_refuses_was_not_sampled(
    smollm2: Path, tmp_path: Path, layout: Layout
) -> None:
    """Its call counts; the next one, which quotes it, is refused."""
    (tmp_path / "refusing.jinja").write_text(REFUSING)
    refusing = load_model(smollm2, tmp_path / "refusing.jinja")
    first, second = (user("Go."),), (user("Go."), said("NO"), user("On."))
    session = Session("s", (Call(first, said("NO")), Call(second, None), Call(first, said("ok"))))
    target = Recorder(ModelTarget(None, 16, None))
    sums = replay(refusing, [session], target, layout)
    assert (sums.num_calls, dict(sums.num_skipped)) == (2, {"refused_by_template": 1})
    assert [len(outcome.token_ids) for _, outcome in target.sent] == [0, 2]
    assert sums.breaks == [] or layout is CLOCK


REFUSING_THE_END = REFUSING.replace(
    "message.content == 'NO'", "loop.last and message.role == 'assistant'"
)


def test_a_reply_that_the_template_refuses_only_at_the_end_is_sent_as_text(
    smollm2: Path, tmp_path: Path
) -> None:
    (tmp_path / "refusing.jinja").write_text(REFUSING_THE_END)
    refusing = load_model(smollm2, tmp_path / "refusing.jinja")
    targets = [Recorder(ModelTarget(None, 16, None)) for _ in range(2)]
    for target, layout in zip(targets, (RECORDED, STABLE), strict=True):
        replay(refusing, [growing("a", 3)], target, layout)
    assert [prompt for prompt, _ in targets[0].sent] == [prompt for prompt, _ in targets[1].sent]


class Halting(FakeEngine):
    """Raises `error` at call number `at`."""

    def __init__(self, model: Model, at: int, error: BaseException) -> None:
        super().__init__(model.tokenizer.decode)
        self._left, self._error = at, error

    async def complete(self, *arguments: Any, **options: Any) -> Completion:
        self._left -= 1
        if self._left < 0:
            raise self._error
        return await super().complete(*arguments, **options)


@pytest.mark.parametrize("error", [EngineError("it died"), KeyboardInterrupt()])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_what_was_done_survives_an_end_in_the_middle(
    model: Model, error: BaseException, concurrency: int
) -> None:
    target = LiveTarget(Halting(model, 4, error), Sampling(4), serial=concurrency == 1, salt="")
    sessions = [growing(name, 3) for name in "abc"]
    run = Replay(sessions, model, target, live_replies=True, concurrency=concurrency)
    with pytest.raises(type(error)):
        asyncio.run(run.run([RECORDED, STABLE]))
    assert list(run.accounts) == [RECORDED]
    sums = run.accounts[RECORDED]
    assert 0 < sums.num_calls <= 4
    assert sums.prompt_tokens > 0
    assert sums.makespan_s is not None
    json.dumps(sums.as_json())


def test_the_first_ctrl_c_ends_a_run_that_never_waits(model: Model) -> None:
    run = Replay([growing("a", 9)], model, ModelTarget(None, 16, None))

    def interrupt(layout: Layout, sums: Accounts) -> None:
        if sums.num_calls == 3:
            signal.raise_signal(signal.SIGINT)

    run.progress = interrupt
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run.run([RECORDED, STABLE]))
    assert list(run.accounts) == [RECORDED]
    assert run.accounts[RECORDED].num_calls == 3


# --- the form of the result --------------------------------------------------------------------


def test_the_form_of_the_result(model: Model) -> None:
    target = LiveTarget(fake_engine(model), Sampling(24, 1.0, 3), serial=True, salt="")
    found = replay(model, [growing("a", 3)], target, RECORDED, live_replies=True).as_json()
    assert list(found) == [
        "num_sessions",
        "num_calls",
        "num_skipped",
        "prompt_tokens",
        "cached_tokens",
        "uncached_tokens",
        "min_uncached_tokens",
        "hit_rate",
        "bounds",
        "prediction_mismatches",
        "breaks",
        "deviations",
        "num_deviating_tokens",
        "notes",
        "ttft_s",
        "itl_s",
        "makespan_s",
    ]
    assert list(found["bounds"]) == ["content", "token", "unit", "predicted", "delivered"]
    assert [list(b) for b in found["breaks"]] == [
        ["session", "call", "token", "lost_tokens", "source"]
    ] * 2
    assert list(found["ttft_s"]) == list(found["itl_s"]) == ["p50", "p95", "p99"]
    assert found["cached_tokens"] == found["bounds"]["delivered"]
    assert found["cached_tokens"] + found["uncached_tokens"] == found["prompt_tokens"]
    assert found["min_uncached_tokens"] == found["prompt_tokens"] - found["bounds"]["content"]
    assert found["hit_rate"] == found["cached_tokens"] / found["prompt_tokens"]
    json.dumps(found)


def spans(*lengths: int) -> tuple[Span, ...]:
    ends = list(accumulate(lengths, initial=0))
    return tuple(
        Span(start, end, Zone.LEAF, f"part {number}", bytes([number]))
        for number, (start, end) in enumerate(pairwise(ends))
    )


@pytest.mark.parametrize(
    ("second", "has_reply", "expected"),
    [
        ([1, 2, 3, 4, 5], True, []),
        ([1, 2, 3, 4], True, [(4, "end")]),  # it stops before the reply's last token
        ([1, 2, 3, 4, 9], True, [(4, "part 1")]),
        ([1, 2, 3, 9, 9], False, []),
        ([1, 2, 9, 9, 9], False, [(2, "part 0")]),
        ([9, 2, 3, 4, 5], True, [(0, "part 0")]),
    ],
)
def test_where_a_prompt_breaks(
    second: list[int], has_reply: bool, expected: list[tuple[int, str]]
) -> None:
    """After [1, 2, 3], to which [4, 5] was sampled."""
    sums, session = Accounts(unit_tokens=1), Session("s", ())
    first = Prompt([1, 2, 3], spans(3))
    bounds = sums.sending(session, 0, first, has_reply=False)
    sums.finished(session, first, bounds, Outcome([4, 5], said("x"), 0, 0), b"reply")
    prompt = Prompt(second, spans(3, len(second) - 3))
    sums.sending(session, 1, prompt, has_reply=has_reply)
    assert [(found.token, found.source) for found in sums.breaks] == expected


def test_what_nobody_measured_is_null(model: Model) -> None:
    found = replay(model, [growing("a", 2)], ModelTarget(None, 16, None), STABLE).as_json()
    nothing = {"p50": None, "p95": None, "p99": None}
    assert (found["ttft_s"], found["itl_s"], found["makespan_s"]) == (nothing, nothing, None)
    empty = replay(model, [Session("s", ())], ModelTarget(None, 16, None), STABLE).as_json()
    assert (empty["num_sessions"], empty["num_calls"], empty["hit_rate"]) == (1, 0, None)


def test_an_engine_without_events_predicts_nothing(model: Model) -> None:
    engine = fake_engine(model)
    engine._publish = lambda *_: None  # type: ignore[method-assign]
    engine.mirror = None
    target = LiveTarget(engine, Sampling(4), serial=True, salt="salt")
    sums = replay(model, [growing("a", 3)], target, STABLE)
    found = sums.as_json()
    assert found["bounds"]["predicted"] is None
    assert sums.num_mispredicted is None
    assert found["prediction_mismatches"] is None
    assert found["bounds"]["delivered"] > 0


def test_percentiles_are_the_nearest_rank() -> None:
    assert percentiles([3.0]) == {"p50": 3.0, "p95": 3.0, "p99": 3.0}
    hundred = [float(value) for value in range(100, 0, -1)]
    assert percentiles(hundred) == {"p50": 50.0, "p95": 95.0, "p99": 99.0}
    assert percentiles([1.0, 2.0, 3.0])["p50"] == 2.0
