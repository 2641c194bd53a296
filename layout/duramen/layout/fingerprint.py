"""What of a message must be equal for a conversation to be the same one.

A client sends the past back as its libraries write it. `loose` prints are the same whatever such a
round trip does: JSON is read and written anew, content becomes parts or text, null or nothing, its
outer blanks go, reasoning is dropped, fields are added, tool calls get other ids. Any other change
is an edit and changes them. `strict` prints also tell apart whatever a chat template could see.

What is digested is MessagePack or JSON, so that no two different values are written alike.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from duramen.layout.chat_messages import Message, template_messages, template_tools
from duramen.layout.errors import LayoutError

_Place = tuple[int, int]  # of a tool call: message, ordinal in it


@dataclass(frozen=True)
class MessagePrint:
    """Two digests of 16 bytes; equal `strict` implies equal `loose`."""

    loose: bytes
    strict: bytes


def message_prints(messages: Sequence[Message]) -> list[MessagePrint]:
    """One for each of `messages`, which are a conversation from its first message on: a tool result
    is printed by the place of the call that it answers. Raises LayoutError for what is no message.
    """
    try:
        return _message_prints(messages)
    except RecursionError:
        raise LayoutError("messages that are nested too deeply") from None


def chain(prints: Sequence[MessagePrint], before: bytes = bytes(16)) -> list[bytes]:
    """For each message 16 bytes that identify it and all before it, by their `loose` prints.
    `before` is the last key of the chain that this one continues."""
    keys = []
    for one in prints:
        before = blake2b(before + one.loose, digest_size=16, person=b"chain").digest()
        keys.append(before)
    return keys


def head_digest(tools: Sequence[Mapping[str, Any]] | None, arguments: Mapping[str, Any]) -> bytes:
    """16 bytes that identify what a conversation is rendered with: tool definitions as the template
    sees them, the order of tools and keys included, and its arguments. Raises LayoutError for what
    is no tool definition."""
    named = sorted(arguments.items(), key=lambda item: str(item[0]))
    return _digest(b"head", _exactly([_seen_tools(tools), named]))


def _message_prints(messages: Sequence[Message]) -> list[MessagePrint]:
    prints = []
    calls: dict[str, _Place] = {}
    for index, message in enumerate(messages):
        if (plain := _plain_print(message)) is not None:
            prints.append(plain)
            continue
        (seen,) = template_messages([message], takes_parts=True, knows_developer=True)
        content, form = _content(seen["content"])
        fields = _exactly(_loose_fields(message, seen, index, calls))
        loose = _digest(b"loose", fields + content.encode("utf-8", "surrogatepass"))
        strict = _digest(loose, _exactly({**seen, "content": form}))
        prints.append(MessagePrint(loose, strict))
        if "tool_calls" in seen:
            calls |= _call_places(seen["tool_calls"], index)
    return prints


def _plain_print(message: Message) -> MessagePrint | None:
    """The print of a message of nothing but a role and a text, as most are; None for another."""
    if not isinstance(message, Mapping) or len(message) != 2:
        return None
    role, text = message.get("role"), message.get("content")
    if type(role) is not str or role == "tool" or type(text) is not str:
        return None
    inner, blanks = _without_blanks(text)
    seen = {"role": role, "content": [*blanks, [{"type": "text", "text": len(text)}]]}
    loose = _digest(b"loose", _exactly([role, True]) + inner.encode("utf-8", "surrogatepass"))
    return MessagePrint(loose, _digest(loose, _exactly(seen)))


def _digest(kind: bytes, data: bytes) -> bytes:
    return blake2b(data, digest_size=16, key=kind).digest()


def _seen_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    if tools is not None and (isinstance(tools, str) or not isinstance(tools, Sequence)):
        raise LayoutError(f"tools must be a list, not {type(tools).__name__}")
    for tool in tools or ():
        function = tool.get("function") if isinstance(tool, Mapping) else tool
        if function is not None and not isinstance(function, Mapping):
            raise LayoutError("each tool must be an object whose `function` is one")
    return template_tools(tools or ())


def _loose_fields(
    message: Message, seen: Mapping[str, Any], index: int, calls: Mapping[str, _Place]
) -> list[Any]:
    """All but the content. `seen`: the message as a template gets it; `calls`: id -> place of the
    calls before it."""
    fields: list[Any] = [seen["role"], _is_text(seen["content"])]
    if "tool_calls" in seen:
        fields += (["call", *_loose_call(call)] for call in message["tool_calls"])
    if (answered := seen.get("tool_call_id")) is not None:
        place = calls.get(_id_text(answered))
        known = [answered] if place is None else [index - place[0], place[1]]
        fields.append(["answers", *known])
    if "name" in seen:
        fields.append(["name", seen["name"]])
    return fields


def _is_text(content: Any) -> bool:
    return isinstance(content, str) or all(part.get("type") == "text" for part in content)


def _content(content: Any) -> tuple[str, Any]:
    """What a client keeps of it: text without outer blanks, or JSON where parts are no text. And
    what else there is to tell: those blanks, and which parts of which length there are."""
    if not _is_text(content):
        parts = [part["text"] if part.get("type") == "text" else part for part in content]
        return _loose_json(parts), content
    text, form = content, None
    if not isinstance(content, str):
        text = "\n".join([part["text"] for part in content])
        form = [{**part, "text": len(part["text"])} for part in content]
    inner, blanks = _without_blanks(text)
    return inner, [*blanks, form]


def _without_blanks(text: str) -> tuple[str, tuple[str, str]]:
    inner = text.strip()
    start = len(text) - len(text.lstrip())
    return inner, (text[:start], text[start + len(inner) :])


def _loose_call(call: Any) -> list[Any]:
    """`call` as the client sent it, without its id and the fields that nothing reads."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        known = call.items() if isinstance(call, Mapping) else [("", call)]
        return ["odd", _loose_json({key: value for key, value in known if key != "id"})]
    kind, name = call.get("type"), function.get("name")
    return ["function" if kind is None else kind, name, *_loose_arguments(function)]


