"""The clients that change history's form: what they count at a gateway, and how they spell."""

from pathlib import Path

import openai
import pytest
from gateway_cases import MODEL, gateway

from duramen.experiments.roundtrips import SPELLINGS, run_conversations, summarise
from duramen.experiments.spellings import Message, Spell, all_at_once

REPLY: Message = {
    "role": "assistant",
    "content": None,
    "reasoning": "Look.",
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "read_file", "arguments": '{"path": "a", "lines": 2}'},
        }
    ],
}


@pytest.mark.parametrize("spell", [spell for spell in SPELLINGS if spell.__name__ != "verbatim"])
def test_each_spelling_changes_something(spell: Spell) -> None:
    messages = [REPLY, {"role": "assistant", "content": " Done. "}]
    assert [list(spell(m).items()) for m in messages] != [list(m.items()) for m in messages]


def test_arguments_that_are_no_json_stay() -> None:
    function = {"name": "read_file", "arguments": '{"path": '}
    call = {"id": "c1", "type": "function", "function": function}
    spelled = all_at_once({"role": "assistant", "content": "x", "tool_calls": [call]})
    assert spelled["tool_calls"] == [{**call, "id": "x-c1"}]


async def test_conversations_through_a_gateway_break_nowhere(smollm2: Path) -> None:
    async with gateway(smollm2) as case, case.client() as client:
        assert isinstance(client, openai.AsyncOpenAI)
        unit = case.engine.info.unit_tokens
        turns = await run_conversations(client, MODEL, num=8, turns=3, concurrency=4, unit=unit)
    told = summarise(turns)
    assert (told.num_follow_ups, told.num_breaks) == (16, 0)
    assert told.off_prediction is not None
    assert 0 < told.uncached_tokens < told.prompt_tokens
