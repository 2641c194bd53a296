"""What a change to the prompts costs now and saves later: closed form, accounting and words."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from why_cases import SYSTEM, TOOLS, chat, ids_of

from duramen.experiments.importers.read import read_sessions
from duramen.experiments.layouts.mistakes import PRUNED_TEXT
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.prices.book import Entry
from duramen.experiments.prices.call import Usage
from duramen.experiments.prices.money import Prices, Tariff
from duramen.experiments.prices.own_gpu import packaged_gpus
from duramen.experiments.prices.rules import CacheRules
from duramen.experiments.trajectory import Call, Message, Session
from duramen.experiments.why.what_if.bills import Bill, Engine, Payers, bills, steps
from duramen.experiments.why.what_if.moments import Begun, Weights, begun, break_even, weights_of
from duramen.experiments.why.what_if.net import Net, Tried
from duramen.experiments.why.what_if.plan import Plan
from duramen.experiments.why.what_if.rewritten import CUT_TEXT, Rewriter
from duramen.experiments.why.what_if.totals import totals
from duramen.experiments.why.what_if.verdict import in_money, in_tokens, verdicts
from duramen.experiments.why.what_if.what_if import Considered, chosen, in_step, what_if
from duramen.layout.blocks import common_prefix, reusable_tokens
from duramen.layout.errors import LayoutError

UNIT = 16
DROP, CUT = Plan.parse("drop-tool-outputs:k=1"), Plan.parse("truncate:tokens=20")
CLOCK, SORT = Plan.parse("move-clock"), Plan.parse("sort-tools")


def priced(name: str, kind: Any = "automatic", **rules: Any) -> Entry:
    """Of no real model: 4 USD per million input tokens, 0.20 read from the cache."""
    prices = Prices(Decimal(4), Decimal(20), Decimal("0.20"), write_1h=Decimal(8))
    return Entry(name, "2026-12-01", Tariff(name, prices), CacheRules(kind, ttl_s=3600, **rules))


AUTOMATIC = priced("us/automatic")
MARKED = priced("us/marked", "breakpoints", write="write_1h")
PAYERS = Payers([AUTOMATIC, MARKED], packaged_gpus(), UNIT)


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return load_model(smollm2, None)


def output(number: int, num_lines: int) -> str:
    return "".join(
        f"{number}.{line}: the lamp of pier {line * 7 % 11}\n" for line in range(num_lines)
    )


def agent(sizes: Sequence[int], *, gap_s: float = 10.0, **more: Any) -> Session:
    """A call, and one more behind each tool output of so many lines."""
    messages: list[Message] = [SYSTEM, {"role": "user", "content": "Read all the files."}]
    calls = []
    for number, size in enumerate([*sizes, 0]):
        used = {"name": "read", "arguments": f'{{"path": "{number}.txt"}}'}
        reply: Message = {
            "role": "assistant",
            "content": f"I read file {number}.",
            "tool_calls": [{"id": f"c{number}", "type": "function", "function": used}],
        }
        calls.append(Call(tuple(messages), reply, time_s=gap_s * number))
        result: Message = {
            "role": "tool",
            "tool_call_id": f"c{number}",
            "content": output(number, size),
        }
        messages += [reply, result]
    return Session("agent", tuple(calls), tools=TOOLS, start_time_s=0.0, **more)


def clocked(num_calls: int) -> Session:
    """The system message tells the time of each call."""
    session = chat(num_calls, start_time_s=0.0, tools=TOOLS)
    calls = []
    for number, call in enumerate(session.calls):
        text = f"Current time: 2026-12-01 10:00:{number:02}.\n{SYSTEM['content']}"
        messages = ({"role": "system", "content": text}, *call.messages[1:])
        calls.append(replace(call, messages=messages, time_s=10.0 * number))
    return replace(session, calls=tuple(calls))


def shuffled(num_calls: int) -> Session:
    session = chat(num_calls, start_time_s=0.0, tools=TOOLS)
    calls = [
        replace(call, tools=(*TOOLS[i % 3 :], *TOOLS[: i % 3]), time_s=10.0 * i)
        for i, call in enumerate(session.calls)
    ]
    return replace(session, calls=tuple(calls))


SESSIONS = {
    "drop": (DROP, agent([20, 30, 4, 25, 6, 12])),
    "cut": (CUT, agent([20, 30, 4, 25, 6, 12])),
    "clock": (CLOCK, clocked(6)),
    "sort": (SORT, shuffled(6)),
}


def served(session: Session, model: Model) -> list[Bill]:
    return list(bills(steps(session, model), PAYERS))


def moments_of(plan: Plan, session: Session, model: Model) -> list[Begun]:
    rewriter = Rewriter.of(plan, model.tokenizer)
    pairs = in_step(steps(session, model), steps(rewriter.fresh(session), model))
    always = {bill.call: bill for bill in served(rewriter.always(session), model)}
    base = served(session, model)
    return list(begun(plan.rewrites_outputs, pairs, Engine(PAYERS), base, always))


def considered_of(
    plan: Plan, session: Session, model: Model, payers: Payers = PAYERS
) -> Considered:
    [found] = what_if(plan, [session], model, payers)
    return found


@pytest.mark.parametrize("name", SESSIONS)
def test_the_closed_form_against_serving_each_call_whole(name: str, model: Model) -> None:
    plan, session = SESSIONS[name]
    rewriter = Rewriter.of(plan, model.tokenizer)
    base = served(session, model)
    moments = moments_of(plan, session, model)
    first = {"drop": 2, "cut": 2, "clock": 0, "sort": 0}[name]
    assert [moment.call for moment in moments][:1] == [first]
    assert len(moments) >= 4
    for moment in moments:
        whole = Tried(moment.call, base, served(rewriter.begun_at(session, moment.call), model))
        assert moment.computed == whole.computed_now
        assert moment.dropped == whole.dropped_now
        assert moment.num_later == whole.num_later
        if plan.rewrites_outputs:
            assert moment.later_read == whole.shorter_later
            assert abs(whole.fewer_later) <= UNIT * whole.num_later  # the rest of a unit
        elif plan is SORT:
            assert moment.later_computed == whole.fewer_later
            assert moment.later_computed + moment.later_read == whole.shorter_later


def slow(session: Session, model: Model) -> Iterator[tuple[int, int]]:
    """(tokens, reusable tokens) of each call: everything rendered whole and compared with all."""
    sent: list[list[int]] = []
    for index, call in enumerate(session.calls):
        ids = ids_of(model, call.messages, session.tools_of(call))
        lcp = max((common_prefix(ids, other) for other in sent), default=0)
        yield len(ids), reusable_tokens(lcp, len(ids), UNIT)
        reply = [] if index + 1 == len(session.calls) else _up_to_reply(session, index, model)
        sent += [ids, reply]


def _up_to_reply(session: Session, index: int, model: Model) -> list[int]:
    """The conversation with the reply, without its last token and the line behind it."""
    call = session.calls[index]
    assert call.reply is not None
    messages = [*call.messages, call.reply, {"role": "user", "content": ""}]
    whole = ids_of(model, messages, session.tools_of(call))
    end = max(i for i, token in enumerate(whole) if token in model.tokenizer.eos_ids)
    ends = [i for i, token in enumerate(whole[:end]) if token in model.tokenizer.eos_ids]
    return whole[: ends[-1]]


@pytest.mark.parametrize("name", SESSIONS)
def test_what_the_engine_reuses_against_comparing_all(name: str, model: Model) -> None:
    plan, session = SESSIONS[name]
    rewriter = Rewriter.of(plan, model.tokenizer)
    for changed in (session, rewriter.always(session), rewriter.begun_at(session, 3)):
        told = [(bill.num_tokens, bill.cached) for bill in served(changed, model)]
        assert told == list(slow(changed, model))


def test_dollars_are_those_of_the_tokens(model: Model) -> None:
    """An automatic cache of the engine's unit reads what stood in an earlier prompt."""
    session = SESSIONS["drop"][1]
    for bill in served(session, model):
        least = Decimal(4) * bill.computed + Decimal("0.20") * bill.cached
        device = packaged_gpus()["l4/llama-3.1-8b-bf16@2026-11-09"]
        assert bill.seconds["l4/llama-3.1-8b-bf16@2026-11-09"] > device.prefill_s(
            bill.computed, bill.cached
        )
        output_usd = bill.usd["us/automatic"] - least / 10**6
        assert 0 < output_usd < Decimal("0.002")  # replies: not cached by providers, billed at 20


