"""Claims about the chat template: our ids for messages are those of vLLM."""

import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

from duramen.layout.blocks import common_prefix
from duramen.layout.chat_messages import template_tools
from duramen.layout.errors import LayoutError, RequestError, TemplateError
from duramen.layout.transcript import Transcript
from duramen.serving.verify.claim import Claim, NotTried, Seen
from duramen.serving.verify.subject import Prompts, Subject

TOKENIZE, RENDER = "/tokenize", "/v1/chat/completions/render"


class Conversation(NamedTuple):
    name: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]


TOOL = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Read a file, “quoted” or not.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
CALL = {
    "id": "call00001",  # nine letters and digits: what Mistral's templates insist on
    "type": "function",
    "function": {"name": "read", "arguments": '{"path": "a.py"}'},
}
USER = {"role": "user", "content": "  Hello there, naïve 日本 🎉 \n"}
SYSTEM = {"role": "system", "content": "You are terse.\n"}
SURE = {"role": "user", "content": "Sure?"}
CONVERSATIONS = (
    Conversation("one user message", [USER], []),
    Conversation(
        "system and two turns",
        [
            SYSTEM,
            USER,
            {"role": "assistant", "content": "Hi."},
            {"role": "user", "content": "Sure?"},
        ],
        [],
    ),
    Conversation(
        "content in parts",
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            }
        ],
        [],
    ),
    Conversation("tools", [SYSTEM, USER], [TOOL]),
    Conversation(
        "a tool's result",
        [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": CALL["id"], "content": "def f():\n\treturn 1\n"},
        ],
        [TOOL],
    ),
    Conversation(
        "thinking",
        [
            USER,
            {"role": "assistant", "reasoning": "A greeting.", "content": "Hi."},
            SURE,
        ],
        [],
    ),
)


async def _tokenize(subject: Subject) -> Seen:
    return await _compare(subject, TOKENIZE, "tokens")


async def _render(subject: Subject) -> Seen:
    return await _compare(subject, RENDER, "token_ids")


async def _compare(subject: Subject, path: str, field: str) -> Seen:
    prompts = _prompts(subject)
    refused, differ = [], []
    for conversation in CONVERSATIONS:
        ours = _own_ids(prompts, conversation)
        theirs = await _their_ids(subject, path, field, conversation)
        if ours is None and theirs is None:
            refused.append(conversation.name)
        elif ours is None or theirs is None:
            differ.append(f"{conversation.name}: only {'we' if ours is None else 'vLLM'} refuse it")
        elif list(ours) != theirs:
            token = common_prefix(list(ours), theirs)
            differ.append(f"{conversation.name}: token {token} is another")
    same = len(CONVERSATIONS) - len(refused) - len(differ)
    if same + len(differ) == 0:
        raise NotTried("the template refuses every conversation that was tried")
    saw = f"{same} of {len(CONVERSATIONS)} the same"
    saw += f", refused by both: {', '.join(refused)}" if refused else ""
    return Seen(not differ, "; ".join([saw, *differ]))


async def _control_text(subject: Subject) -> Seen:
    """The one wanted difference: to vLLM a control token's spelling in data is that token."""
    prompts = _prompts(subject)
    plain = _own_ids(prompts, Conversation("", [{"role": "user", "content": "xy"}], []))
    controls = {token.id: token.content for token in prompts.tokenizer.control.values()}
    opener = next((i for i in plain or () if i in controls), None)
    if opener is None:
        raise NotTried("the template writes no control token")
    attack = Conversation("", [{"role": "user", "content": f"x{controls[opener]}y"}], [])
    ours, theirs = _own_ids(prompts, attack), await _their_ids(subject, TOKENIZE, "tokens", attack)
    if ours is None or theirs is None:
        raise NotTried("the template refuses the spelling of a control token")
    more = theirs.count(opener) - list(ours).count(opener)
    return Seen(more == 1, f"vLLM's prompt has {more} more of {controls[opener]} than ours")


def _prompts(subject: Subject) -> Prompts:
    if subject.prompts is None:
        raise NotTried("no tokenizer and template to compare with: give --tokenizer DIR")
    return subject.prompts


def _own_ids(prompts: Prompts, conversation: Conversation) -> Sequence[int] | None:
    """None where the template refuses the conversation."""
    transcript = Transcript(
        prompts.tokenizer,
        prompts.template,
        tools=template_tools(conversation.tools),
        now=datetime.datetime.now().astimezone(),
    )
    try:
        return transcript.start(prompts.template.prepared(conversation.messages)).token_ids
    except TemplateError:
        return None
    except LayoutError as error:
        raise NotTried(str(error)) from None


async def _their_ids(
    subject: Subject, path: str, field: str, conversation: Conversation
) -> list[int] | None:
    """None where the server refuses the conversation."""
    body: dict[str, Any] = {"model": subject.facts.model, "messages": conversation.messages}
    if conversation.tools:
        body["tools"] = conversation.tools
    try:
        answer = await subject.http.post(path, body)
    except RequestError as error:
        if error.status in (404, 405):
            raise NotTried(f"the server has no {path}") from None
        return None
    return list(answer[field])


EQUALITY = "layout/template.py, layout/tokenizer.py: prompts are what vLLM would make of messages"
CLAIMS = (
    Claim(
        "tokenize-equals-ours",
        f"{TOKENIZE} of {len(CONVERSATIONS)} conversations: tools, results, parts, thinking",
        "the same ids, and the same refusals",
        EQUALITY,
        _tokenize,
    ),
    Claim(
        "render-equals-ours",
        f"{RENDER} of the same conversations",
        "the same ids, and the same refusals",
        EQUALITY,
        _render,
    ),
    Claim(
        "control-text-differs",
        f"{TOKENIZE} of a user message that spells a control token",
        "vLLM makes it that token, we keep it as text: the one wanted difference",
        "docs/how-it-works.md: data never becomes a control token",
        _control_text,
        needed=False,
    ),
)
