"""A plan rewrites what it names, in whole characters, and breaks no more prefixes than it must."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from what_if_cases import (
    CLOCK,
    CUT,
    DROP,
    SORT,
    UNIT,
    agent,
    breaks,
    clocked,
    considered_of,
    output,
    served,
    shuffled,
    worse,
)

from duramen.experiments.layouts.mistakes import PRUNED_TEXT
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.why.what_if.net import Tried
from duramen.experiments.why.what_if.plan import Plan
from duramen.experiments.why.what_if.rewritten import CUT_TEXT, Rewriter
from duramen.experiments.why.what_if.verdict import verdicts


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return load_model(smollm2, None)


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
