"""What whole units forbid: prompts shorter than one, the last token, the draft model's unit."""

from dataclasses import replace
from random import Random

from duramen.experiments.injection.by_blocks import SERIAL, block_case, counted, sent
from duramen.experiments.injection.cases import Case, Make, Scene, session_of
from duramen.experiments.injection.edits import find, text_of
from duramen.experiments.injection.lab import Lab
from duramen.experiments.trajectory import Call, Message


def below_unit(unit: int, *, reported: bool, least: int = 1) -> Make:
    """Prompts shorter than the match unit."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        tokens = counted(scene, lab)
        if tokens is not None and tokens.common >= unit:
            scene = shortened(scene)
            tokens = counted(scene, lab)
        if tokens is None or not least <= tokens.common < unit:
            return None
        cached = 0 if reported else None
        calls = (
            sent(scene.before, SERIAL[0], tokens.first, cached),
            sent(scene.after, SERIAL[1], tokens.second, cached),
        )
        return block_case("shorter-than-unit", calls, scene, unit_tokens=unit)

    return make


def shortened(scene: Scene) -> Scene:
    """No tools, and only the beginning of each text."""
    before, after = (
        replace(call, messages=tuple({**m, "content": text_of(m)[:160]} for m in call.messages))
        for call in scene.calls
    )
    reply = after.messages[len(before.messages)]
    return replace(scene, before=replace(before, reply=reply), after=after, tools=())


def last_token(unit: int, *, between: bool = False, reported: bool = True) -> Make:
    """The same prompt again, a whole number of units long: its last unit is computed again."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        filled = _filled(scene, lab, unit)
        if filled is None:
            return None
        num = len(lab.prompt_ids("chatml", session_of((filled,), scene.tools), 0) or [])
        got = num - unit if reported else None
        again = sent(filled, SERIAL[1], num, got)
        calls: tuple[Call, ...] = (sent(filled, SERIAL[0], num, 0 if reported else None), again)
        if between:
            reply: Message = {"role": "assistant", "content": "Done."}
            rest = (reply, {"role": "user", "content": "Thanks. Anything else?"})
            onward = replace(filled, messages=(*filled.messages, *rest), reply=None)
            calls = (calls[0], replace(onward, time_s=30.0), again)
        return block_case("last-token", calls, scene, unit_tokens=unit)

    return make


def _filled(scene: Scene, lab: Lab, unit: int) -> Call | None:
    """The earlier call with words added to a user message until its tokens fill whole units."""
    index = find(scene.before, "user", -1)
    if index is None:
        return None
    for number in range(3 * unit):
        messages = list(scene.before.messages)
        words = " again" * number
        messages[index] = {
            **messages[index],
            "content": f"{messages[index]['content']}\nOnce{words}.",
        }
        call = replace(scene.before, messages=tuple(messages))
        ids = lab.prompt_ids("chatml", session_of((call,), scene.tools), 0)
        if ids is None:
            return None
        if len(ids) % unit == 0 and len(ids) > 3 * unit:
            return call
    return None


def draft(unit: int, *, reported: bool) -> Make:
    """A draft model gives up the last unit that matches."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        tokens = counted(scene, lab)
        if tokens is None or tokens.reusable(unit) < 3 * unit:
            return None
        got = tokens.reusable(unit) - unit
        calls = (
            sent(scene.before, SERIAL[0], tokens.first, 0 if reported else None),
            sent(scene.after, SERIAL[1], tokens.second, got if reported else None),
        )
        return block_case("draft-drop", calls, scene, unit_tokens=unit, draft=True)

    return make
