"""A request body or a response of any of the three APIs: chat completions, Anthropic, Responses."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from duramen.experiments.importers.anthropic_body import (
    is_anthropic_body,
    is_anthropic_reply,
    read_anthropic_body,
    read_anthropic_reply,
)
from duramen.experiments.importers.body import Body, options_in, text_in, unmarked
from duramen.experiments.importers.messages import (
    check_list,
    check_messages,
    check_object,
    check_reply,
    check_tools,
    fail,
)
from duramen.experiments.importers.responses_body import (
    is_responses_body,
    is_responses_reply,
    read_responses_body,
    read_responses_reply,
)
from duramen.experiments.trajectory import Message, Sending

CHAT_OPTIONS = (  # of OpenAI, vLLM and SGLang: what a chat template or the prompt's head is made of
    "reasoning_effort",
    "reasoning",
    "thinking",
    "tool_choice",
    "response_format",
    "chat_template",
    "chat_template_kwargs",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
)


def is_body(value: Any) -> bool:
    return isinstance(value, dict) and ("messages" in value or is_responses_body(value))


def read_body(value: Any, where: str) -> Body:
    """Raises TrajectoryError, with `where` and the field, at what is no body of these APIs."""
    if is_responses_body(value):
        return read_responses_body(value, where)
    if is_anthropic_body(value):
        return read_anthropic_body(value, where)
    body = check_object(value, where, "the body")
    given = body.get("tools")
    tools = () if given is None else check_tools(given, where)
    messages, tools, marks = unmarked(check_messages(body.get("messages"), where), tools)
    return Body(messages, tools, replace(chat_sending(body), marks=marks))


def chat_sending(body: Mapping[str, Any]) -> Sending:
    return Sending(
        model=text_in(body, "model"),
        salt=text_in(body, "cache_salt"),
        options=options_in(body, CHAT_OPTIONS),
        keys=tuple(body),
    )


def read_reply(value: Any, where: str, field: str) -> Message | None:
    """The assistant's message of a response: a chat completion, an Anthropic message, a response of
    Responses, {"message": ...}, a message or text. None for null, and for an error in its place."""
    match value:
        case None | {"error": dict() | str()}:
            return None
        case str():
            return {"role": "assistant", "content": value}
        case {"choices": choices}:
            return choice_in(choices, where, f"{field}.choices")
        case dict() if is_responses_reply(value):
            return read_responses_reply(value, where, field)
        case dict() if is_anthropic_reply(value) or _has_blocks(value):
            return read_anthropic_reply(value, where, field)
        case {"message": message}:
            return check_reply(message, where, f"{field}.message")
        case {"role": _}:
            return check_reply(value, where, field)
        case _:
            raise fail(where, field, value, "a chat completion, a message, text or null")


def choice_in(value: Any, where: str, field: str) -> Message:
    """The first of several choices: it is the one that agents go on with."""
    choices = check_list(value, where, field)
    if not choices:
        raise fail(where, field, choices, "at least one choice")
    choice = check_object(choices[0], where, f"{field}[0]")
    return check_reply(choice.get("message"), where, f"{field}[0].message")


def _has_blocks(value: Mapping[str, Any]) -> bool:
    """Whether a message of the assistant is Anthropic's by its blocks."""
    return value.get("role") == "assistant" and is_anthropic_body({"messages": [value]})


def with_answer(sending: Sending, response: Any, http: Any = None) -> Sending:
    """What a response, and the HTTP message around it if that was logged, tell: the replica that
    answered, and the token ids where vLLM was asked for them (return_token_ids)."""
    if not isinstance(response, dict):
        return sending
    headers = http.get("headers") if isinstance(http, dict) else None
    names = (
        {str(key).lower(): value for key, value in headers.items()}
        if isinstance(headers, dict)
        else {}
    )
    choices = response.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return replace(
        sending,
        model=sending.model or text_in(response, "model"),
        replica=text_in(names, "x-served-by") or text_in(response, "system_fingerprint"),
        token_ids=_token_ids(response.get("prompt_token_ids")),
        reply_ids=_token_ids(choice.get("token_ids")) if isinstance(choice, dict) else None,
    )


def _token_ids(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list) or not value:
        return None
    good = all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < 2**32 for i in value)
    return tuple(value) if good else None
