"""What a change to the prompts costs now and saves later: closed form against serving it whole."""

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from what_if_cases import (
    AUTOMATIC,
    CLOCK,
    CUT,
    DROP,
    MARKED,
    PAYERS,
    SESSIONS,
    SORT,
    UNIT,
    agent,
    considered_of,
    moments_of,
    served,
)
from why_cases import TOOLS, chat, ids_of

from duramen.experiments.importers.read import read_sessions
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.prices.own_gpu import packaged_gpus
from duramen.experiments.trajectory import Call, Session
from duramen.experiments.why.what_if.bills import Payers
from duramen.experiments.why.what_if.moments import Begun, weights_of
from duramen.experiments.why.what_if.net import Tried
from duramen.experiments.why.what_if.plan import Plan
from duramen.experiments.why.what_if.rewritten import Rewriter
from duramen.experiments.why.what_if.totals import totals
from duramen.experiments.why.what_if.verdict import verdicts
from duramen.experiments.why.what_if.what_if import what_if
from duramen.layout.blocks import common_prefix, reusable_tokens


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return load_model(smollm2, None)


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
