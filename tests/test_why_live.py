"""Breaks on the real engine: what a break is said to lose is what the engine delivers less than to
a call that goes on with all that was sent and sampled."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from why_cases import TOOLS, model_of
from why_live_cases import (
    HISTORY,
    NOON_S,
    UNIT,
    Asked,
    Change,
    cached,
    complete,
    edited,
    hoisted,
    kept,
    key_order,
    merged,
    only_thought,
    with_content,
    with_options,
)

from duramen.experiments.injection import templates
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.trajectory import Call, Message, Sending, Session, Usage
from duramen.experiments.why.explain import Settings, explain
from duramen.serving.vllm.engine import VllmEngine

pytestmark = pytest.mark.live

MORE: Message = {"role": "user", "content": "Say it in one line."}
LATE: Message = {"role": "system", "content": "Answer in one line."}
PARTS = [{"type": "text", "text": text} for text in ("What did the keeper ", "write down?")]
DAY_S = 86_400.0


class Kind(NamedTuple):
    """`change`: of the next request. `source`: of the template, None: the model's. `read`: the
    reply, by a parser. `cause` None: nothing is lost."""

    cause: str | None
    change: Change
    source: str | None = None
    layer: str = "request"
    first: Asked = Asked()
    read: Callable[[Message], Message] = dict
    name: str = ""


KINDS = [
    Kind(None, kept, name="appended"),
    Kind("clock", edited(0, "10:00:00", "10:00:07")),
    Kind("counter", edited(0, "Request 17", "Request 18")),
    Kind("tool-order", lambda asked: replace(asked, tools=asked.tools[::-1])),
    Kind("tool-set-changed", lambda asked: replace(asked, tools=asked.tools[:-1])),
    Kind("json-key-order", key_order),
    Kind("history-edited", edited(3, "line 7: the keeper counts the ships", "line 7: nobody came")),
    Kind("whitespace", edited(3, "line 5: the keeper", "line 5:  the keeper")),
    Kind("history-pruned", with_content(3, "[old tool output removed]")),
    Kind("thinking-stripped", kept, templates.strips_thinking("<think>\n", "\n</think>\n"), "text"),
    Kind(
        "thinking-stripped",
        kept,
        templates.empty_thinking("<think>\\n"),
        "text",
        read=only_thought,
        name="thinking of the reply",
    ),
    Kind("empty-thinking", kept, templates.empty_thinking("<think>\n\n</think>\n\n"), "text"),
    Kind(
        "template-option",
        with_options(reasoning_effort="high"),
        templates.with_option("reasoning_effort", "Effort: ", "low"),
        first=Asked(options={"reasoning_effort": "low"}),
    ),
    Kind(
        "template-option",
        with_options(chat_template_kwargs={"terse": True}),
        templates.with_switch("terse", "Be short.", "Take your time."),
        name="switch",
    ),
    Kind(
        "clock",
        lambda asked: replace(asked, time_s=NOON_S + DAY_S),
        templates.with_date("Today is ", "%d %b %Y"),
        "text",
        name="date of the template",
    ),
    Kind(
        "content-parts-vs-string",
        with_content(1, PARTS),
        templates.with_option("tone", "Tone: ", "calm"),
    ),
    Kind(None, with_content(1, PARTS), name="parts that are joined"),
    Kind("role-merge", merged, first=Asked((*HISTORY[:2], MORE, *HISTORY[2:]))),
    Kind("system-hoist", hoisted, first=Asked((*HISTORY, LATE))),
    Kind(
        "system-hoist",
        lambda asked: asked.going_on(LATE),
        templates.hoists("\\n\\n"),
        "text",
        name="hoist of the template",
    ),
    Kind("input-before-tools", kept, templates.tools_in_last_user("Tools:"), "text"),
]


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name or str(kind.cause) for kind in KINDS])
async def test_a_break_loses_what_the_engine_delivers_less(
    live_engine: VllmEngine, smollm2: Path, notice: Callable[[str], None], kind: Kind
) -> None:
    model = load_model(smollm2, None)
    if kind.source is not None:
        model = model_of(model.tokenizer, kind.source)
    first = kind.first.ids(model)
    done = await complete(live_engine, first)
    done = replace(done, message=kind.read(done.message))
    asked = kind.first.going_on(done.message, {"role": "user", "content": "And who read it?"})
    asked = kind.change(asked)
    came = await complete(live_engine, asked.ids(model))
    twin = await complete(live_engine, [*first, *done.token_ids, *first[-4:]])
    lost = cached(twin) - cached(came)

    calls = kind.first.call(done), asked.call(came)
    session = Session("s", calls, start_time_s=NOON_S)
    found = list(explain([session], model, Settings(UNIT)))[1]
    assert found.predicted == found.reusable == found.delivered
    notice(f"why, live: {kind.name or kind.cause} lost {lost} tokens of {cached(twin)}, as said")
    if kind.cause is None:
        assert (found.broken, lost) == (None, 0)
    else:
        assert found.broken is not None
        assert (found.broken.cause, found.broken.layer) == (kind.cause, kind.layer)
        assert found.broken.lost_tokens == lost > 0


async def test_what_changes_back_is_lost_again(
    live_engine: VllmEngine, smollm2: Path, notice: Callable[[str], None]
) -> None:
    """Tools in one order, another, and the first again: the third call finds the first, and not
    what the second added."""
    model = load_model(smollm2, None)
    follow: Message = {"role": "user", "content": "And who read it?"}
    asked = Asked()
    done = [await complete(live_engine, asked.ids(model))]
    calls = [asked.call(done[-1])]
    for _ in range(2):
        asked = asked.going_on(done[-1].message, follow)
        asked = replace(asked, tools=asked.tools[::-1])
        done.append(await complete(live_engine, asked.ids(model)))
        calls.append(asked.call(done[-1]))
    second = replace(asked, messages=asked.messages[:-2], tools=TOOLS[::-1]).ids(model)
    twin = await complete(live_engine, [*second, *done[1].token_ids, *second[-4:]])
    session = Session("s", tuple(calls), start_time_s=NOON_S)
    found = list(explain([session], model, Settings(UNIT)))[2]
    assert found.predicted == found.reusable == found.delivered
    assert found.broken is not None
    assert (found.broken.cause, found.broken.vs_call) == ("tool-order", 1)
    assert found.broken.lost_tokens == cached(twin) - cached(done[2]) > 0
    notice(f"why, live: tools that change back lost {found.broken.lost_tokens}, as said")


def respelt(model: Model, ids: list[int]) -> list[int]:
    """Eight tokens near the end, letter by letter."""
    place, tokenizer = len(ids) - 60, model.tokenizer
    text = tokenizer.decode(ids[place : place + 8])
    letters = [token_id for letter in text for token_id in tokenizer.encode_text(letter)]
    spelled = [*ids[:place], *letters, *ids[place + 8 :]]
    assert tokenizer.decode(spelled) == tokenizer.decode(ids)
    return spelled


def bos_twice(model: Model, ids: list[int]) -> list[int]:
    bos = model.tokenizer.control["<|im_start|>"].id
    assert ids[0] == bos
    return [bos, *ids]


@pytest.mark.parametrize(
    ("cause", "change"), [("retokenisation", respelt), ("bos-twice", bos_twice)]
)
@pytest.mark.parametrize("is_first", [True, False])
async def test_other_ids_of_the_same_text(
    live_engine: VllmEngine,
    smollm2: Path,
    notice: Callable[[str], None],
    cause: str,
    change: Callable[[Model, list[int]], list[int]],
    is_first: bool,
) -> None:
    model = load_model(smollm2, None)
    ids = Asked().ids(model)
    before, after = (change(model, ids), ids) if is_first else (ids, change(model, ids))
    await complete(live_engine, before, 1)
    came = await complete(live_engine, after, 1)
    twin = await complete(live_engine, [*before, *ids[-4:]], 1)
    calls = [
        Call(
            HISTORY,
            None,
            usage=Usage(cached_tokens=cached_tokens),
            sending=Sending(token_ids=tuple(sent)),
        )
        for sent, cached_tokens in ((before, 0), (after, came.cached_tokens))
    ]
    found = list(explain([Session("s", tuple(calls), TOOLS)], model, Settings(UNIT)))[1]
    assert found.broken is not None
    assert (found.broken.cause, found.broken.layer) == (cause, "token")
    assert found.predicted == found.reusable == found.delivered
    assert found.broken.lost_tokens == cached(twin) - cached(came) > 0
    notice(f"why, live: {cause} lost {found.broken.lost_tokens} tokens, as said")