def test_219_thousand_cached_tokens_dropped() -> None:
    """CASES 10: the prompt got smaller and the bill went from $0.24 to $1.83."""
    before = Usage(cached_read=226_000, write_1h=24_350)
    after = Usage(cached_read=7_000, write_1h=228_575)
    assert MARKED.cost(before) == Decimal("0.24")
    assert MARKED.cost(after) == Decimal("1.83")
    assert after.prompt < before.prompt
    moment = Begun(
        call=12,
        computed=after.written - before.written,
        dropped=before.cached_read - after.cached_read,
        shorter=before.prompt - after.prompt,
        num_later=9,
        later_computed=0,
        later_read=9 * (before.prompt - after.prompt),
    )
    assert moment.dropped == 219_000
    weights = weights_of(MARKED)
    assert moment.now(weights) == Decimal("1.59") * 10**6
    assert moment.later(weights) == 9 * 14_775 * Decimal("0.20")
    assert moment.break_even(weights) == 539  # 1.59 / 0.002955 is 538.07
    assert moment.net(weights) < 0
    later = [Bill(13 + i, 250_350, 250_000, {"p": Decimal(1)}, {}) for i in range(9)]
    shorter = [replace(b, num_tokens=235_575, usd={"p": Decimal("0.997045")}) for b in later]
    tried = Tried(
        12,
        [Bill(12, before.prompt, 226_000, {"p": MARKED.cost(before)}, {}), *later],
        [Bill(12, after.prompt, 7_000, {"p": MARKED.cost(after)}, {}), *shorter],
    )
    assert in_money(tried.net("p")) == (
        "it costs $1.590000 now and saves $0.002955 a call: "
        "it pays after 539 calls, this session had 9 more"
    )


