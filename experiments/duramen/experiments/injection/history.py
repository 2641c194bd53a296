"""The past rewritten on purpose: edited, pruned, compacted."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Literal, NamedTuple

from duramen.experiments.injection.cases import Case, Make, Scene, parted
from duramen.experiments.injection.edits import (
    Place,
    text_of,
    with_messages,
    with_system,
)
from duramen.experiments.injection.forms import lines
from duramen.experiments.injection.lab import Lab
from duramen.experiments.trajectory import Message
from duramen.layout.diagnose.causes import Cause


class Edited(NamedTuple):
    """A sentence that a hand changed: it stands in both calls at a place, once each way."""

    place: Place
    before: str
    after: str
    also: tuple[Cause, ...] = ()  # answers that are as fair


def edited(edit: Edited) -> Make:
    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        causes: frozenset[Cause | None] = frozenset(["history-edited", *edit.also])
        return lines(scene, edit.place, edit.before, edit.after, causes)

    return make


Rewrite = Callable[[Sequence[Message], int, Random], Sequence[Message] | None]


def pruned(rewrite: Rewrite) -> Make:
    """`rewrite(messages, end, rng)` is asked for the later call's messages, of which the first
    `end` stood in the earlier one; None where there is nothing to take out."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        messages = rewrite(scene.after.messages, len(scene.before.messages), rng)
        if messages is None or list(messages) == list(scene.after.messages):
            return None
        return parted(scene, scene.before, with_messages(scene.after, messages), "history-pruned")

    return make


def outputs_replaced(text: str, *, keep: int, roles: tuple[str, ...] = ("tool",)) -> Rewrite:
    """All long outputs but the newest `keep` are replaced by `text`; {} in it is their length."""

    def rewrite(messages: Sequence[Message], end: int, rng: Random) -> Sequence[Message] | None:
        found = _outputs(messages, end, roles)
        chosen = found[: len(found) - keep] if keep else found
        if not chosen:
            return None
        return [
            {**m, "content": text.replace("{}", str(len(text_of(m))))} if i in chosen else m
            for i, m in enumerate(messages)
        ]

    return rewrite


def output_cut(head: int, tail: int, mark: str, *, which: int = 0) -> Rewrite:
    """One long output keeps `head` characters of its beginning and `tail` of its end."""

    def rewrite(messages: Sequence[Message], end: int, rng: Random) -> Sequence[Message] | None:
        found = [
            i
            for i in _outputs(messages, end, ("tool",))
            if len(text_of(messages[i])) > 2 * (head + tail) + 80
        ]
        if not -len(found) <= which < len(found):
            return None
        index = found[which]
        text = text_of(messages[index])
        dropped = str(len(text) - head - tail)
        cut = text[:head] + mark.replace("{}", dropped) + (text[-tail:] if tail else "")
        return [*messages[:index], {**messages[index], "content": cut}, *messages[index + 1 :]]

    return rewrite


def dropped(start: int, stop: int) -> Rewrite:
    """Turns start to stop - 1 behind the first user message are taken out; a turn is a reply with
    what answers it. Negative: counted from the end of the earlier call's messages."""

    def rewrite(messages: Sequence[Message], end: int, rng: Random) -> Sequence[Message] | None:
        starts = [i for i in range(end) if messages[i].get("role") == "assistant"]
        if len(starts) < 3 or len(starts[start:stop]) < 1:
            return None
        edges = [*starts, end]
        chosen = [(edges[k], edges[k + 1]) for k in range(len(starts))][start:stop]
        gone = {i for a, b in chosen for i in range(a, b)}
        if max(gone) == end - 1:  # nothing of the earlier call would be left behind them
            return None
        return [m for i, m in enumerate(messages) if i not in gone]

    return rewrite


def _outputs(messages: Sequence[Message], end: int, roles: tuple[str, ...]) -> list[int]:
    return [
        i
        for i, m in enumerate(messages[:end])
        if i > 1 and m.get("role") in roles and len(text_of(m)) > 60
    ]


Where = Literal["user", "system", "assistant", "first user", "end of system"]


class Summary(NamedTuple):
    """What stands for what was taken out, where it stands, and how many newest messages stay."""

    text: str
    where: Where
    keep: int = 0


def compacted(summary: Summary) -> Make:
    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        before, after = with_system(scene.before), with_system(scene.after)
        if len(before.messages) < 6:
            return None
        start = len(after.messages) - summary.keep
        while start < len(after.messages) and after.messages[start].get("role") == "tool":
            start += 1  # an answer without its call is refused by every API
        if min(start, len(before.messages)) < 4:  # less than three messages give way
            return None
        newest = list(after.messages[start:])
        messages = [*_head(list(after.messages), summary), *newest]
        if not newest:
            messages.append({"role": "user", "content": "Continue."})
        return parted(scene, before, with_messages(after, messages), "compaction")

    return make


def _head(messages: list[Message], summary: Summary) -> list[Message]:
    system = messages[0]
    if summary.where == "end of system":
        return [{**system, "content": f"{text_of(system)}\n\n{summary.text}"}]
    if summary.where == "first user":
        first = next((m for m in messages if m.get("role") == "user"), None)
        task = text_of(first) if first else ""
        return [system, {"role": "user", "content": f"{task}\n\n{summary.text}"}]
    return [system, {"role": summary.where, "content": summary.text}]