def _loose_arguments(function: Mapping[str, Any]) -> list[str]:
    given = function.get("arguments")
    if given is None or given == "":
        return ["{}"]
    if not isinstance(given, str):
        return [_loose_json(given)]
    try:
        return [_written(_READ_LOOSELY(given), _SORTED)]
    except (ValueError, RecursionError, LayoutError):
        return ["broken", given.strip()]


def _call_places(calls: Sequence[Any], index: int) -> dict[str, _Place]:
    places: dict[str, _Place] = {}
    for ordinal, call in enumerate(calls):
        if isinstance(call, Mapping) and call.get("id") is not None:
            places.setdefault(_id_text(call["id"]), (index, ordinal))
    return places


def _id_text(call_id: Any) -> str:
    return f'"{call_id}' if isinstance(call_id, str) else _written(call_id, _EXACT)


def _number(literal: str) -> int | float:
    """1.0 and 1e0 are 1. Raises ValueError for what no double can hold."""
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(literal)
    return int(value) if value.is_integer() else value


_READ_LOOSELY = json.JSONDecoder(parse_float=_number, parse_constant=_number).decode
_EXACT = json.JSONEncoder(check_circular=False)
_SORTED = json.JSONEncoder(check_circular=False, sort_keys=True)


def _loose_json(value: Any) -> str:
    """`value` as JSON that is the same for any order of keys, and 1 for 1.0."""
    try:
        return _written(_READ_LOOSELY(_written(value, _EXACT)), _SORTED)
    except (ValueError, RecursionError):
        raise LayoutError("a number that JSON cannot hold, or nested too deeply") from None


def _exactly(value: Any) -> bytes:
    """`value` as MessagePack; as JSON behind a byte that MessagePack never begins with where it has
    what only JSON can write: ints of more than 64 bits, lone surrogates."""
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError, TypeError):
        return b"\xc1" + _written(value, _EXACT).encode()
    except RecursionError:
        raise LayoutError("JSON that is nested too deeply") from None


def _written(value: Any, encoder: json.JSONEncoder) -> str:
    try:
        return encoder.encode(value)
    except (TypeError, ValueError):  # other types; an int of too many digits
        raise LayoutError("a value that JSON cannot hold") from None
    except RecursionError:
        raise LayoutError("JSON that is nested too deeply") from None
