"""`explain` over small sessions: numbers against rendering and comparing everything, and causes."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from why_cases import SYSTEM, TOOLS, chat, ids_of

from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.prices.read import packaged_book
from duramen.experiments.trajectory import Call, Message, Sending, Session, Usage
from duramen.experiments.why.explain import Settings, explain
from duramen.experiments.why.explained import ExplainedBreak, ExplainedCall, totals
from duramen.layout.blocks import common_prefix, reusable_tokens
from duramen.layout.zones import Zone

UNIT = 16


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return load_model(smollm2, None)


def explained(
    model: Model,
    sessions: Sequence[Session],
    settings: Settings = Settings(UNIT),  # noqa: B008
) -> list[ExplainedCall]:
    return list(explain(sessions, model, settings))


def break_of(call: ExplainedCall) -> ExplainedBreak:
    assert call.broken is not None
    return call.broken


def with_call(session: Session, index: int, **changes: object) -> Session:
    calls = list(session.calls)
    calls[index] = replace(calls[index], **changes)  # type: ignore[arg-type]
    return replace(session, calls=tuple(calls))


def with_system(session: Session, index: int, text: str) -> Session:
    """Call `index` and all behind it begin with another system message."""
    calls = [
        replace(call, messages=({"role": "system", "content": text}, *call.messages[1:]))
        if number >= index
        else call
        for number, call in enumerate(session.calls)
    ]
    return replace(session, calls=tuple(calls))


def test_calls_that_only_append_break_nothing(model: Model) -> None:
    session = chat(4, tools=TOOLS)
    calls = explained(model, [session])
    assert [call.call for call in calls] == [0, 1, 2, 3]
    assert break_of(calls[0]).cause == "first-call"
    prompts = [ids_of(model, call.messages, TOOLS) for call in session.calls]
    for number, call in enumerate(calls):
        earlier = [common_prefix(prompt, prompts[number]) for prompt in prompts[:number]]
        assert call.num_tokens == len(prompts[number])
        assert call.lcp is not None
        assert call.lcp >= max(earlier, default=0)  # the reply comes on top
        assert call.reusable == reusable_tokens(call.lcp, len(prompts[number]), UNIT)
        assert call.delivered is None
        assert call.broken is None or number == 0
        assert call.predicted in ((call.reusable or 0), (call.reusable or 0) - UNIT)
    assert totals(calls) == {"first-call": 0}


def test_a_clock_costs_everything_behind_it(model: Model) -> None:
    plain = chat(3)
    text = "Today is 2026-11-30, 12:0{} UTC. " + str(SYSTEM["content"])
    session = plain
    for index in range(3):
        session = with_system(session, index, text.format(index))
    calls = explained(model, [session])
    prompts = [ids_of(model, call.messages) for call in session.calls]
    for before, call in pairwise(calls):
        broken = break_of(call)
        token = common_prefix(prompts[before.call], prompts[call.call])
        assert (broken.cause, broken.layer, broken.zone) == ("clock", "request", Zone.ROOT)
        assert (broken.vs_session, broken.vs_call) == ("chat", before.call)
        assert (call.lcp, broken.token, broken.block) == (token, token, token // UNIT)
        assert broken.around is not None
        assert f"12:0{before.call}" in broken.around[0]
        assert f"12:0{call.call}" in broken.around[1]
        # what the same call would have reused had the clock stood still
        twin = explained(model, [with_system(plain, 0, text.format(0))])[call.call]
        assert twin.predicted is not None
        assert broken.lost_tokens == twin.predicted - (call.reusable or 0)
        assert call.predicted == call.reusable


def test_a_reply_that_comes_back_changed(model: Model) -> None:
    function = {"name": "read", "arguments": '{"path": "a.txt", "raw": false}'}
    reply: Message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    back = {**function, "arguments": '{"path": "a.txt", "raw": "False"}'}
    changed: Message = {**reply, "tool_calls": [{"id": "c1", "type": "function", "function": back}]}
    first = (SYSTEM, {"role": "user", "content": "Read a.txt"})
    result: Message = {"role": "tool", "tool_call_id": "c1", "content": "nothing"}
    calls = (Call(first, reply), Call((*first, changed, result), None))
    broken = break_of(explained(model, [Session("s", calls, TOOLS)])[1])
    assert broken.cause == "re-serialised-arguments"
    assert broken.zone is Zone.TRUNK
    kept = (Call(first, reply), Call((*first, reply, result), None))
    assert explained(model, [Session("s", kept, TOOLS)])[1].broken is None


def test_recorded_ids_hold_over_ours(model: Model) -> None:
    """The reply was sampled with other ids than those its text is encoded to."""
    session = chat(2)
    tokenizer = model.tokenizer
    text = "It stands on pier number 0."
    spelled = [i for part in (text[:4], text[4:]) for i in tokenizer.encode_text(part)]
    assert spelled != list(tokenizer.encode_text(text))
    sampled = (*spelled, tokenizer.control["<|im_end|>"].id)
    session = with_call(session, 0, sending=Sending(reply_ids=sampled))
    call = explained(model, [session])[1]
    broken = break_of(call)
    assert (broken.cause, broken.layer) == ("retokenisation", "token")
    prompt = ids_of(model, session.calls[0].messages)
    assert broken.token == common_prefix(
        [*prompt, *sampled], ids_of(model, session.calls[1].messages)
    )


def test_another_session_with_the_same_root_is_no_break(model: Model) -> None:
    ask: Message = {"role": "user", "content": "A wholly different task, about trains."}
    other = Session("other", (Call((SYSTEM, ask), None),))
    calls = explained(model, [chat(1), other])
    assert calls[1].broken is None
    assert calls[1].lcp is not None
    assert calls[1].lcp > len(model.tokenizer.encode_text(str(SYSTEM["content"])))
    assert calls[1].predicted == calls[1].reusable


def test_a_root_with_another_hash_is_a_break_in_the_root(model: Model) -> None:
    text = "request-id: {}\n" + str(SYSTEM["content"])
    first = with_system(chat(1, name="one"), 0, text.format("4f9a1c77be02d3e8"))
    second = with_system(chat(1, name="two"), 0, text.format("a07715d3c9be4412"))
    broken = break_of(explained(model, [first, second])[1])
    assert (broken.cause, broken.zone) == ("uuid-or-hash", Zone.ROOT)
    assert (broken.vs_session, broken.vs_call) == ("one", 0)
    assert broken.lost_tokens > 0


def test_another_conversation_inside_a_session_is_a_first_call(model: Model) -> None:
    title = Call(({"role": "user", "content": "Write a title of five words for this talk."},), None)
    session = chat(3)
    mixed = replace(session, calls=(*session.calls[:2], title, session.calls[2]))
    calls = explained(model, [mixed])
    assert break_of(calls[2]).cause == "first-call"
    assert calls[3].broken is None
    assert calls[3].lcp == explained(model, [session])[2].lcp


def test_the_newest_of_the_most_alike_is_measured_against(model: Model) -> None:
    """A call that goes back to an older branch is measured against that one."""
    session = chat(3)
    other: Message = {"role": "user", "content": "Never mind. Tell me of the lighthouse keeper."}
    aside = Call((*session.calls[0].messages[:1], other), None)
    mixed = replace(session, calls=(*session.calls[:2], aside, session.calls[2]))
    assert explained(model, [mixed])[3].broken is None


def test_a_small_pool_evicts(model: Model) -> None:
    """In the order of time over sessions, which are interleaved."""
    one = chat(2, name="one", start_time_s=1000.0)
    two = with_system(chat(1, name="two", start_time_s=1005.0), 0, "Another system text. " * 30)
    one = replace(
        one, calls=tuple(replace(call, time_s=10.0 * n) for n, call in enumerate(one.calls))
    )
    two = with_call(two, 0, time_s=0.0)
    size = sum(len(ids_of(model, s.calls[-1].messages)) for s in (one, two)) - 4 * UNIT
    calls = explained(model, [one, two], Settings(UNIT, kv_tokens=size))
    assert [(call.session, call.call) for call in calls] == [("one", 0), ("one", 1), ("two", 0)]
    broken = break_of(calls[1])
    assert (broken.cause, broken.layer) == ("eviction", "block")
    assert broken.lost_tokens == (calls[1].reusable or 0) - (calls[1].predicted or 0) > 0
    large = explained(model, [one, two], Settings(UNIT, kv_tokens=10 * size))
    assert large[1].broken is None
    untimed = with_call(two, 0, time_s=None)  # then one session is served after the other
    assert explained(model, [one, untimed], Settings(UNIT, kv_tokens=size))[1].broken is None


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (Sending(salt="a"), Sending(salt="b"), "salt-or-model-changed"),
        (Sending(model="m"), Sending(model="n"), "salt-or-model-changed"),
        (Sending(replica="r1"), Sending(replica="r2"), "other-replica"),
    ],
)
def test_what_shares_no_block_is_known_before_the_call(
    model: Model, before: Sending, after: Sending, expected: str
) -> None:
    session = with_call(with_call(chat(2), 0, sending=before), 1, sending=after)
    call = explained(model, [session])[1]
    assert call.predicted == 0
    assert (break_of(call).cause, break_of(call).lost_tokens) == (expected, call.reusable)


def test_a_call_that_began_before_the_other_had_ended(model: Model) -> None:
    first = Sending(duration_s=30.0)
    session = with_call(chat(2), 0, time_s=0.0, sending=first)
    session = with_call(session, 1, time_s=10.0, usage=Usage(cached_tokens=0))
    assert break_of(explained(model, [session])[1]).cause == "in-flight"
    late = with_call(session, 1, time_s=30.0, usage=Usage(cached_tokens=0))
    assert break_of(explained(model, [late])[1]).cause == "eviction"


def test_shorter_than_a_unit(model: Model) -> None:
    calls = explained(model, [chat(2)], Settings(2096))
    assert break_of(calls[1]).cause == "shorter-than-unit"
    ask: Message = {"role": "user", "content": "Another task."}
    between = explained(model, [chat(1), Session("b", (Call((SYSTEM, ask), None),))], Settings(784))
    assert (break_of(between[1]).cause, between[1].predicted) == ("shorter-than-unit", 0)


def test_the_same_call_again_computes_its_last_unit(model: Model) -> None:
    whole = len(ids_of(model, chat(1).calls[0].messages))
    call = chat(1).calls[0]
    for unit in (whole, whole - 1):
        calls = explained(model, [Session("s", (call, call))], Settings(unit))
        if unit == whole:
            broken = break_of(calls[1])
            assert (broken.cause, broken.lost_tokens, calls[1].predicted) == ("last-token", unit, 0)
        else:
            assert calls[1].broken is None


def test_a_draft_model_drops_a_unit(model: Model) -> None:
    calls = explained(model, [chat(2)], Settings(UNIT, draft=True))
    assert (break_of(calls[1]).cause, break_of(calls[1]).lost_tokens) == ("draft-drop", UNIT)
    attainable = explained(model, [chat(4)])
    session = chat(4)
    for number in (1, 2, 3):
        cached = (attainable[number].predicted or 0) - UNIT
        session = with_call(session, number, usage=Usage(cached_tokens=cached))
    causes = [break_of(call).cause for call in explained(model, [session])[1:]]
    assert causes == ["draft-drop"] * 3


def test_where_nothing_ever_hits_no_eviction_is_claimed(model: Model) -> None:
    session = chat(5)
    for number in range(5):
        session = with_call(session, number, usage=Usage(cached_tokens=0))
    causes = [break_of(call).cause for call in explained(model, [session])]
    assert causes == ["first-call", *["unknown"] * 4]


def test_a_log_that_never_reports_is_told_so_once(model: Model) -> None:
    session = chat(3)
    for call in explained(model, [session]):
        session = with_call(session, call.call, usage=Usage(call.num_tokens))
    causes = [call.broken and call.broken.cause for call in explained(model, [session])]
    assert causes == ["first-call", "not-reported", None]


def test_a_first_call_beside_one_that_still_runs(model: Model) -> None:
    """Two sessions with one root; the second begins before the first has ended."""
    ask: Message = {"role": "user", "content": "Another task."}
    one = replace(chat(1, name="one"), start_time_s=1000.0)
    one = with_call(one, 0, time_s=0.0, sending=Sending(duration_s=9.0))
    two = Session("two", (Call((SYSTEM, ask), None, 0.0, Usage(cached_tokens=0)),))
    beside = explained(model, [one, replace(two, start_time_s=1005.0)])[1]
    assert (break_of(beside).cause, break_of(beside).vs_session) == ("in-flight", "one")
    assert explained(model, [one, replace(two, start_time_s=1010.0)])[1].broken is None
    assert explained(model, [one, two])[1].broken is None  # its clock is another one


def test_a_root_that_somebody_rewrote_is_another_root(model: Model) -> None:
    text = str(SYSTEM["content"])
    other = with_system(chat(1, name="two"), 0, text.replace("plain", "long and winding"))
    assert break_of(explained(model, [chat(1, name="one"), other])[1]).cause == "first-call"


def test_not_reported_is_not_zero(model: Model) -> None:
    plain = explained(model, [chat(3)])
    session = with_call(chat(3), 1, usage=Usage(plain[1].num_tokens, plain[1].predicted))
    session = with_call(session, 2, usage=Usage(plain[2].num_tokens))
    calls = explained(model, [session])
    assert calls[1].broken is None
    assert (break_of(calls[2]).cause, calls[2].delivered) == ("not-reported", None)


def test_counts_of_another_tokenizer_are_not_compared_with_ours(model: Model) -> None:
    """Twice as many tokens as ours, all of the earlier prompt but its tail cached: no break."""
    session = with_call(chat(2), 0, usage=Usage(1000, 0))
    fine = with_call(session, 1, usage=Usage(1100, 984))
    assert explained(model, [fine])[1].broken is None
    lost = explained(model, [with_call(session, 1, usage=Usage(1100, 0))])[1]
    assert (break_of(lost).cause, break_of(lost).lost_tokens) == ("eviction", 992)


def test_a_providers_rules_are_named(model: Model) -> None:
    def session(seconds: float, cached: int) -> Session:
        def sending(marks: tuple[int, ...]) -> Sending:
            return Sending(provider="anthropic", model="claude-sonnet-5-5", marks=marks)

        first = with_call(
            chat(2), 0, time_s=0.0, usage=Usage(9000, 0, 10, 9000), sending=sending((1,))
        )
        return with_call(first, 1, time_s=seconds, usage=Usage(9100, cached), sending=sending((3,)))

    assert explained(model, [session(60.0, 9000)])[1].broken is None
    expired = break_of(explained(model, [session(301.0, 0)])[1])
    assert (expired.cause, expired.layer) == ("ttl-expired", "block")
    assert expired.lost_tokens == 9000 // 16 * 16
    assert break_of(explained(model, [session(60.0, 0)])[1]).cause == "unknown"


def test_lost_tokens_are_priced(model: Model) -> None:
    entry = packaged_book().entry("openai/gpt-5.4-mini")
    session = with_system(chat(2), 1, "It is 12:01 now. " + str(SYSTEM["content"]))
    broken = break_of(explained(model, [session], Settings(UNIT, prices=entry))[1])
    prices = entry.tariff.prices
    assert prices.cached_read is not None
    saved = float(prices.input - prices.cached_read)
    assert broken.dollars == pytest.approx(broken.lost_tokens * saved / 1e6)


def test_a_call_that_the_template_refuses(model: Model) -> None:
    image = {"type": "image_url", "image_url": {"url": "http://example.org/a.png"}}
    session = chat(2)
    refused: Message = {"role": "user", "content": [image]}
    session = with_call(session, 1, messages=(*session.calls[1].messages, refused))
    call = explained(model, [session])[1]
    assert call.refused is not None
    assert (call.num_tokens, call.lcp, call.reusable, call.predicted) == (None,) * 4


def test_sessions_without_calls_and_calls_without_messages(model: Model) -> None:
    assert explained(model, [Session("none", ())]) == []
    ids = tuple(range(100, 140))
    calls = tuple(
        Call((), None, sending=Sending(token_ids=each)) for each in (ids, ids[:20] + (7,) * 9)
    )
    found = explained(model, [Session("ids", calls)])
    assert (found[1].lcp, break_of(found[1]).token) == (20, 20)
    empty = Session("empty", (Call((), None), Call((), None, sending=Sending(token_ids=()))))
    assert [call.num_tokens for call in explained(model, [empty])] == [None, 0]