def test_the_verdict_in_words() -> None:
    def tried(now: int, per_call: int, num_later: int) -> Tried:
        without = [Bill(12 + i, 300_000, 280_000, {}, {}) for i in range(num_later + 1)]
        begun_with = Bill(12, 300_000 - per_call, 280_000 - per_call - now, {}, {})
        rest = [replace(b, num_tokens=300_000 - per_call) for b in without[1:]]
        return Tried(12, without, [begun_with, *rest])

    assert in_tokens(DROP, tried(219_000, 3_100, 9)) == (
        "token for token, pruning at call 12 costs 219,000 tokens now and saves 3,100 a call: "
        "it pays after 71 calls, this session had 9 more (222,100 cached tokens are dropped)"
    )
    assert "no call came after it" in in_tokens(DROP, tried(10, 3, 0))
    assert "pays after 1 call," in in_tokens(DROP, tried(3, 3, 2))
    assert "costs nothing now and saves 3 a call: it pays at once" in in_tokens(
        DROP, tried(0, 3, 2)
    )
    assert "and saves nothing later: leave it" in in_tokens(DROP, tried(5, 0, 2))
    assert "costs 5 tokens now and costs 2 a call later: leave it" in in_tokens(
        DROP, tried(5, -2, 2)
    )


@pytest.mark.parametrize(
    ("now", "later", "num_later", "expected"),
    [
        (219_000, 9 * 3_100, 9, 71),
        (10, 10, 1, 1),
        (11, 10, 1, 2),
        (0, 0, 0, 0),
        (-5, -5, 3, 0),
        (5, 0, 3, None),
        (5, -1, 3, None),
        (5, 0, 0, None),
        (Decimal("0.3"), Decimal("0.1"), 1, 3),
    ],
)
def test_break_even(now: Any, later: Any, num_later: int, expected: int | None) -> None:
    assert break_even(now, later, num_later) == expected


