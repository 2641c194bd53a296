"""Thinking that leaves the prompt, and empty thinking that comes or goes."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from duramen.experiments.history import Turn
from duramen.experiments.injection.cases import START_S, Case, Make, Scene, parted
from duramen.experiments.injection.edits import find, text_of, with_message, with_messages
from duramen.experiments.injection.lab import Lab
from duramen.experiments.trajectory import Call, Message, Sending
from duramen.layout.diagnose.causes import Cause

NEXT: Message = {"role": "user", "content": "Good. Now do the same for the second one."}


def template_strips(
    model: str,
    thought: str,
    *,
    inline: tuple[str, str] | None = None,
    ids: bool = False,
    sampled: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Make:
    """The template leaves the reply's thinking out once a user has spoken. `inline`: it stands in
    the reply's text between these tags, else in a field. `ids`: the reply's ids are on record.
    `sampled`: they are those of its text with this behind it, whatever the template makes of it.
    `options`: of both calls."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        reply = _quoted(scene)
        if reply is None:
            return None
        reply = thinking(reply, thought, inline)
        sending = Sending(options=dict(options or {}))
        before = replace(scene.before, reply=reply, sending=sending)
        rest = scene.after.messages[len(scene.before.messages) + 1 :]
        if not any(m.get("role") == "user" for m in rest):
            rest = (*rest, NEXT)
        messages = [*scene.before.messages, reply, *rest]
        after = replace(with_messages(scene.after, messages), sending=sending)
        if sampled is not None:
            tokenizer = lab.model(model).tokenizer.full
            said = tokenizer.encode(text_of(reply) + sampled, add_special_tokens=False).ids
            before = replace(before, sending=replace(sending, reply_ids=tuple(said)))
        elif ids:
            before = with_reply_ids(lab, model, scene, before)
        return parted(scene, before, after, "thinking-stripped", model)

    return make


def _quoted(scene: Scene) -> Message | None:
    reply = scene.after.messages[len(scene.before.messages)]
    return reply if text_of(reply) else None


def thinking(message: Message, thought: str, inline: tuple[str, str] | None) -> Message:
    if inline is None:
        return {**message, "reasoning_content": thought}
    return {**message, "content": f"{inline[0]}{thought}{inline[1]}{text_of(message)}"}


def with_reply_ids(lab: Lab, model: str, scene: Scene, call: Call) -> Call:
    """The call with its reply's ids on record, as the model would have sampled them."""
    assert call.reply is not None
    turn = Turn(call.messages, scene.tools if call.tools is None else call.tools)
    ids = lab.spelled(model, turn, START_S, call.reply)
    return replace(call, sending=replace(call.sending, reply_ids=tuple(ids)))


def client_drops(
    thought: str,
    *,
    which: int | None,
    inline: tuple[str, str] | None = None,
    field: str = "reasoning_content",
    cause: Cause = "thinking-stripped",
    undone: bool = False,
) -> Make:
    """The client sends an older reply without its thinking. `which`: of the assistant messages of
    the earlier call; None: its own reply, whose ids are on record. `undone`: the earlier call
    lacks it and the later one has it."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        index = (
            len(scene.before.messages)
            if which is None
            else find(scene.before, "assistant", which, longer_than=10)
        )
        if index is None or not text_of(scene.after.messages[index]):
            return None
        message = thinking(scene.after.messages[index], thought, inline)
        if inline is None and field != "reasoning_content":
            message = {**message, field: thought}
            del message["reasoning_content"]
        if which is None:
            before = with_reply_ids(lab, "chatml", scene, replace(scene.before, reply=message))
            return parted(scene, before, scene.after, cause)
        with_thought, without = with_message(scene.before, index, **message), scene.after
        if undone:
            with_thought, without = scene.before, with_message(scene.after, index, **message)
        return parted(scene, with_thought, without, cause)

    return make


def all_dropped(thought: str) -> Make:
    """Every older reply had thinking, and none has it in the later call."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        messages = [
            thinking(m, f"{thought} ({i})", None) if m.get("role") == "assistant" else m
            for i, m in enumerate(scene.before.messages)
        ]
        if messages == list(scene.before.messages):
            return None
        return parted(
            scene, with_messages(scene.before, messages), scene.after, "thinking-stripped"
        )

    return make


def empty_asked(model: str, options: Mapping[str, Any] | None = None) -> Make:
    """The prompt asks behind an empty thinking block that history does not write."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        if _quoted(scene) is None:
            return None
        rest = scene.after.messages
        if rest[-1].get("role") != "user":
            rest = (*rest, NEXT)
        sending = Sending(options=dict(options or {}))
        before = replace(scene.before, sending=sending)
        after = replace(with_messages(scene.after, rest), sending=sending)
        return parted(scene, before, after, "empty-thinking", model)

    return make


def empty_in_turn(model: str) -> Make:
    """Replies of the current turn have an empty block, which they lose once the user speaks."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        last = scene.before.messages[-1]
        if last.get("role") != "tool":
            return None
        after = with_messages(scene.after, [*scene.after.messages, NEXT])
        return parted(scene, scene.before, after, "empty-thinking", model)

    return make
