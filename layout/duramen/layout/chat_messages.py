"""OpenAI chat messages as vLLM hands them to a chat template.

Templates are written for messages that are not quite OpenAI's: tool arguments as an object instead
of a string, content as text or as a list of parts, whichever the template reads. The rules are
those of vLLM 0.32 (renderers/chat_utils.py, renderers/hf.py), so that equal messages give equal
ids. Two of them are left out: vLLM drops a billing header of one client from system messages, and
merges system messages after it has renamed the role `developer`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jinja2 import nodes

from duramen.layout.errors import TemplateError

Message = Mapping[str, Any]


def template_messages(
    messages: Sequence[Message], *, takes_parts: bool, knows_developer: bool
) -> list[dict[str, Any]]:
    """`takes_parts`: the template reads content part by part; `knows_developer`: it has that role.

    Only fields that vLLM passes on are kept. Nothing in `messages` changes. Raises TemplateError
    for content that is neither text nor a list of parts.
    """
    return [_template_message(m, takes_parts, knows_developer) for m in messages]


def template_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tool definitions with the fields that vLLM passes on, in its order; an absent one is null."""
    definitions = []
    for tool in tools:
        given = tool.get("function") or {}
        function = {key: given.get(key) for key in ("name", "description", "parameters")}
        for key in ("strict", "defer_loading"):
            if given.get(key) is not None:
                function[key] = given[key]
        definitions.append({"type": tool.get("type", "function"), "function": function})
    return definitions


def _template_message(message: Message, takes_parts: bool, knows_developer: bool) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise TemplateError(f"a message must be an object, not {message!r:.40}")
    role = message.get("role")
    parts = _parts(message.get("content"))
    is_text = all(part.get("type") == "text" for part in parts)
    flat = is_text and (not takes_parts or role == "tool")
    result: dict[str, Any] = {
        "role": "system" if role == "developer" and not knows_developer else role,
        "content": "\n".join(part["text"] for part in parts) if flat else parts,
    }
    if role == "assistant":
        if calls := message.get("tool_calls"):
            if not isinstance(calls, Sequence):
                raise TemplateError(f"tool_calls must be a list, not {calls!r:.40}")
            result["tool_calls"] = [_tool_call(call) for call in calls]
        reasoning = message.get("reasoning")
        reasoning = message.get("reasoning_content") if reasoning is None else reasoning
        if reasoning is not None:
            result |= {"reasoning": reasoning, "reasoning_content": reasoning}
    if role == "tool" and "tool_call_id" in message:
        result["tool_call_id"] = message["tool_call_id"]
    if isinstance(message.get("name"), str):
        result["name"] = message["name"]
    return result


def _parts(content: Any) -> list[dict[str, Any]]:
    """Content as a list of parts; text parts without a text are left out, as vLLM does."""
    if content is None:
        return []
    given = [content] if isinstance(content, str) else content
    if not isinstance(given, Sequence):
        raise TemplateError(f"content must be text or a list of parts, not {content!r:.40}")
    parts = []
    for part in given:
        part = {"type": "text", "text": part} if isinstance(part, str) else part
        if not isinstance(part, Mapping):
            raise TemplateError(f"a part of content must be an object or text, not {part!r:.40}")
        text = part.get("text")
        if part.get("type") != "text" or isinstance(text, str):
            parts.append(dict(part))
        elif text is not None:
            raise TemplateError(f"the text of a part must be a string, not {text!r:.40}")
    return parts


def _tool_call(call: Any) -> Any:
    """The call with its arguments as an object; what is no JSON object becomes an empty one."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, Mapping):
        arguments = {}
    return {**call, "function": {**function, "arguments": arguments}}


def takes_parts(tree: nodes.Template) -> bool:
    """Whether the template loops over a message's content, directly or in a macro."""
    items = {loop.target.name for loop in _loops(tree, _message_names(tree))}

    def is_content(node: nodes.Node) -> bool:
        node = _peeled(node)
        if isinstance(node, nodes.Getattr):
            key: object = node.attr
        elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
            key = node.arg.value
        else:
            return False
        return key == "content" and isinstance(node.node, nodes.Name) and node.node.name in items

    in_macros: set[int] = set()
    for macro in tree.find_all(nodes.Macro):
        given = {name for name, value in _arguments(tree, macro) if is_content(value)}
        loops = list(macro.find_all(nodes.For))
        in_macros.update(map(id, loops))
        if any(isinstance(loop.iter, nodes.Name) and loop.iter.name in given for loop in loops):
            return True
    return any(
        is_content(loop.iter)
        or (id(loop) not in in_macros and loop.iter == nodes.Name("content", "load"))
        for loop in tree.find_all(nodes.For)
    )


def _message_names(tree: nodes.Template) -> set[str]:
    """`messages` and every name that is set to them, or to a part of them."""
    names = {"messages"}
    size = 0
    while len(names) > size:
        size = len(names)
        for assign in tree.find_all(nodes.Assign):
            value = _peeled(assign.node)
            is_known = isinstance(value, nodes.Name) and value.name in names
            if is_known and isinstance(assign.target, nodes.Name):
                names.add(assign.target.name)
    return names


def _loops(tree: nodes.Template, names: set[str]) -> Iterator[Any]:
    """The loops over one of `names` that bind a single variable."""
    for loop in tree.find_all(nodes.For):
        over = _peeled(loop.iter)
        is_known = isinstance(over, nodes.Name) and over.name in names
        if is_known and isinstance(loop.target, nodes.Name):
            yield loop


def _arguments(tree: nodes.Template, macro: nodes.Macro) -> Iterator[tuple[str, nodes.Node]]:
    """(parameter, value) of every call of `macro`."""
    for call in tree.find_all(nodes.Call):
        if not (isinstance(call.node, nodes.Name) and call.node.name == macro.name):
            continue
        for parameter, value in zip(macro.args, call.args, strict=False):
            yield parameter.name, value
        for keyword in call.kwargs:
            if isinstance(keyword, nodes.Keyword):
                yield keyword.key, keyword.value


def _peeled(node: nodes.Node) -> nodes.Node:
    """The expression under filters, tests and slices."""
    while True:
        is_slice = isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
        if not (is_slice or isinstance(node, nodes.Filter | nodes.Test)):
            return node
        inner = node.node  # type: ignore[attr-defined]
        if inner is None:
            return node
        node = inner
