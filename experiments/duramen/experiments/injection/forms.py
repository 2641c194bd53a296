"""The same said in another form: JSON keys, blanks, Unicode, parts, merged messages."""

import json
import unicodedata
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal, NamedTuple

from duramen.experiments.injection.cases import Case, Make, Scene, Variant, parted
from duramen.experiments.injection.edits import (
    Place,
    copied,
    edited_text,
    find,
    of_tools,
    place_of,
    reordered,
    shuffled,
    text_of,
    with_line,
    with_message,
    with_messages,
    with_system,
)
from duramen.experiments.injection.lab import Lab
from duramen.experiments.trajectory import Call, Message
from duramen.layout.diagnose.causes import Cause

Order = Literal["sorted", "reversed", "shuffled"]
Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
Edit = Callable[[str], str]


def keys_in(order: Order, rng: Random) -> Callable[[list[str]], list[str]]:
    if order == "sorted":
        return lambda keys: sorted(keys)
    return shuffled(rng) if order == "shuffled" else lambda keys: keys[::-1]


def json_text(
    value: Any, line: str, place: Place, order: Order, depth: int = 0, **dumps: Any
) -> Make:
    """JSON inside a text, its keys in another order from `depth` levels down."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        turned = reordered(value, keys_in(order, rng), depth)
        texts = [json.dumps(each, ensure_ascii=False, **dumps) for each in (value, turned)]
        return lines(
            scene,
            place,
            line.replace("{}", texts[0]),
            line.replace("{}", texts[1]),
            "json-key-order",
        )

    return make


def lines(
    scene: Scene, place: Place, before: str, after: str, causes: Cause | frozenset[Cause | None]
) -> Case | None:
    """One line in each of the calls, at the same place."""
    if before == after:
        return None
    first = with_line(scene.before, of_tools(scene.tools, scene.before), place, before)
    second = with_line(scene.after, of_tools(scene.tools, scene.after), place, after)
    return None if first is None or second is None else parted(scene, first, second, causes)


def schema_keys(order: Order, depth: int) -> Make:
    """Keys of the tools' parameter schemas; 0: of the schema itself, 1: names of parameters, ..."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        tools = copied(scene.tools)
        for tool in tools:
            parameters = tool["function"].get("parameters", {})
            tool["function"]["parameters"] = reordered(parameters, keys_in(order, rng), depth)
        if json.dumps(tools) == json.dumps(scene.tools):
            return None
        return parted(
            scene,
            scene.before,
            Call(scene.after.messages, scene.after.reply, tools=tuple(tools)),
            "json-key-order",
        )

    return make


def argument_keys(order: Order, which: int = 0) -> Make:
    """Keys of the arguments of a tool call in history, written again."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        def turn(text: str) -> str:
            return json.dumps(reordered(json.loads(text), keys_in(order, rng)))

        changed = with_arguments(scene.before, scene.after, which, turn)
        return None if changed is None else parted(scene, scene.before, changed, "json-key-order")

    return make


def with_arguments(before: Call, after: Call, which: int, turn: Edit) -> Call | None:
    """The which-th tool call of the earlier call's messages whose arguments `turn` changes."""
    changed = []
    for index, message in enumerate(before.messages):
        for number, call in enumerate(message.get("tool_calls") or []):
            text = call["function"]["arguments"]
            try:
                turned = turn(text)
            except (ValueError, TypeError):
                continue
            if turned != text and json.loads(text):
                changed.append((index, number, turned))
    if not -len(changed) <= which < len(changed):
        return None
    index, number, turned = changed[which]
    calls = copied(after.messages[index]["tool_calls"])
    calls[number]["function"]["arguments"] = turned
    return with_message(after, index, tool_calls=calls)


def rewritten(cause: Cause, place: Place, edit: Edit, also: tuple[Cause, ...] = ()) -> Make:
    """The text at a place of the earlier call, edited in the later one."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        before = with_system(scene.before) if place.startswith("system") else scene.before
        after = with_system(scene.after) if place.startswith("system") else scene.after
        index = place_of(before, place)
        if index is None:
            return None
        if edit(text_of(before.messages[index])) == text_of(before.messages[index]):
            before, after = (enriched(call, index) for call in (before, after))
        edited = edited_text(after, place, edit)
        if edited is None:
            return None
        return parted(scene, before, edited, frozenset([cause, *also]))

    return make


def white(name: str, place: Place, edit: Edit) -> Variant:
    """Blanks and line ends that differ."""
    return Variant("whitespace", name, rewritten("whitespace", place, edit))


def normalised(text: str, place: Place, before: Form, after: Form) -> Make:
    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        first, later = (unicodedata.normalize(form, text) for form in (before, after))
        return lines(scene, place, first, later, "unicode-normalisation")

    return make


RICH = """\
One more thing. It is long, so take your time.
Tell me when it is done.


    if ready:
        start()
\tif not:   wait()

- first, the list
- then, the rest\x20
"""


def enriched(call: Call, index: int) -> Call:
    """The call with more to message `index`: paragraphs, blank lines, indents, trailing blanks."""
    return with_message(call, index, content=f"{text_of(call.messages[index])}\n{RICH}")


Split = Callable[[str], list[str]]


class Parts(NamedTuple):
    """Content cut in parts. `role`: whose. `first`: the parts come first, then the text."""

    role: str
    split: Split
    which: int = 0
    first: bool = False


def as_parts(parts: Parts) -> Make:
    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        index = find(scene.before, parts.role, parts.which, longer_than=40)
        if index is None:
            return None
        before, after = scene.calls
        pieces = parts.split(text_of(before.messages[index]))
        if len(pieces) < 2:
            before, after = (enriched(call, index) for call in scene.calls)
            pieces = parts.split(text_of(before.messages[index]))
        if len(pieces) < 2:
            return None
        content = [{"type": "text", "text": piece} for piece in pieces]
        if parts.first:
            before = with_message(before, index, content=content)
        else:
            after = with_message(after, index, content=content)
        return parted(scene, before, after, "content-parts-vs-string")

    return make


def said(role: str, *texts: str) -> list[Message]:
    return [{"role": role, "content": text} for text in texts]


def merged(added: Sequence[Message], joiner: str, *, at: int, undone: bool = False) -> Make:
    """Neighbours of one role, `added` to both calls behind message `at`, one message in the later
    call; `undone`: one in the earlier, several in the later."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        if not (tail := _place_for(scene, added, at)):
            return None
        texts = joiner.join(text_of(m) for m in added)
        one: Sequence[Message] = [{**added[0], **added[-1], "content": texts}]
        first, later = (one, added) if undone else (added, one)
        before = with_messages(scene.before, _with(scene.before, tail, first))
        after = with_messages(scene.after, _with(scene.after, tail, later))
        return parted(scene, before, after, "role-merge")

    return make


def _with(call: Call, at: int, messages: Sequence[Message]) -> list[Message]:
    return [*call.messages[:at], *messages, *call.messages[at:]]


def _place_for(scene: Scene, added: Sequence[Message], at: int) -> int | None:
    """Behind message `at` or else further in front: between messages of other roles, and not
    between a tool call and its results."""
    messages = scene.before.messages
    for index in [*range(at, len(messages)), *range(1, at)]:
        if index >= len(messages):
            continue
        before, behind = (str(messages[i].get("role")) for i in (index - 1, index))
        if added[0]["role"] not in (before, behind) and behind != "tool":
            return int(index)
    return None