def test_a_cold_cache_makes_pruning_free(model: Model) -> None:
    """After a pause longer than entries live everything is computed anyway."""
    session = agent([20, 30, 4, 25, 6, 12])
    calls = [
        replace(call, time_s=(call.time_s or 0.0) + 4000.0 * (i >= 5))
        for i, call in enumerate(session.calls)
    ]
    paused = replace(session, calls=tuple(calls))
    payers = Payers([AUTOMATIC], {}, UNIT)
    warm = considered_of(DROP, session, model, payers).best["us/automatic"]
    cold = considered_of(DROP, paused, model, payers).best["us/automatic"]
    assert warm.now > 0
    assert cold.call == 5
    assert cold.now < 0
    assert cold.break_even_calls == 0
    assert Begun(5, 10, 12, 2, 0, 0, 0, gap_s=4000.0).now(weights_of(AUTOMATIC)) == -8


def test_the_best_call_is_the_best_of_all(model: Model) -> None:
    """Where the closed form chooses, no other call would have gained a payer more."""
    session = agent([20, 30, 4, 25, 40, 3])
    found = considered_of(DROP, session, model)
    rewriter = Rewriter.of(DROP, model.tokenizer)
    base = served(session, model)
    every = [
        Tried(moment.call, base, served(rewriter.begun_at(session, moment.call), model))
        for moment in found.moments
    ]
    for name in ("us/automatic", "l4/llama-3.1-8b-bf16@2026-11-09"):
        best = max((tried.net(name) for tried in every), key=lambda net: net.net)
        assert found.best[name].call == best.call
        assert found.best[name] == best


def test_net_adds_up(model: Model) -> None:
    """Now and later are all of the difference between the two bills."""
    plan, session = SESSIONS["drop"]
    found = considered_of(plan, session, model)
    assert found.tried is not None
    for name, net in found.best.items():
        with_it = found.tried[net.call].with_it
        whole = sum(bill.usd[name] for bill in found.bills)
        saved = whole - sum(bill.usd[name] for bill in with_it)
        if name in PAYERS.devices:
            assert net.now_s is not None
            assert float(net.net) == pytest.approx(float(saved), rel=1e-12)
            assert PAYERS.devices[name].cost(abs(net.now_s)) == pytest.approx(abs(net.now))
        else:
            assert net.net == saved
            assert net.now_s is None
    total = totals([found, found])[MARKED.name]
    assert total.net == 2 * found.best[MARKED.name].net
    assert total.num_later == 2 * found.best[MARKED.name].num_later
    assert total.num_gaining in (0, 2)


def test_pruning_once_breaks_once_and_as_a_rule_at_every_call(model: Model) -> None:
    session = agent([30, 30, 30, 30, 30])
    rewriter = Rewriter.of(DROP, model.tokenizer)
    once, rule = rewriter.begun_at(session, 3), rewriter.always(session)
    dropped = [
        [m["content"] == PRUNED_TEXT for m in call.messages if m["role"] == "tool"]
        for call in once.calls
    ]
    assert dropped[:3] == [[], [False], [False, False]]
    assert dropped[3:] == [
        [True, True, False],
        [True, True, False, False],
        [True, True, False, False, False],
    ]
    assert [breaks(once, model), breaks(rule, model)] == [[3], [2, 3, 4, 5]]
    base = served(session, model)
    assert worse(Tried(-1, base, served(rule, model))) == 4
    assert session == agent([30, 30, 30, 30, 30])  # nothing was changed in place


def worse(tried: Tried) -> int:
    return tried.total(UNIT)["num_calls_that_compute_more"]


def breaks(session: Session, model: Model) -> list[int]:
    """Calls whose prompt does not begin with the one before."""
    sent = [ids_of(model, call.messages, session.tools_of(call)) for call in session.calls]
    ends = [len(ids) - 3 for ids in sent]  # without what opens the reply
    pairs = enumerate(pairwise(sent), 1)
    return [i for i, (a, b) in pairs if common_prefix(a, b) < ends[i - 1]]


