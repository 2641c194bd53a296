"""What the layouts send: the client's own spelling, its own clock, and what stable keeps."""

from dataclasses import replace

import pytest

from duramen.experiments.history import Turn
from duramen.experiments.layouts.catalogue import Layout, LayoutName
from duramen.experiments.layouts.conversation import begin
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.trajectory import Call, Session
from duramen.layout.errors import TrajectoryError
from duramen.layout.template import ChatTemplate

USER = {"role": "user", "content": "Hi"}
READ = {"type": "function", "function": {"name": "read", "parameters": {"a": 1, "b": 2}}}
DAER = {"type": "function", "function": {"name": "read", "parameters": {"b": 2, "a": 1}}}
DATED = (
    "<|im_start|>system\n{{ strftime_now('%Y-%m-%d') }}<|im_end|>\n{% for m in messages %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MIDNIGHT_S = 1_767_225_600.0


@pytest.fixture(scope="module")
def model(smollm2) -> Model:
    return load_model(smollm2, None)


def prompts(model: Model, name: LayoutName, session: Session, turns: list[Turn]):
    conversation = begin(Layout(name), model, session)
    return [
        conversation.prompt(turn, call, index)
        for index, (turn, call) in enumerate(zip(turns, session.calls, strict=True))
    ]


def test_tools_in_another_order_break_recorded_and_not_stable(model):
    session = Session("s", (Call((USER,), None), Call((USER, USER), None)))
    turns = [
        Turn([USER], [READ]),
        Turn([USER, USER], [DAER], continues=True, reserialised=True),
    ]
    first, second = prompts(model, LayoutName.RECORDED, session, turns)
    assert second.token_ids[: len(first.token_ids)] != first.token_ids
    first, second = prompts(model, LayoutName.STABLE, session, turns)
    assert second.token_ids[: len(first.token_ids)] == first.token_ids
    assert "anew" in second.notes[0]


def test_the_templates_own_clock_goes_on_in_recorded_and_stands_still_in_stable(model):
    dated = replace(model, template=ChatTemplate(DATED))
    calls = (Call((USER,), None, time_s=0.0), Call((USER, USER), None, time_s=20.0))
    session = Session("s", calls, start_time_s=MIDNIGHT_S - 10)
    turns = [Turn([USER], []), Turn([USER, USER], [], continues=True)]

    def dates(name: LayoutName) -> list[str]:
        texts = [dated.tokenizer.decode(p.token_ids) for p in prompts(dated, name, session, turns)]
        return [text.split("\n")[1].removesuffix("<|im_end|>") for text in texts]

    assert dates(LayoutName.RECORDED) == ["2025-12-31", "2026-01-01"]
    assert dates(LayoutName.STABLE) == ["2025-12-31", "2025-12-31"]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_clock_stands_in_front_of_the_contract(model, role):
    contract = {"role": role, "content": "Be terse."}
    session = Session("s", (Call((contract, USER), None),), start_time_s=MIDNIGHT_S)
    [prompt] = prompts(model, LayoutName.CLOCK, session, [Turn([contract, USER], [])])
    text = model.tokenizer.decode(prompt.token_ids)
    assert text.startswith(
        "<|im_start|>system\nCurrent time: 2026-01-01 00:00:00 UTC\nBe terse.<|im_end|>"
    )


def test_independent_seams_count_what_is_not_canonical(model):
    """Cut between the frame and a text that starts with a blank, which is no proven seam."""
    session = Session("s", (Call((USER,), None), Call((USER, USER), None)))
    reply = {"role": "assistant", "content": "\n\n  hello"}
    turns = [Turn([USER], []), Turn([USER, reply, USER], [], continues=True)]
    canonical = prompts(model, LayoutName.RECORDED, session, turns)[-1]
    alone = replace(model, independent_seams=True)
    conversation = begin(Layout(LayoutName.STABLE), alone, session)
    first = conversation.prompt(turns[0], session.calls[0], 0)
    second = conversation.prompt(turns[1], session.calls[1], 1)
    assert second.token_ids[: len(first.token_ids)] == first.token_ids
    assert second.token_ids != canonical.token_ids
    assert conversation.num_deviating > 0
    assert alone.tokenizer.decode(second.token_ids) == alone.tokenizer.decode(canonical.token_ids)


def test_a_time_beyond_any_calendar_is_one_line(model):
    session = Session("s", (Call((USER,), None),), start_time_s=1e15)
    with pytest.raises(TrajectoryError, match="beyond any calendar"):
        prompts(model, LayoutName.RECORDED, session, [Turn([USER], [])])
