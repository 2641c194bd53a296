"""Recognised conversations on their own: every mix of round trips, and what they cost in memory."""

import datetime
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gateway_cases import READ_FILE, RUN, TEMPLATE, Message, system, user
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duramen.experiments.spellings import ROUND_TRIPS
from duramen.layout.template import load_chat_template
from duramen.layout.tokenizer import Tokenizer
from duramen.serving.gateway.sessions.conversation import (
    ConversationRequest,
    Conversations,
    Model,
    Opened,
)
from duramen.serving.gateway.sessions.null_store import NullStore
from duramen.serving.gateway.sessions.tree import SessionTree

NOW = datetime.datetime(2026, 11, 30)
EOS = 2
SCOPE = bytes(16)


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    template = load_chat_template(smollm2, TEMPLATE)
    return Model(Tokenizer.load(smollm2, template.source), template, frozenset({EOS}), 16)


def conversations(model: Model) -> Conversations:
    return Conversations(model, SessionTree(NullStore(), 2**30))


def call(
    talk: Conversations,
    messages: Sequence[Message],
    reply: Message,
    ids: Sequence[int],
    finish: str = "stop",
    record: bytes = b"{}",
) -> Opened:
    """One whole call: asked, sent, answered with `reply`, which `ids` spell."""
    request = ConversationRequest(SCOPE, "", messages, tools=[RUN, READ_FILE])
    opened = talk.open(request, NOW)
    with talk.held(opened):
        talk.record(opened, "ann")
        begun = talk.begin_reply(opened.turn, 0)
        for token_id in ids:
            talk.add_piece(begun, [token_id], "")
        talk.finish(begun, reply, finish, None)
        talk.ended(opened, record)
    return opened


texts = st.text(st.sampled_from("ab \n\"'{<|é🌍"), max_size=8)
values = st.recursive(st.none() | st.booleans() | st.floats(-9, 9) | texts, st.lists, max_leaves=4)
arguments = st.dictionaries(texts, values, max_size=3)
turns = st.lists(
    st.tuples(
        texts,  # content
        texts,  # reasoning
        st.lists(arguments, max_size=3),  # of its tool calls
        st.lists(st.sampled_from(sorted(ROUND_TRIPS)), max_size=4),
        st.lists(st.integers(100, 1100), max_size=6),  # what it was spelled with
        st.booleans(),  # cut off by length
    ),
    min_size=2,
    max_size=12,
)


def reply_of(content: str, reasoning: str, calls: list[dict[str, Any]], turn: int) -> Message:
    message: Message = {"role": "assistant", "content": content or None}
    if reasoning:
        message["reasoning"] = reasoning
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{turn}_{i}",
                "type": "function",
                "function": {"name": "run", "arguments": json.dumps(given, separators=(" ,", ":"))},
            }
            for i, given in enumerate(calls)
        ]
    return message


@given(turns)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_any_mix_of_round_trips(model: Model, turns: list[Any]) -> None:
    talk = conversations(model)
    messages: list[Message] = [system(), user("begin")]
    past: list[int] = []
    for turn, (content, reasoning, calls, trips, ids, cut) in enumerate(turns):
        reply = reply_of(content, reasoning, calls, turn)
        ids = [*ids, *[EOS] * (not cut)] or [100]
        opened = call(talk, messages, reply, ids, "length" if cut else "stop")
        assert list(opened.prompt.token_ids[: len(past)]) == past
        assert (opened.relation, opened.edit) == ("extends" if turn else "new", None)
        assert opened.num_recorded == len(past)
        past = [*opened.prompt.token_ids, *ids]
        messages = [*messages, reply]
        for name in trips:
            messages = [ROUND_TRIPS[name](message) for message in messages]
        answered = messages[-1].get("tool_calls") or []
        messages = [
            *messages,
            *({"role": "tool", "tool_call_id": c["id"], "content": "r"} for c in answered),
            *([] if answered else [user(f"turn {turn}")]),
        ]
    (session,) = talk.tree._sessions.values()
    assert len(list(session.turns())) == len(turns)


def test_the_chain_of_ids_is_the_prompt(model: Model) -> None:
    """What is hashed piece by piece is what the whole prompt would be."""
    talk = conversations(model)
    messages: list[Message] = [system(), user("begin")]
    for turn in range(6):
        opened = call(talk, messages, {"role": "assistant", "content": f"r{turn}"}, [300] * 9)
        fresh = conversations(model)
        ids = opened.prompt.token_ids
        assert opened.hashes == fresh._hashes(ids, b"", "")
        messages += [{"role": "assistant", "content": f"r{turn}"}, user("next " * turn)]


def size_of(root: Any) -> int:
    """Bytes of an object and of all that it refers to."""
    seen: dict[int, Any] = {}
    stack = [root]
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, dict):
            stack += [*value, *value.values()]
        elif isinstance(value, list | tuple | set):
            stack += value
        else:
            stack += [getattr(value, name) for name in getattr(type(value), "__slots__", ())]
            stack += [vars(value)] if hasattr(value, "__dict__") else []
    return sum(map(sys.getsizeof, seen.values()))


def test_a_long_session_takes_little(model: Model) -> None:
    talk = conversations(model)
    messages: list[Message] = [system(), user("begin")]
    text = "Some words of a long answer that goes on. " * 42
    ids = model.tokenizer.encode_text(text)
    for turn in range(200):
        reply = {"role": "assistant", "content": text}
        opened = call(talk, messages, reply, [*ids, EOS], record=b"x" * 900)
        session = talk.tree.session(SCOPE, opened.turn.session_id)
        assert session is not None
        session.digests.update(span.digest[:8] for span in opened.prompt.spans)
        messages += [reply, user(f"{turn} " + "and on it goes " * 25)]
    num_tokens = len(opened.prompt.token_ids)
    assert num_tokens > 95_000
    turns = list(session.turns())
    num_text = sum(len(turn.messages) + len(turn.head) for turn in turns)
    num_text += sum(len(reply.message) for turn in turns for reply in turn.replies)
    taken = size_of(session)
    assert taken - num_text <= 2**20 * num_tokens / 100_000
    assert talk.tree.num_bytes == session.num_bytes
    assert taken / 2 <= session.num_bytes <= taken * 2
    talk.tree.forget(SCOPE, session.session_id)
    assert (talk.tree.num_bytes, len(talk.tree)) == (0, 0)
    assert not talk.tree._turns
    assert not talk.tree._replies
