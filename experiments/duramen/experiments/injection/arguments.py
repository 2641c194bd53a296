"""Arguments of tool calls that were read and written again, and are spelled otherwise."""

import json
from dataclasses import replace
from random import Random

from duramen.experiments.history import Turn
from duramen.experiments.injection.cases import START_S, Case, Make, Scene, parted
from duramen.experiments.injection.edits import with_messages
from duramen.experiments.injection.forms import lines
from duramen.experiments.injection.lab import Lab
from duramen.experiments.trajectory import Message, Sending
from duramen.layout.diagnose.causes import Cause

CAUSE: Cause = "re-serialised-arguments"


def exchange(name: str, arguments: str, result: str = "ok") -> list[Message]:
    call = {"id": "call_x1", "type": "function"}
    function = {"name": name, "arguments": arguments}
    return [
        {"role": "assistant", "content": "", "tool_calls": [{**call, "function": function}]},
        {"role": "tool", "tool_call_id": "call_x1", "content": result},
    ]


def respelled(name: str, before: str, after: str, also: tuple[Cause, ...] = ()) -> Make:
    """A tool call in history whose arguments differ between the calls."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        place = _before_last_user(scene)
        if place is None:
            return None
        first, later = (
            with_messages(
                call, [*call.messages[:place], *exchange(name, text), *call.messages[place:]]
            )
            for call, text in zip(scene.calls, (before, after), strict=True)
        )
        return parted(scene, first, later, frozenset([CAUSE, *also]))

    return make


def _before_last_user(scene: Scene) -> int | None:
    messages = scene.before.messages
    users = [i for i, m in enumerate(messages) if i > 1 and m.get("role") == "user"]
    return users[-1] if users else len(messages) if messages[-1].get("role") == "tool" else None


def sampled(name: str, raw: str, *, model: str = "chatml") -> Make:
    """The model wrote its arguments as `raw`, which the template writes in its own way."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        reply, result = exchange(name, raw)
        before = replace(scene.before, reply=reply)
        turn = Turn(before.messages, scene.tools)
        tokenizer = lab.model(model).tokenizer
        ids = lab.spelled(model, turn, START_S, reply)
        text = tokenizer.full.decode(ids, skip_special_tokens=False)
        written = json.dumps(json.loads(raw), ensure_ascii=False)
        if text.count(written) != 1:
            return None
        own = text.replace(written, raw)
        sampled_ids = tokenizer.full.encode(own, add_special_tokens=False).ids
        before = replace(before, sending=Sending(reply_ids=tuple(sampled_ids)))
        after = with_messages(scene.after, [*before.messages, reply, result])
        return parted(scene, before, after, CAUSE, model)

    return make


def in_text(line: str, before: str, after: str, also: tuple[Cause, ...] = ()) -> Make:
    """The call stands in a reply's text, as agents without a tool interface have it."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        first, later = (line.replace("{}", text) for text in (before, after))
        return lines(scene, "reply", first, later, frozenset([CAUSE, *also]))

    return make