def test_outputs_cut_when_they_appear_break_nothing(model: Model) -> None:
    session = agent([30, 2, 30, 30])
    rewriter = Rewriter.of(CUT, model.tokenizer)
    assert breaks(rewriter.always(session), model) == []
    once = rewriter.begun_at(session, 3)
    assert breaks(once, model) == [3]
    contents = [m["content"] for m in once.calls[-1].messages if m["role"] == "tool"]
    assert [text.endswith(CUT_TEXT) for text in contents] == [True, False, False, False]
    kept = contents[0].removesuffix(CUT_TEXT)
    assert output(0, 30).startswith(kept)
    assert len(model.tokenizer.encode_text(kept)) == 20
    found = considered_of(CUT, session, model)
    assert found.always is not None
    assert worse(found.always) == 0
    assert found.always.total(UNIT)["fewer_computed_tokens"] > 0


@pytest.mark.parametrize(
    "content", ["灯台の灯りは青い。" * 40, "🏮" * 90, [{"type": "text", "text": "a b " * 99}]]
)
def test_cutting_leaves_whole_characters(content: Any, model: Model) -> None:
    session = agent([3, 3])
    messages = [*session.calls[2].messages]
    messages[3] = {**messages[3], "content": content}
    changed = replace(session, calls=(replace(session.calls[2], messages=tuple(messages)),))
    [call] = Rewriter.of(CUT, model.tokenizer).always(changed).calls
    new = call.messages[3]["content"]
    text = new if isinstance(new, str) else new[0]["text"]
    old = content if isinstance(content, str) else content[0]["text"]
    assert old.startswith(text.removesuffix(CUT_TEXT))
    assert len(model.tokenizer.encode_text(text)) < len(model.tokenizer.encode_text(old))
    assert type(new) is type(content)


def test_a_clock_that_moves_to_the_end(model: Model) -> None:
    session = clocked(5)
    assert breaks(session, model) == [1, 2, 3, 4]
    rewriter = Rewriter.of(CLOCK, model.tokenizer)
    moved = rewriter.always(session)
    assert breaks(moved, model) == []
    roots = {call.messages[0]["content"] for call in moved.calls}
    assert len(roots) == 1
    assert "10:00" not in roots.pop()
    assert "10:00:03" in moved.calls[3].messages[-1]["content"]
    assert moved.calls[4].messages[-3] is moved.calls[3].messages[-1]
    late = rewriter.begun_at(session, 2)
    assert breaks(late, model) == [1, 2]
    found = considered_of(CLOCK, session, model)
    assert found.best["us/automatic"].call == 0
    assert found.best["us/automatic"].net > 0
    assert "it pays after 1 call, this session had 4 more" in next(verdicts(found))


def test_sorted_tools(model: Model) -> None:
    session = shuffled(4)
    rewriter = Rewriter.of(SORT, model.tokenizer)
    sent = rewriter.always(session)
    names = [[tool["function"]["name"] for tool in sent.tools_of(call)] for call in sent.calls]
    assert names == [["list", "read", "write"]] * 4
    assert breaks(session, model) == [1, 2, 3]
    assert breaks(sent, model) == []
    assert breaks(rewriter.begun_at(session, 2), model) == [1, 2]
    assert considered_of(SORT, session, model).best["us/automatic"].net > 0


@pytest.mark.parametrize("plan", [DROP, CUT, CLOCK, SORT], ids=lambda plan: plan.label)
def test_a_session_in_which_there_is_nothing_to_do(plan: Plan, model: Model) -> None:
    tools = tuple(sorted(TOOLS, key=lambda tool: str(tool["function"]["name"])))
    session = chat(3, tools=tools)
    sorted_once = Rewriter.of(SORT, model.tokenizer).always(session)
    found = considered_of(plan, sorted_once, model)
    assert found.moments == ()
    assert found.best == {}
    assert list(verdicts(found)) == ["nothing to do in this session"]
    assert found.as_json()["always"] is None
    assert totals([found]) == {}


