"""The gateway's prompts are what the chat template makes of messages as vLLM would hand them over.

The slow twin renders the whole conversation at once and encodes it, for every template there is.
"""

import datetime
from typing import Any

import pytest

from duramen.layout.chat_messages import template_tools
from duramen.layout.errors import LayoutError, TemplateError
from duramen.layout.template import ChatTemplate
from duramen.layout.tokenizer import Tokenizer
from duramen.serving.gateway.exactness import why_not_exact
from duramen.serving.gateway.sessions.conversation import (
    ConversationRequest,
    Conversations,
    Model,
    Opened,
)
from duramen.serving.gateway.sessions.null_store import NullStore
from duramen.serving.gateway.sessions.tree import SessionTree

NOW = datetime.datetime(2026, 12, 1, 9, 30)
SPECIALS = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
SCOPE = bytes(16)
TOOL = {
    "function": {
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        "name": "read",
    },
    "type": "function",
}
CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
REQUESTS: dict[str, list[dict[str, Any]]] = {
    "parts": [{"role": "user", "content": [{"type": "text", "text": "Hello, there"}]}],
    "developer": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
    ],
    "tool loop": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Read a"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "text"},
    ],
}


def talk(smollm2, source: str) -> tuple[Conversations, Tokenizer, ChatTemplate]:
    template = ChatTemplate(source, SPECIALS)
    tokenizer = Tokenizer.load(smollm2, source)
    model = Model(tokenizer, template, frozenset(), 16)
    return Conversations(model, SessionTree(NullStore(), 2**30)), tokenizer, template


def opened_as(talk: Conversations, messages, tools=(), **fields: Any) -> Opened:
    return talk.open(ConversationRequest(SCOPE, "", messages, tools=tools, **fields), NOW)


@pytest.mark.parametrize("name", REQUESTS)
def test_every_template_gets_messages_as_vllm_prepares_them(
    name, smollm2, template_sources, notice
):
    messages, num_equal, refused = REQUESTS[name], 0, []
    tools = [TOOL] if name == "tool loop" else []
    for template_name, source in template_sources.items():
        conversations, tokenizer, template = talk(smollm2, source)
        try:
            text = template.render(
                template.prepared(messages),
                tools=template_tools(tools),
                add_generation_prompt=True,
                now=NOW,
            )
        except TemplateError:
            refused.append(template_name)
            with pytest.raises(LayoutError):
                opened_as(conversations, messages, tools)
            continue
        prompt = opened_as(conversations, messages, tools).prompt
        assert list(prompt.token_ids) == tokenizer.encode(text).token_ids, template_name
        num_equal += 1
    if refused:
        notice(f"gateway, {name}: {len(refused)} templates refuse these messages")
    assert num_equal >= min(len(template_sources), 30)


def test_sessions_of_another_tokenizer_or_template_are_not_found(
    smollm2, tokenizer_folders, template_sources
):
    """The same name may serve other weights after a restart."""
    ours = template_sources["chatml_tools"]
    first = talk(smollm2, ours)[0]
    scopes = {first.scope_of("ann", "m")}
    for folder in tokenizer_folders.values():
        model = Model(Tokenizer.load(folder, ours), ChatTemplate(ours), frozenset(), 16)
        scopes.add(Conversations(model, SessionTree(NullStore(), 2**30)).scope_of("ann", "m"))
    scopes.add(talk(smollm2, ours + " ")[0].scope_of("ann", "m"))
    scopes.add(first.scope_of("bob", "m"))
    assert len(scopes) == len(tokenizer_folders) + 2
    assert talk(smollm2, ours)[0].scope_of("ann", "m") in scopes


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "bos_token"])
def test_template_arguments_cannot_take_the_place_of_the_request(name):
    body = {"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {name: []}}
    assert why_not_exact(body) == f"chat_template_kwargs sets {name}"


def answered(talk: Conversations, opened: Opened, ids: list[int], message: dict[str, Any]) -> None:
    with talk.held(opened):
        talk.record(opened, "ann")
        reply = talk.begin_reply(opened.turn, 0)
        talk.add_piece(reply, ids, message.get("content") or "")
        talk.finish(reply, message, "tool_calls", None)


def test_of_two_agents_with_equal_replies_each_goes_on_with_its_own(smollm2, template_sources):
    """Their replies differ in thoughts that a client drops, and in tool call ids."""
    conversations, tokenizer, _ = talk(smollm2, template_sources["chatml_tools"])
    asked = [{"role": "user", "content": "Read a"}]
    replies = []
    for number in range(2):
        thought = f"plan {number}"
        message = {
            "role": "assistant",
            "content": None,
            "reasoning": thought,
            "tool_calls": [CALL | {"id": f"call-{number}"}],
        }
        ids = list(tokenizer.encode_text(thought))
        answered(conversations, opened_as(conversations, asked, [TOOL]), ids, message)
        replies.append(message)
    for number, message in enumerate(replies):
        shown = {key: value for key, value in message.items() if key != "reasoning"}
        result = {"role": "tool", "tool_call_id": f"call-{number}", "content": "text"}
        opened = opened_as(conversations, [*asked, shown, result], [TOOL])
        assert opened.relation == "extends"
        assert f"plan {number}" in tokenizer.decode(opened.prompt.token_ids)


@pytest.mark.parametrize(
    ("change", "named"),
    [({"tools": []}, "tools"), ({"arguments": {"enable_thinking": False}}, "arguments")],
)
def test_what_else_stands_in_front_is_named(change, named, smollm2, template_sources):
    conversations, tokenizer, _ = talk(smollm2, template_sources["chatml_tools"])
    asked = [{"role": "user", "content": "Hello"}]
    message = {"role": "assistant", "content": "Yes"}
    ids = list(tokenizer.encode_text("Yes"))
    answered(conversations, opened_as(conversations, asked, [TOOL]), ids, message)
    request = {"tools": [TOOL]} | change
    opened = opened_as(conversations, [*asked, message, *asked], **request)
    assert (opened.relation, opened.other_head) == ("new", named)
