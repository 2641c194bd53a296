"""Two breaks in one call, of which the first must be named, and look-alikes that break nothing."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Literal
from unicodedata import normalize

from duramen.experiments.injection.by_blocks import SERIAL, counted, sent
from duramen.experiments.injection.cases import Case, Make, Scene, parted, session_of
from duramen.experiments.injection.edits import (
    copied,
    find,
    text_of,
    with_message,
    with_messages,
)
from duramen.experiments.injection.lab import Lab
from duramen.experiments.injection.oracle import part_of
from duramen.experiments.injection.thoughts import NEXT
from duramen.experiments.trajectory import Call
from duramen.layout.diagnose.causes import Cause

Change = Callable[[dict[str, Any]], Mapping[str, Any]]
FORMS: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")


def then(first: Make, later: Make) -> Make:
    """`first`, and what `later` makes of the same scene on top: it must stand further behind, so
    that the case keeps its first token and its cause."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        seed = rng.random()
        alone = first(scene, Random(seed), lab)
        behind = later(scene, rng, lab)
        if alone is None or behind is None:
            return None
        before, after = behind.sessions[0].calls
        tools = behind.sessions[0].tools
        changed = replace(scene, before=before, after=after, tools=tools)
        both = first(changed, Random(seed), lab)
        if both is None or both.model != behind.model or len(both.sessions) != 1:
            return None
        return both if part_of(lab, both) == part_of(lab, alone) else None

    return make


def followed(first: Make) -> Make:
    """The call after a broken one, which only appends to that: nothing breaks there."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        case = first(scene, rng, lab)
        if case is None or part_of(lab, case) is None:
            return None
        before, after = case.sessions[0].calls
        reply = {"role": "assistant", "content": "Understood, that is done."}
        after = replace(after, reply=reply)
        third = replace(after, messages=(*after.messages, reply, NEXT), reply=None)
        session = replace(case.sessions[0], calls=(before, after, third))
        nothing: frozenset[Cause | None] = frozenset([None])
        return Case(nothing, (session,), ("s", 2), case.model, parts=False)

    return make


def led(first: Make) -> Make:
    """A broken call with more calls before it, that only append: each a reply longer."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        case = first(scene, rng, lab)
        if case is None:
            return None
        before, after = case.sessions[0].calls
        replies = [i for i, m in enumerate(before.messages) if m.get("role") == "assistant"]
        earlier = [
            replace(before, messages=before.messages[:i], reply=before.messages[i])
            for i in replies[-2:]
        ]
        if not earlier:
            return None
        session = replace(case.sessions[0], calls=(*earlier, before, after))
        return replace(case, sessions=(session,), at=("s", len(earlier) + 1))

    return make


def unbroken(
    change: Change, *, first: Change = lambda message: message, tools: Change | None = None
) -> Make:
    """Every old message through `change`, which does not move a token; in both calls `first` was
    made of it before."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        num = len(scene.before.messages)
        given = [first(copied(message)) for message in scene.before.messages]
        old = [change(copied(message)) for message in given]
        before = with_messages(scene.before, given)
        after = with_messages(scene.after, [*old, *scene.after.messages[num:]])
        if tools is not None and scene.tools:
            after = replace(after, tools=tuple(tools(copied(tool)) for tool in scene.tools))
        if json.dumps(old) == json.dumps(given) and after.tools is None:
            return None
        return replace(parted(scene, before, after, None), parts=False)

    return make


def same_text(text: str, model: str) -> Make:
    """Composed and decomposed characters, of which the model's tokenizer makes one."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        index = find(scene.before, "user")
        if index is None:
            return None
        before, after = (
            with_message(
                call, index, content=f"{text_of(call.messages[index])}\n{normalize(form, text)}"
            )
            for call, form in zip(scene.calls, FORMS, strict=True)
        )
        case = parted(scene, before, after, None, model)
        return replace(case, parts=False) if part_of(lab, case) is None else None

    return make


def again(unit: int, *, reported: bool) -> Make:
    """The same prompt once more, which reuses all that can be reused."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        tokens = counted(scene, lab)
        if tokens is None or not tokens.first % unit:
            return None
        got = (tokens.first - 1) // unit * unit if reported else None
        calls: tuple[Call, ...] = (
            sent(scene.before, SERIAL[0], tokens.first, 0 if reported else None),
            sent(scene.before, SERIAL[1], tokens.first, got),
        )
        if not reported:
            calls = (scene.before, scene.before)
        return _fine(scene, calls, unit)

    return make


def delivered(unit: int, facts: dict[str, Any]) -> Make:
    """The engine delivered all that it could."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        tokens = counted(scene, lab)
        if tokens is None or not tokens.common % unit:  # the reply's last token is never computed
            return None
        calls = (
            sent(scene.before, SERIAL[0], tokens.first, 0, **facts),
            sent(scene.after, SERIAL[1], tokens.second, tokens.reusable(unit), **facts),
        )
        return _fine(scene, calls, unit)

    return make


def _fine(scene: Scene, calls: tuple[Call, ...], unit: int) -> Case:
    session = session_of(calls, scene.tools)
    nothing = frozenset([None])
    return Case(nothing, (session,), ("s", 1), settings={"unit_tokens": unit}, parts=False)
