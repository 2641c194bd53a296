"""Breaks on the real engine: what a break is said to lose is what the engine delivers less, and
blocks that were evicted are told from prompts that parted."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from why_cases import SYSTEM, TOOLS, ids_of

from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.trajectory import Call, Message, Sending, Session, Tool, Usage
from duramen.experiments.why.explain import Settings, explain
from duramen.layout.blocks import reusable_tokens
from duramen.serving.vllm.engine import VllmEngine, launch
from duramen.serving.vllm.launch import VllmConfig
from duramen.serving.vllm.protocol import Completion, Engine, Sampling

pytestmark = pytest.mark.live

UNIT = 32
SAID = 24  # tokens of a reply
TEXT = str(SYSTEM["content"])
FILE = "".join(f"line {i}: the keeper counts the ships and writes them down\n" for i in range(12))
Sent = tuple[tuple[Message, ...], tuple[Tool, ...]]
Change = Callable[[tuple[Message, ...], tuple[Tool, ...]], Sent]


def asked(tool_output: str = FILE) -> tuple[Message, ...]:
    function = {"name": "read", "arguments": json.dumps({"path": "log.txt", "lines": 12})}
    call = {"id": "c1", "type": "function", "function": function}
    return (
        {"role": "system", "content": f"It is 2026-12-01 10:00:00. Request 17 of 40. {TEXT}"},
        {"role": "user", "content": "What did the keeper write down?"},
        {"role": "assistant", "content": "I look into the log.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": tool_output},
    )


def edited(index: int, old: str, new: str) -> Change:
    def change(messages: tuple[Message, ...], tools: tuple[Tool, ...]) -> Sent:
        message = json.loads(json.dumps(messages[index]).replace(old, new))
        assert message != messages[index]
        return (*messages[:index], message, *messages[index + 1 :]), tools

    return change


def key_order(messages: tuple[Message, ...], tools: tuple[Tool, ...]) -> Sent:
    last = tools[-1]["function"]
    parameters = dict(reversed(list(last["parameters"].items())))
    return messages, (*tools[:-1], {**tools[-1], "function": {**last, "parameters": parameters}})


def pruned(messages: tuple[Message, ...], tools: tuple[Tool, ...]) -> Sent:
    return (*messages[:3], {**messages[3], "content": "[old tool output removed]"}), tools


BREAKS: list[tuple[str, Change]] = [
    ("clock", edited(0, "10:00:00", "10:00:07")),
    ("counter", edited(0, "Request 17", "Request 18")),
    ("tool-order", lambda messages, tools: (messages, tools[::-1])),
    ("tool-set-changed", lambda messages, tools: (messages, tools[:-1])),
    ("json-key-order", key_order),
    ("history-edited", edited(3, "line 7: the keeper counts the ships", "line 7: nobody came")),
    ("whitespace", edited(3, "line 5: the keeper", "line 5:  the keeper")),
    ("history-pruned", pruned),
]


async def complete(engine: Engine, ids: Sequence[int], num_tokens: int = SAID) -> Completion:
    done = await engine.complete(ids, Sampling(num_tokens))
    assert done.cached_tokens is not None
    assert await engine.settle([*ids, *done.token_ids[:-1]])
    return done


async def run_pair(
    engine: VllmEngine, model: Model, first: Sent, second: Sent
) -> tuple[Completion, Completion]:
    """Both calls in an empty cache."""
    assert await engine.reset_prefix_cache()
    done = await complete(engine, ids_of(model, *first))
    return done, await complete(engine, ids_of(model, *second))


@pytest.mark.parametrize(("cause", "change"), BREAKS, ids=[cause for cause, _ in BREAKS])
async def test_a_break_loses_what_the_engine_delivers_less(
    live_engine: VllmEngine,
    smollm2: Path,
    notice: Callable[[str], None],
    cause: str,
    change: Change,
) -> None:
    model, first = load_model(smollm2, None), (asked(), TOOLS)
    assert await live_engine.reset_prefix_cache()
    reply = (await complete(live_engine, ids_of(model, *first))).message
    follow: tuple[Message, ...] = (reply, {"role": "user", "content": "And who read it?"})
    unbroken = ((*first[0], *follow), TOOLS)
    messages, tools = change(*first)
    broken = ((*messages, *follow), tools)

    done, twin = await run_pair(live_engine, model, first, unbroken)
    again, came = await run_pair(live_engine, model, first, broken)
    assert again.token_ids == done.token_ids
    assert twin.cached_tokens is not None
    assert came.cached_tokens is not None

    def session(second: Sent, delivered: int) -> Session:
        sending = Sending(reply_ids=tuple(done.token_ids))
        calls = (
            Call(first[0], done.message, usage=Usage(cached_tokens=0), sending=sending),
            Call(second[0], None, usage=Usage(cached_tokens=delivered), tools=second[1]),
        )
        return Session(cause, calls, TOOLS)

    settings = Settings(UNIT)
    kept = list(explain([session(unbroken, twin.cached_tokens)], model, settings))[1]
    found = list(explain([session(broken, came.cached_tokens)], model, settings))[1]
    assert kept.broken is None
    assert kept.predicted == kept.delivered == twin.cached_tokens
    assert found.predicted == found.reusable == found.delivered == came.cached_tokens
    assert found.broken is not None
    assert found.broken.lost_tokens == twin.cached_tokens - came.cached_tokens > 0
    notice(f"why, live: {cause} lost {found.broken.lost_tokens} tokens, as said")
    assert (found.broken.cause, found.broken.layer) == (cause, "request")


async def test_another_spelling_of_the_same_text(live_engine: VllmEngine, smollm2: Path) -> None:
    model = load_model(smollm2, None)
    messages = asked()
    canonical = ids_of(model, messages, TOOLS)
    place = len(canonical) - 60
    letters = [
        i
        for c in model.tokenizer.decode(canonical[place : place + 8])
        for i in model.tokenizer.encode_text(c)
    ]
    spelled = [*canonical[:place], *letters, *canonical[place + 8 :]]
    assert model.tokenizer.decode(spelled) == model.tokenizer.decode(canonical)
    assert await live_engine.reset_prefix_cache()
    await complete(live_engine, spelled, 1)
    twin = await complete(live_engine, [*spelled, *canonical[-4:]], 1)
    assert await live_engine.reset_prefix_cache()
    await complete(live_engine, spelled, 1)
    came = await complete(live_engine, canonical, 1)
    calls = (
        Call(messages, None, sending=Sending(token_ids=tuple(spelled))),
        Call(messages, None, usage=Usage(cached_tokens=came.cached_tokens)),
    )
    found = list(explain([Session("s", calls, TOOLS)], model, Settings(UNIT)))[1]
    assert found.broken is not None
    assert found.broken.cause == "retokenisation"
    assert found.reusable == came.cached_tokens
    assert found.broken.lost_tokens == (twin.cached_tokens or 0) - (came.cached_tokens or 0)


def growing(number: int, num_calls: int, edit_at: int) -> list[tuple[Message, ...]]:
    """A conversation with a root of its own, whose first question is edited at one call."""
    system: Message = {"role": "system", "content": f"You keep lighthouse {number}. " + TEXT * 8}
    prompts: list[tuple[Message, ...]] = []
    messages: list[Message] = [system, {"role": "user", "content": "Who lit the lamp? " + FILE}]
    for index in range(num_calls):
        if index == edit_at:
            messages[1] = {"role": "user", "content": "Who put out the lamp? " + FILE}
        prompts.append(tuple(messages))
        messages += [
            {"role": "assistant", "content": f"Keeper {index} did, as the log says."},
            {"role": "user", "content": f"What did watch {index} see? " + FILE[:200]},
        ]
    return prompts


async def test_evictions_are_told_from_divergences(
    tiny_model: Path, notice: Callable[[str], None]
) -> None:
    """Four sessions in turn in a pool of 100 blocks: who comes back finds less than was sent."""
    model = load_model(tiny_model, None)
    config = VllmConfig(tiny_model, block_size=UNIT, max_model_len=3200, num_kv_blocks=101)
    engine = await launch(config, lambda line: None)
    edits = [3, 2, 5, 4]
    prompts = [growing(number, 7, edit_at) for number, edit_at in enumerate(edits)]
    order = [(call, number) for call in range(7) for number in range(4) if (call + number) % 5]
    sent: dict[int, list[tuple[float, Call]]] = {number: [] for number in range(4)}
    try:
        for time_s, (call, number) in enumerate(order):
            messages = prompts[number][call]
            done = await complete(engine, ids_of(model, messages), 1)
            usage = Usage(done.prompt_tokens, done.cached_tokens)
            sent[number].append((float(time_s), Call(messages, None, usage=usage)))
    finally:
        await engine.close()
    sessions = []
    for number, calls in sent.items():
        start_s = calls[0][0]
        timed = tuple(replace(call, time_s=time_s - start_s) for time_s, call in calls)
        sessions.append(Session(f"s{number}", timed, start_time_s=1e9 + start_s))
    seen = {"evicted": 0, "parted": 0, "whole": 0}
    sized = Settings(UNIT, kv_tokens=3200)
    for settings in (Settings(UNIT), sized):
        for found in explain(sessions, model, settings):
            if settings is sized:
                assert found.predicted == found.delivered
            if found.call == 0:
                continue
            session = sessions[int(found.session[1:])]
            before, after = (session.calls[i].messages for i in (found.call - 1, found.call))
            parted = before != after[: len(before)]
            assert found.lcp is not None
            assert found.delivered is not None
            attainable = reusable_tokens(found.lcp, found.num_tokens or 0, UNIT)
            if parted:
                assert found.broken is not None
                assert found.broken.cause == "history-edited"
                seen["parted"] += 1
            elif found.delivered < attainable:
                assert found.broken is not None
                assert found.broken.cause == "eviction"
                assert found.broken.lost_tokens == attainable - found.delivered
                assert found.broken.confidence == (1.0 if settings is sized else 0.6)
                seen["evicted"] += 1
            else:
                assert found.broken is None
                seen["whole"] += 1
    notice(f"why, small pool: {seen}")
    assert min(seen.values()) > 0
