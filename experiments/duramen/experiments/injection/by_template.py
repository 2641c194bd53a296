"""Templates that write the past otherwise: options, hoisted system text, tools behind messages."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from duramen.experiments.injection.cases import START_S, Case, Make, Scene, parted
from duramen.experiments.injection.edits import text_of, with_messages, with_system
from duramen.experiments.injection.lab import Lab
from duramen.experiments.injection.thoughts import NEXT
from duramen.experiments.trajectory import Message, Sending, Session, Tool
from duramen.layout.diagnose.causes import Cause


def option(
    model: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    also: tuple[Cause, ...] = (),
) -> Make:
    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        return parted(
            scene,
            replace(scene.before, sending=Sending(options=before)),
            replace(scene.after, sending=Sending(options=after)),
            frozenset(["template-option", *also]),
            model,
        )

    return make


def date(model: str, later_s: float) -> Make:
    """The template writes the time of the call. Either name is fair: an option's value, a clock."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        calls = (replace(scene.before, time_s=0.0), replace(scene.after, time_s=later_s))
        session = Session("s", calls, scene.tools, start_time_s=START_S + rng.randrange(10**6))
        return Case(frozenset(["clock", "template-option"]), (session,), ("s", 1), model)

    return make


def template_hoists(model: str, text: str, role: str = "system") -> Make:
    """A system message that comes late, which the template writes in front."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        before, after = with_system(scene.before), with_system(scene.after)
        late = [{"role": role, "content": text}, NEXT]
        after = with_messages(after, [*after.messages, *late])
        return parted(scene, before, after, "system-hoist", model)

    return make


def client_hoists(text: str, joiner: str, *, at: int, role: str = "system") -> Make:
    """A system message that stood inside the earlier call is part of the later one's first."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        before, after = with_system(scene.before), with_system(scene.after)
        place = _between_turns(before.messages, at)
        if place is None:
            return None
        late: Message = {"role": role, "content": text}
        first = with_messages(before, [*before.messages[:place], late, *before.messages[place:]])
        head = {**after.messages[0], "content": f"{text_of(after.messages[0])}{joiner}{text}"}
        return parted(
            scene, first, with_messages(after, [head, *after.messages[1:]]), "system-hoist"
        )

    return make


def _between_turns(messages: tuple[Message, ...], at: int) -> int | None:
    """A place behind message `at` that is not between a tool call and its result."""
    places = [
        i
        for i in range(max(at, 2), len(messages))
        if messages[i].get("role") != "tool" and not messages[i - 1].get("tool_calls")
    ]
    return places[0] if places else None


def tools_behind(model: str, tools: tuple[Tool, ...]) -> Make:
    """The template writes the tools behind messages, so that each new one moves them. A template
    that writes them into the newest user message moves them only when a user speaks."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        after = scene.after
        if after.messages[-1].get("role") != "user":
            after = with_messages(after, [*after.messages, NEXT])
        with_tools = replace(scene, tools=(*scene.tools, *tools))
        return parted(with_tools, scene.before, after, "input-before-tools", model)

    return make


def template_merges(model: str, role: str, texts: tuple[str, str]) -> Make:
    """Neighbours of one role, the second of them new: the template puts both into one turn."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        first, second = ({"role": role, "content": text} for text in texts)
        messages = scene.before.messages
        if messages[-1].get("role") == role:
            return None
        before = with_messages(replace(scene.before, reply=None), [*messages, first])
        after = with_messages(scene.after, [*messages, first, second])
        return parted(scene, before, after, "role-merge", model)

    return make
