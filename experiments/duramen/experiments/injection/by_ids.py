"""The same text in other ids: replies and prompts that were spelled otherwise, BOS twice."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Literal

from duramen.experiments.history import Turn
from duramen.experiments.injection.cases import START_S, Case, Make, Scene, parted
from duramen.experiments.injection.edits import text_of
from duramen.experiments.injection.lab import Lab
from duramen.experiments.injection.oracle import part_of
from duramen.experiments.trajectory import Call, Message, Sending, Session
from duramen.layout.tokenizer import Tokenizer

Where = Literal["first", "last", "any", "word", "digits", "blanks", "sign"]


def respelled(
    tokenizer: Tokenizer, ids: Sequence[int], where: Where, rng: Random
) -> list[int] | None:
    """The ids with one token replaced by two that spell the same; None where none can be."""
    choices = list(_splits(tokenizer, ids, where))
    if not choices:
        return None
    chosen = {"first": choices[0], "last": choices[-1]}.get(where, rng.choice(choices))
    position, pair = chosen
    other = [*ids[:position], *pair, *ids[position + 1 :]]
    return other if _in_context(tokenizer, other) == _in_context(tokenizer, ids) else None


def _in_context(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The text behind other text: some decoders drop a blank at the very start."""
    lead = tokenizer.full.encode("a", add_special_tokens=False).ids
    return tokenizer.full.decode([*lead, *ids], skip_special_tokens=False)


def _splits(
    tokenizer: Tokenizer, ids: Sequence[int], where: Where
) -> Iterator[tuple[int, tuple[int, int]]]:
    for position, token_id in enumerate(ids):
        piece = tokenizer.full.id_to_token(token_id)
        if token_id in tokenizer.control_ids or piece is None or not _is(piece, where):
            continue
        for cut in range(1, len(piece)):
            pair = [tokenizer.full.token_to_id(part) for part in (piece[:cut], piece[cut:])]
            if pair[0] is not None and pair[1] is not None:
                yield position, (pair[0], pair[1])
                break


def _is(piece: str, where: Where) -> bool:
    """Byte-level pieces write a blank as Ġ and a line end as Ċ."""
    bare = piece.lstrip("Ġ▁")
    if where == "word":
        return bare.isalpha() and bare.isascii() and len(bare) > 3
    if where == "digits":
        return bare.isdigit() and len(bare) > 1
    if where == "blanks":
        return len(piece) > 1 and not piece.strip("ĠĊ▁")
    if where == "sign":
        return bool(bare) and not any(c.isalnum() for c in bare) and len(bare) > 1
    return True


def sampled_otherwise(model: str, where: Where, said: Message | None = None) -> Make:
    """The engine sampled the reply in other ids than its text encodes to. `said`: instead of the
    recorded reply's text."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        scene = scene if said is None else saying(scene, said)
        reply = scene.before.reply
        if reply is None or (not text_of(reply) and not reply.get("tool_calls")):
            return None
        tools = scene.tools if scene.before.tools is None else scene.before.tools
        ids = lab.spelled(model, Turn(scene.before.messages, tools), START_S, reply)
        other = respelled(lab.model(model).tokenizer, ids, where, rng)
        unbroken = parted(scene, scene.before, scene.after, None, model)
        if other is None or part_of(lab, unbroken) is not None:
            return None
        before = replace(scene.before, sending=Sending(reply_ids=tuple(other)))
        return parted(scene, before, scene.after, "retokenisation", model)

    return make


def saying(scene: Scene, said: Message) -> Scene:
    """The scene with another reply, which the later call quotes."""
    num = len(scene.before.messages)
    messages = (*scene.before.messages, said, {"role": "user", "content": "And then?"})
    assert num < len(messages)
    return replace(
        scene,
        before=replace(scene.before, reply=said),
        after=replace(scene.after, messages=messages),
    )


def prompted_otherwise(model: str, where: Where, *, both: bool = False) -> Make:
    """The earlier prompt's ids, as the engine reported them, spell its text otherwise. `both`: the
    later one's are on record too."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        session = Session("s", scene.calls, scene.tools, start_time_s=START_S)
        ids, later = (lab.prompt_ids(model, session, index) for index in (0, 1))
        if ids is None or later is None:
            return None
        other = respelled(lab.model(model).tokenizer, ids, where, rng)
        if other is None:
            return None
        before = replace(scene.before, sending=Sending(token_ids=tuple(other)))
        after = replace(scene.after, sending=Sending(token_ids=tuple(later) if both else None))
        return parted(scene, before, after, "retokenisation", model)

    return make


def bos_twice(model: str, counts: tuple[int, int], *, recorded: tuple[bool, bool]) -> Make:
    """The calls' ids begin with that many BOS. One that is not `recorded` is left to be rendered,
    by a template that writes one."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        session = Session("s", scene.calls, scene.tools, start_time_s=START_S)
        tokenizer = lab.model(model).tokenizer
        bos = tokenizer.full.token_to_id(tokenizer.special_strings["bos_token"])
        calls: list[Call] = []
        for index, call in enumerate(scene.calls):
            ids = lab.prompt_ids(model, session, index)
            if ids is None or bos is None:
                return None
            while ids and ids[0] == bos:
                ids = ids[1:]
            given = tuple([bos] * counts[index] + ids)
            calls.append(
                replace(call, sending=Sending(token_ids=given)) if recorded[index] else call
            )
        return parted(scene, calls[0], calls[1], "bos-twice", model)

    return make
