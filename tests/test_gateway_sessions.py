"""Conversations through the whole gateway: what the engine gets is what it had, token for token."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio
from gateway_cases import (
    MODEL,
    READ_FILE,
    RUN,
    Case,
    Message,
    as_message,
    calls_tools,
    gateway,
    get,
    put_together,
    says,
    streamed,
    system,
    user,
)

from duramen.experiments.spellings import ROUND_TRIPS, Spell, all_at_once, bare, verbatim
from duramen.serving.vllm.fake import EOS
from duramen.serving.vllm.fake_chat import Said, spoken

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def case(smollm2: Path) -> AsyncIterator[Case]:
    async with gateway(smollm2) as case:
        yield case


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(case: Case) -> AsyncIterator[openai.AsyncOpenAI]:
    async with case.client() as client:
        yield client


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def settled(case: Case) -> AsyncIterator[None]:
    case.engine.bodies.clear()
    yield
    await case.settled()
    assert not case.engine.script, "the script was not said to its end"


async def ask(
    client: openai.AsyncOpenAI, messages: list[Message], **options: object
) -> tuple[Message, dict[str, Any]]:
    """The reply, and the duramen object."""
    answer = await client.chat.completions.create(
        model=MODEL,
        messages=messages,
        extra_headers={"x-duramen-explain": "1"},
        **options,  # type: ignore[call-overload]
    )
    told = answer.duramen
    return as_message(answer.choices[0].message), told


def tool_turns(case: Case) -> list[tuple[object, list[Message]]]:
    """What the model says in each turn, and what the client adds behind it. Nothing of it is
    spelled as the template or the tokenizer would."""
    return [
        (
            calls_tools(
                case,
                ("read_file", '{ "path":"a.txt" }'),
                ("run", '{"n": 1.50, "ok": true, "deep": {"b": [1, null], "a": "é🌍"}}'),
                content="  Let me look. ",
                reasoning="Which file?\n",
                ids=["call_1", "call_2"],
            ),
            [
                {"role": "tool", "content": "<|im_end|> a\nb "},
                {"role": "tool", "content": ""},
            ],
        ),
        (
            calls_tools(case, ("run", "{}"), ids=["call_3"]),
            [{"role": "tool", "content": "done"}],
        ),
        (says(case, "", ids=[*case.encode("Hel"), *case.encode("lo, wor"), 220]), [user("go on")]),
        (says(case, "Cut o", ends=False), [user("and then? "), user("quick")]),
        (says(case, " 🌍 naïve\n\n", ids=case.encode(" 🌍 na") + case.encode("ïve\n\n")), []),
    ]


def answering(reply: Message, new: list[Message]) -> list[Message]:
    """Tool results under the ids that the client knows."""
    calls = reply.get("tool_calls") or [{}] * len(new)
    return [
        {**message, "tool_call_id": call["id"]} if message["role"] == "tool" else message
        for message, call in zip(new, calls, strict=True)
    ]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("round_trip", [*ROUND_TRIPS.values(), bare, all_at_once, verbatim])
async def test_a_round_trip_breaks_nothing(
    case: Case,
    client: openai.AsyncOpenAI,
    round_trip: Spell,
    stream: bool,
) -> None:
    told = f"{round_trip} {stream}"  # a conversation of its own
    messages = [system(), user(f" Find the file. {told}")]
    past: list[int] = []
    for turn, (said, new) in enumerate([*tool_turns(case), (says(case, "bye"), [])]):
        case.engine.script.append(said)
        request = {"messages": messages, "tools": [READ_FILE, RUN]}
        if stream:
            reply = put_together(await streamed(client, **request))
        else:
            reply, explained = await ask(client, **request)
            assert explained["relation"] == ("extends" if turn else "new")
            assert (explained["break"], explained["edit"]) == (None, None)
            assert explained["recorded_tokens"] == len(past)
        assert case.sent()[: len(past)] == past
        past = [*case.sent(), *said.token_ids]
        messages = [round_trip(message) for message in [*messages, reply]]
        messages += answering(messages[-1], new)
    text = case.text(past)
    assert text.count(told) == 1
    assert "1.50" in text  # as the model wrote it
    assert "Cut o<|im_end|>\n<|im_start|>user\nand then? <|im_end|>" in text
    assert text.endswith("<|im_start|>assistant\nbye<|im_end|>")


async def test_however_a_reply_ends(case: Case, client: openai.AsyncOpenAI) -> None:
    let, it, blank = case.encode("Let"), case.encode(" it"), case.encode(" ")
    bem, so = case.encode(" bem"), case.encode(" so")
    turn = "<|im_end|>\n<|im_start|>user\n"
    for name, options, said, kept, closing in [
        ("length", {}, Said([*let, *it], [{"content": "Let"}, {"content": " it"}], "length"),
         [*let, *it], turn),
        ("stop string", {"stop": [" be"]}, spoken(case.text, [*let, *it, *bem], "", [" be"]),
         [*let, *it], turn),
        ("inside a token", {"stop": ["em"]}, spoken(case.text, [*let, *it, *bem], "", ["em"]),
         [*let, *it, *case.encode(" b")], turn),
        ("stop token", {}, spoken(case.text, [*let, *it, *blank, *so], "", (), blank),
         [*let, *it], turn),
        ("EOS", {}, says(case, "", ids=[*let, *blank, *so]), [*let, *blank, *so, EOS], turn[10:]),
    ]:  # fmt: skip
        for stream in (False, True):
            case.engine.script += [said, says(case, "yes")]
            messages = [system(), user(f"{name} {stream}")]
            reply = put_together(await streamed(client, messages=messages, **options))
            first = case.sent()
            _, told = await ask(client, [*messages, reply, user("more")])
            assert (told["relation"], told["break"]) == ("extends", None)
            assert case.sent()[: len(first) + len(kept)] == [*first, *kept], name
            added = case.text(case.sent()[len(first) + len(kept) :])
            assert added == f"{closing}more{turn[:11]}<|im_start|>assistant\n", name


async def test_each_of_n_goes_on_with_its_own_ids(case: Case, client: openai.AsyncOpenAI) -> None:
    he, llo = case.encode("He"), case.encode("llo")
    all_said = [says(case, "", ids=[*he, *llo, *case.encode(last)]) for last in "abc"]
    messages = [system(), user("three of them")]
    case.engine.script += all_said
    chunks = await streamed(client, messages=messages, n=3)
    first = case.sent()
    told = {}
    for index, said in enumerate(all_said):
        case.engine.script.append(says(case, "yes"))
        reply = put_together(chunks, index)
        _, told = await ask(client, [*messages, reply, user("more")])
        past = [*first, *said.token_ids]
        assert case.sent()[: len(past)] == past
        assert (told["relation"], told["recorded_tokens"]) == ("extends", len(past))
    session = await get(client, f"/duramen/sessions/{told['session']}")
    assert [call["parent"] is None for call in session["calls"]] == [True, False, False, False]
    assert [len(call["replies"]) for call in session["calls"]] == [3, 1, 1, 1]


async def test_replies_that_read_the_same_go_on_as_one_of_them(
    case: Case, client: openai.AsyncOpenAI
) -> None:
    spellings = [case.encode("He") + case.encode("llo"), case.encode("Hello")]
    messages = [system(), user("twins")]
    case.engine.script += [says(case, "", ids=ids) for ids in spellings]
    answer = await client.chat.completions.create(model=MODEL, messages=messages, n=2)
    assert [c.message.content for c in answer.choices] == ["Hello", "Hello"]
    first = case.sent()
    case.engine.script.append(says(case, "yes"))
    await ask(client, [*messages, as_message(answer.choices[0].message), user("more")])
    assert [*first, *spellings[1], EOS] == case.sent()[: len(first) + len(spellings[1]) + 1]


async def test_two_calls_at_once_are_two_branches(case: Case, client: openai.AsyncOpenAI) -> None:
    messages = [system(), user("at once")]
    case.engine.script.append(says(case, "", ids=case.encode("He") + case.encode("llo")))
    reply, _ = await ask(client, messages)
    past = [*case.sent(), *case.encode("He"), *case.encode("llo"), EOS]
    forks = [[*messages, reply, user(text)] for text in ("left", "right", "left")]
    answers = await asyncio.gather(*[ask(client, fork, max_tokens=6) for fork in forks])
    first_turns = case.engine.bodies[-3:]
    assert [case.sent(n)[: len(past)] for n in (-3, -2, -1)] == [past] * 3
    assert {told["session"] for _, told in answers} == {answers[0][1]["session"]}
    sent = {case.text(case.sent(n)[len(past) :]): case.sent(n) for n in (-3, -2, -1)}
    assert len(sent) == 2
    assert len(first_turns) == 3
    for fork, (reply, _) in zip(forks, answers, strict=True):
        await ask(client, [*fork, reply, user("more")], max_tokens=2)
        (mine,) = [ids for text, ids in sent.items() if fork[-1]["content"] in text]
        assert case.sent()[: len(mine)] == mine


async def test_agents_with_one_root_share_its_blocks(
    case: Case, client: openai.AsyncOpenAI
) -> None:
    root = system("One root. " * 40)
    told = []
    for name in ("planner", "coder", "planner"):
        _, explained = await ask(client, [root, user(name)], max_tokens=2)
        told.append(explained)
    assert [t["relation"] for t in told] == ["new"] * 3
    assert len({t["session"] for t in told}) == 3
    assert told[0]["bounds"]["token"] < told[1]["bounds"]["token"] < told[1]["bounds"]["prompt"]
    assert [t["delivered_tokens"] for t in told] == [t["bounds"]["unit"] for t in told]
    assert told[2]["bounds"]["unit"] == (told[2]["bounds"]["prompt"] - 1) // 16 * 16


async def conversation(
    case: Case, client: openai.AsyncOpenAI, name: str
) -> tuple[list[Message], list[int]]:
    """[system, user, tool call, two results, text, user, text], and where each message's ids
    end in what was sent and sampled."""
    messages = [system(), user(name)]
    opening = len(case.encode("<|im_start|>assistant\n"))
    result = "<|im_start|>user\n<tool_response>\ntwo\n</tool_response><|im_end|>\n"
    result_tokens = len(case.encode(result))
    ends = [0]
    for said, new in [
        (
            calls_tools(case, ("run", '{"a":1}'), ("run", '{"a":2}')),
            [
                {"role": "tool", "tool_call_id": "call_0", "content": "one"},
                {"role": "tool", "tool_call_id": "call_1", "content": "two"},
            ],
        ),
        (says(case, "", ids=case.encode("He") + case.encode("llo")), [user("and?")]),
        (says(case, "bye"), []),
    ]:
        case.engine.script.append(said)
        reply, _ = await ask(client, messages, tools=[RUN])
        end = len(case.sent()) - opening
        later = [result_tokens] * (len(messages) - len(ends) - 1)
        ends += [end - sum(later[i:]) for i in range(len(later) + 1)]
        ends.append(len(case.sent()) + len(said.token_ids))
        messages = [*messages, reply, *new]
    return messages, ends


def changed(messages: list[Message], at: int, **fields: Any) -> list[Message]:
    return [*messages[:at], {**messages[at], **fields}, *messages[at + 1 :]]


EDITS: dict[str, tuple[Callable[[list[Message]], list[Message]], int, str]] = {
    # what the client does, and the message that is named
    "user": (lambda m: changed(m, 6, content="or?"), 6, "user"),
    "first tool result": (lambda m: changed(m, 3, content="ONE"), 3, "tool"),
    "second tool result": (lambda m: changed(m, 4, content="TWO"), 4, "tool"),
    "reply": (lambda m: changed(m, 5, content="Hullo"), 5, "assistant"),
    "first reply": (lambda m: changed(m, 2, content="Hm."), 2, "assistant"),
    "cut off": (lambda m: m[:6], 6, "user"),
    "middle left out": (lambda m: [*m[:3], *m[6:]], 3, "user"),
    "a result left out": (lambda m: [*m[:4], *m[5:]], 4, "assistant"),
    "a message put in": (lambda m: [*m[:6], user("wait"), *m[6:]], 6, "user"),
    "a reply left out": (lambda m: [*m[:5], *m[6:]], 5, "user"),
}


@pytest.mark.parametrize("name", EDITS)
async def test_an_edit_is_named_and_all_in_front_of_it_reused(
    case: Case, client: openai.AsyncOpenAI, name: str
) -> None:
    edit, at, role = EDITS[name]
    messages, ends = await conversation(case, client, f"edit: {name}")
    last = case.sent()
    _, told = await ask(client, [*edit(messages), user("new")], tools=[RUN], max_tokens=4)
    assert told["relation"] == "branches"
    assert told["break"] == "edit"
    assert told["edit"] == {"message": at, "role": role}
    in_front = ends[at - 1]
    assert case.sent()[:in_front] == last[:in_front]
    assert told["recorded_tokens"] >= in_front
    assert told["bounds"]["token"] == told["recorded_tokens"]


async def test_another_first_message_is_another_conversation(
    case: Case, client: openai.AsyncOpenAI
) -> None:
    messages, _ = await conversation(case, client, "first")
    _, told = await ask(client, changed(messages, 1, content="1st"), tools=[RUN], max_tokens=4)
    assert (told["relation"], told["break"], told["edit"]) == ("new", "session lost", None)


async def test_a_retry_is_no_edit(case: Case, client: openai.AsyncOpenAI) -> None:
    messages, _ = await conversation(case, client, "retry")
    past = case.sent()
    for seed in (1, 2):
        _, told = await ask(client, messages[:7], tools=[RUN], max_tokens=4, seed=seed)
        assert (told["relation"], told["break"], told["edit"]) == ("retries", None, None)
        assert case.sent() == past
    await ask(client, [*messages[:6], user("or?")], tools=[RUN], max_tokens=4)
    _, told = await ask(client, messages[:7], tools=[RUN], max_tokens=4)  # an older branch again
    assert (told["relation"], told["break"], told["edit"]) == ("retries", None, None)
    assert case.sent() == past


async def test_the_first_request_again_in_a_named_session(
    case: Case, client: openai.AsyncOpenAI
) -> None:
    elsewhere: Message = {"role": "assistant", "content": "said elsewhere"}
    asked = [user("first"), elsewhere, user("hello")]
    for messages in (asked[:1], asked):
        named = client.with_options(default_headers={"x-duramen-session": f"named-{len(messages)}"})
        told = [(await ask(named, messages, max_tokens=2))[1] for _ in range(2)]
        assert [t["relation"] for t in told] == ["new", "retries"]
        assert told[1]["recorded_tokens"] == told[1]["bounds"]["token"] == len(case.sent())
        assert told[1]["break"] is None


async def test_other_tools_are_another_root(case: Case, client: openai.AsyncOpenAI) -> None:
    messages, _ = await conversation(case, client, "tools")
    _, told = await ask(client, [*messages, user("x")], tools=[RUN, READ_FILE], max_tokens=2)
    assert (told["relation"], told["break"], told["recorded_tokens"]) == ("new", "tools", 0)
    _, told = await ask(client, [*messages, user("x")], tools=[RUN], max_tokens=2)
    assert (told["relation"], told["break"]) == ("extends", None)


async def test_a_clock_in_the_system_prompt_is_named(
    case: Case, client: openai.AsyncOpenAI
) -> None:
    for minute, cause in ((1, None), (2, "clock"), (2, None), (3, "clock")):
        root = system(f"It is 2026-11-30 09:0{minute}:11. You take down what is said.")
        _, told = await ask(client, [root, user("hi")], max_tokens=2)
        assert (told["relation"], told["break"]) == ("new", cause)