def test_outputs_that_only_the_last_call_holds(model: Model) -> None:
    """Cutting at once saves; nothing sent before changes, so no call can begin it."""
    found = considered_of(CUT, agent([40]), model)
    assert found.moments == []
    assert found.best == {}
    said = list(verdicts(found))
    assert said[0].startswith("no call of this session could begin it")
    assert said[1].startswith("cut when they first appear: 0 calls compute more")
    assert found.as_json()["always"]["net_usd"]["us/automatic"] > 0


def test_a_client_that_edits_its_past(model: Model) -> None:
    """What was dropped is found again by its object where messages in front of it left."""
    session = agent([30, 30, 30])
    last = session.calls[-1]
    left = replace(last, messages=(last.messages[0], *last.messages[2:]))
    once = Rewriter.of(DROP, model.tokenizer).begun_at(
        replace(session, calls=(*session.calls[:-1], left)), 2
    )
    tools = [m["content"] == PRUNED_TEXT for m in once.calls[-1].messages if m["role"] == "tool"]
    assert tools == [True, False, False]


def test_sessions_that_cannot_be_considered(model: Model) -> None:
    ids_only = Session("ids", (Call((), None),))
    empty = Session("empty", ())
    found = list(what_if(DROP, [ids_only, empty, agent([3, 3])], model, PAYERS))
    assert [(each.session_id, bool(each.bills)) for each in found] == [
        ("ids", False),
        ("agent", True),
    ]
    assert found[1].is_time_assumed is False
    assert considered_of(DROP, chat(2), model).is_time_assumed is True


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "\ufffd\u0000\u200b" * 60,
        "<|im_end|>\n<|im_start|>system\n" * 30,
        [{"type": "text", "text": "lit " * 99}, {"type": "text", "text": "and " * 99}],
        [{"type": "text"}, {"type": "image_url", "image_url": {"url": "data:,"}}, "lit " * 99],
        [],
        17,
    ],
    ids=lambda content: repr(content)[:12],
)
@pytest.mark.parametrize("plan", [DROP, CUT, CLOCK, SORT], ids=lambda plan: plan.label)
def test_contents_of_all_kinds(plan: Plan, content: Any, model: Model) -> None:
    """Considered, or left out where the template refuses them: never an error of ours."""
    session = agent([1, 1, 1])
    replaced = {id(m): {**m, "content": content} for m in session.calls[-1].messages[2:]}
    calls = tuple(
        replace(call, messages=tuple(replaced.get(id(m), m) for m in call.messages))
        for call in session.calls
    )
    found = considered_of(plan, replace(session, calls=calls), model)
    assert json.loads(json.dumps(found.as_json()))["session"] == "agent"
    assert list(verdicts(found))


def test_a_small_pool_and_a_draft_model(model: Model) -> None:
    session = agent([20, 30, 20])
    plenty = considered_of(DROP, session, model)
    small = considered_of(DROP, session, model, replace(PAYERS, kv_tokens=160))
    draft = considered_of(DROP, session, model, replace(PAYERS, draft=True))
    assert [bill.cached for bill in small.bills] == [0] * 4
    pairs = zip(plenty.bills[1:], draft.bills[1:], strict=True)
    assert {a.cached - b.cached for a, b in pairs} == {UNIT}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    first=st.integers(0, 6),
    plan=st.sampled_from([DROP, CUT, Plan.parse("drop-tool-outputs:k=3"), CLOCK, SORT]),
)
def test_only_what_the_plan_names_is_rewritten(
    sizes: list[int], first: int, plan: Plan, model: Model
) -> None:
    session = agent(sizes)
    first = min(first, len(session.calls) - 1)
    changed = Rewriter.of(plan, model.tokenizer).begun_at(session, first)
    assert changed.calls[:first] == session.calls[:first]
    for old, new in zip(session.calls, changed.calls, strict=True):
        assert [m["role"] for m in new.messages] == [m["role"] for m in old.messages]
        assert (new.reply, new.time_s) == (old.reply, old.time_s)
        for a, b in zip(old.messages, new.messages, strict=True):
            assert a == b or (plan.rewrites_outputs and a["role"] == "tool")
    for old, new in pairwise(changed.calls[first:]):
        assert new.messages[: len(old.messages)] == old.messages


