"""Many conversations at an OpenAI endpoint, whose clients change history's form on its way.

Each client sends the whole history every time, and spells what it got back in a way of its own, as
frameworks do. Engine and gateway are asked for token ids, so that breaks are counted where they
happen: a prompt that does not begin with the ids of the call before and what was sampled there.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from duramen.experiments.spellings import (
    Message,
    Spell,
    arguments_rewritten,
    as_parts,
    bare,
    reordered,
    verbatim,
    with_blanks,
    with_more_fields,
)
from duramen.layout.blocks import common_prefix, reusable_tokens
from duramen.serving.vllm.gathered import Gathered

TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file of the workspace.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
            "required": ["path", "lines"],
        },
    },
}
TOPICS = ("a river", "a clock", "bread", "a bridge", "rain", "a letter", "copper", "a garden")


def blanks_in_replies(message: Message) -> Message:
    return with_blanks(message) if message["role"] == "assistant" else message


def all_but_content(message: Message) -> Message:
    """Of a message without content, which is one with tool calls."""
    if message.get("content"):
        return message
    return arguments_rewritten(reordered(with_more_fields(message)))


SPELLINGS: tuple[Spell, ...] = (
    verbatim,
    as_parts,
    reordered,
    arguments_rewritten,
    bare,
    with_more_fields,
    blanks_in_replies,
    all_but_content,
)


@dataclass(frozen=True)
class Turn:
    """What one call brought. `breaks_at`: the first token that differs from what was sent and
    sampled before, None if none does. `unit_bound`: what an infinite cache would have given; the
    last sampled token is no part of it, no engine computes that. `predicted`: the gateway's
    interval, None without one."""

    conversation: int
    turn: int
    prompt_tokens: int
    cached_tokens: int | None
    breaks_at: int | None
    unit_bound: int
    predicted: tuple[int, int] | None
    ttft_s: float


@dataclass
class Conversation:
    number: int
    spell: Spell
    uses_tools: bool
    history: list[Message] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)


async def run_conversations(
    client: Any, model: str, *, num: int, turns: int, concurrency: int, unit: int, salt: str = ""
) -> list[Turn]:
    """`client`: an openai.AsyncOpenAI. `salt` keeps runs on one engine apart."""
    gate = asyncio.Semaphore(concurrency)
    done: list[Turn] = []

    async def one(number: int) -> None:
        spell = SPELLINGS[number % len(SPELLINGS)]
        conversation = Conversation(number, spell, number % 4 == 3)
        for turn in range(turns):
            async with gate:
                done.append(await _turn(client, model, conversation, turn, unit, salt))

    await asyncio.gather(*(one(number) for number in range(num)))
    return done


async def _turn(
    client: Any, model: str, conversation: Conversation, turn: int, unit: int, salt: str
) -> Turn:
    number = conversation.number
    asks_tool = conversation.uses_tools and turn % 2 == 0
    if not conversation.history:
        system = f"You are assistant {number % 8} and answer briefly. " * 8
        conversation.history.append({"role": "system", "content": system})
    if conversation.history[-1].get("tool_calls"):
        for call in conversation.history[-1]["tool_calls"]:
            result = f"{TOPICS[number % 8]}: line {turn}"
            conversation.history.append(
                {"role": "tool", "tool_call_id": call["id"], "content": result}
            )
    question = f"Conversation {number}: say something new, number {turn}, about "
    conversation.history.append({"role": "user", "content": question + TOPICS[(number + turn) % 8]})
    options: dict[str, Any] = {"tools": [TOOL]} if conversation.uses_tools else {}
    if asks_tool:
        options["tool_choice"] = {"type": "function", "function": {"name": "read_file"}}
    started_s = time.perf_counter()
    stream = await client.chat.completions.create(
        model=model,
        messages=[conversation.spell(message) for message in conversation.history],
        max_completion_tokens=48,
        temperature=1.0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"return_token_ids": True} | ({"cache_salt": salt} if salt else {}),
        extra_headers={"x-duramen-explain": "1"},
        **options,
    )
    answer = await _gather(stream, started_s)
    before = conversation.ids
    kept = common_prefix(answer.prompt_ids, before)
    conversation.ids = [*answer.prompt_ids, *answer.sampled_ids]
    conversation.history.append(answer.message)
    return Turn(
        conversation=number,
        turn=turn,
        prompt_tokens=len(answer.prompt_ids),
        cached_tokens=answer.cached_tokens,
        breaks_at=kept if kept < len(before) else None,
        unit_bound=reusable_tokens(len(before) - 1, len(answer.prompt_ids), unit),
        predicted=answer.predicted,
        ttft_s=answer.ttft_s,
    )


@dataclass
class _Answer:
    message: Message
    prompt_ids: list[int]
    sampled_ids: list[int]
    cached_tokens: int | None
    predicted: tuple[int, int] | None
    ttft_s: float


async def _gather(stream: Any, started_s: float) -> _Answer:
    gathered, ttft_s = Gathered(), None
    prompt_ids: list[int] = []
    sampled: list[int] = []
    cached = predicted = None
    async for chunk in stream:
        extra: Mapping[str, Any] = chunk.model_extra or {}
        prompt_ids = extra.get("prompt_token_ids") or prompt_ids
        if told := extra.get("duramen"):
            interval = told["predicted_tokens"]
            predicted = (interval[0], interval[1]) if interval else None
        if chunk.usage is not None and chunk.usage.prompt_tokens_details is not None:
            cached = chunk.usage.prompt_tokens_details.cached_tokens
        for choice in chunk.choices:
            if ids := (choice.model_extra or {}).get("token_ids"):
                ttft_s = ttft_s or time.perf_counter() - started_s
                sampled += ids
            gathered.add(choice.model_dump())
    return _Answer(gathered.message, prompt_ids, sampled, cached, predicted, ttft_s or 0.0)


@dataclass(frozen=True)
class Summary:
    """Of follow-up turns, except `uncached_tokens` (of all). `off_bound`: calls whose delivered
    tokens were not the unit bound; `off_prediction`: not inside the predicted interval."""

    num_follow_ups: int
    num_breaks: int
    uncached_tokens: int
    prompt_tokens: int
    off_bound: int
    off_prediction: int | None
    ttft_s: Sequence[float]


def summarise(turns: Sequence[Turn]) -> Summary:
    follow_ups = [turn for turn in turns if turn.turn]
    predicted = [turn for turn in turns if turn.predicted is not None]
    return Summary(
        num_follow_ups=len(follow_ups),
        num_breaks=sum(turn.breaks_at is not None for turn in follow_ups),
        uncached_tokens=sum(turn.prompt_tokens - (turn.cached_tokens or 0) for turn in turns),
        prompt_tokens=sum(turn.prompt_tokens for turn in turns),
        off_bound=sum(turn.cached_tokens != turn.unit_bound for turn in follow_ups),
        off_prediction=sum(
            not turn.predicted[0] <= (turn.cached_tokens or 0) <= turn.predicted[1]
            for turn in predicted
            if turn.predicted is not None
        )
        if predicted
        else None,
        ttft_s=sorted(turn.ttft_s for turn in follow_ups),
    )