@pytest.mark.parametrize(
    "text",
    [
        "",
        "drop",
        "drop-tool-outputs",
        "drop-tool-outputs:k=0",
        "drop-tool-outputs:k=-1",
        "drop-tool-outputs:k=",
        "drop-tool-outputs:k=1,k=2",
        "drop-tool-outputs:tokens=3",
        "drop-tool-outputs:k=99999999999999999999",
        "drop-tool-outputs:k=\u00b2",
        "truncate:tokens=0",
        "truncate:tokens=nan",
        "move-clock:k=1",
        "sort-tools:",
    ],
)
def test_what_is_no_plan(text: str) -> None:
    with pytest.raises(LayoutError, match="what-if"):
        Plan.parse(text)


def test_plans() -> None:
    for label in ("drop-tool-outputs:k=3", "truncate:tokens=500", "move-clock", "sort-tools"):
        assert Plan.parse(label).label == label
    with pytest.raises(LayoutError, match="takes no parameter"):
        Plan(CLOCK.name, 3)
    with pytest.raises(LayoutError, match="needs k=N"):
        Plan(DROP.name)


def test_weights() -> None:
    assert weights_of(AUTOMATIC) == Weights(Decimal(4), Decimal("0.20"), 3600)
    assert weights_of(MARKED) == Weights(Decimal(8), Decimal("0.20"), 3600)
    none = Entry("us/none", "2026-12-01", AUTOMATIC.tariff, CacheRules("none"))
    assert weights_of(none) == Weights(Decimal(4), Decimal(4))


def test_calls_are_chosen_for_each_payer() -> None:
    """Where the best one leaves a prompt that is no longer cached, the best of the others, too."""
    early = Begun(1, 10, 110, 100, 9, 0, 900, num_tokens=900)
    late = Begun(5, 10, 60, 50, 5, 0, 250, num_tokens=1500)
    last = Begun(9, 0, 500, 500, 0, 0, 0, num_tokens=1100)
    cheap, dear = Weights(Decimal(4), Decimal(4)), Weights(Decimal(10), Decimal("0.1"))
    assert [moment.net(cheap) for moment in (early, late, last)] == [4000, 1200, 2000]
    assert [moment.net(dear) for moment in (early, late, last)] == [1, -69, 50]
    assert chosen([early, late, last], [cheap, dear]) == [1, 9]
    assert chosen([early, late], [cheap]) == [1]
    assert chosen([early, late], [cheap._replace(min_tokens=1024)]) == [1, 5]
    assert chosen([early, late], [cheap._replace(min_tokens=9999)]) == [1]
    assert chosen([early, late], [dear, cheap]) == [1]
    assert chosen([early, early], [dear]) == [1]
    assert chosen([], [dear]) == []


def test_a_net_without_later_calls() -> None:
    net = Net(3, Decimal(1), Decimal(0), 0)
    assert net.per_call is None
    assert net.break_even_calls is None
    assert net.as_json()["saved_usd_per_call"] is None


def test_real_sessions_in_closed_form(shared_data: Path, model: Model) -> None:
    """Where calls only append, every call's closed form is what serving it whole gives."""
    files = sorted((shared_data / "swe-agent").glob("ctf_*.traj"))
    num_moments = 0
    for session in read_sessions(files[:1], None):
        base = served(session, model)
        rewriter = Rewriter.of(DROP, model.tokenizer)
        for moment in moments_of(DROP, session, model)[::4]:
            whole = Tried(moment.call, base, served(rewriter.begun_at(session, moment.call), model))
            assert (moment.computed, moment.dropped) == (whole.computed_now, whole.dropped_now)
            assert moment.later_read == whole.shorter_later
            num_moments += 1
    assert num_moments >= 2
