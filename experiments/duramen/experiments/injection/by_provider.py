"""Providers' own rules: minimum, life, look-back, marks. Rules come from the price book."""

from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from duramen.experiments.injection.by_blocks import SERIAL, Counted, counted, sent
from duramen.experiments.injection.by_units import shortened
from duramen.experiments.injection.cases import Case, Make, Scene, session_of
from duramen.experiments.injection.edits import with_messages
from duramen.experiments.injection.lab import Lab
from duramen.experiments.prices.book import Entry
from duramen.experiments.prices.read import packaged_book
from duramen.experiments.trajectory import Call, Message, Usage
from duramen.layout.diagnose.causes import Cause

PADDING = "Section {}: keep to the style of the file, and say which line each claim is from. "


@cache
def entry(name: str) -> Entry:
    return packaged_book().entry(name)


def _case(name: str, cause: Cause, calls: tuple[Call, ...], scene: Scene) -> Case:
    settings = {"prices": entry(name)}
    session = session_of(calls, scene.tools)
    at = ("s", len(calls) - 1)
    return Case(frozenset([cause]), (session,), at, settings=settings, parts=False)


def _sent(
    name: str,
    call: Call,
    time_s: float,
    prompt: int,
    cached: int,
    written: int | None,
    **facts: Any,
) -> Call:
    provider, _, model = name.partition("/")
    model = model.partition("+")[0]
    if "+" in name:  # the request asked for another life than the usual one
        facts["ttl_s"] = entry(name).rules.ttl_s
    one = sent(call, time_s, prompt, cached, provider=provider, model=model, **facts)
    return replace(one, usage=Usage(prompt, cached, 40, written))


def _marks(name: str, call: Call, *chosen: int) -> dict[str, Any]:
    """Marks, for a provider that takes some: the last message where none is named."""
    if entry(name).rules.kind != "breakpoints":
        return {}
    return {"marks": tuple(chosen) or (len(call.messages) - 1,)}


def _sized(scene: Scene, lab: Lab, least: int) -> tuple[Scene, Counted] | None:
    """The scene with its first message padded to at least that many tokens."""
    tokens = counted(scene, lab)
    if tokens is None:
        return None
    num = max(0, (least - tokens.first) // 12 + 1) if tokens.first < least else 0
    for _ in range(6):
        padded = scene if not num else _padded(scene, num)
        tokens = counted(padded, lab)
        if tokens is None or tokens.first >= least:
            return tokens and (padded, tokens)
        num = num * 5 // 4 + 8
    return None


def _padded(scene: Scene, num: int) -> Scene:
    text = "".join(PADDING.replace("{}", str(index)) for index in range(num))
    head: Message = {"role": "system", "content": text}
    calls = (with_messages(call, [head, *_rest(call)]) for call in scene.calls)
    before, after = calls
    return replace(scene, before=before, after=after)


def _rest(call: Call) -> tuple[Message, ...]:
    system = call.messages[0].get("role") == "system"
    return call.messages[1:] if system else call.messages


def below_minimum(name: str) -> Make:
    """Prompts shorter than the provider caches."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        minimum = entry(name).rules.min_tokens
        tokens = counted(scene, lab)
        if tokens is not None and tokens.second >= minimum:
            scene = shortened(scene)
            tokens = counted(scene, lab)
        if tokens is None or tokens.second >= minimum or tokens.common < minimum // 4:
            return None
        written = 0 if entry(name).rules.write else None
        calls = (
            _sent(name, scene.before, 0.0, tokens.first, 0, written, **_marks(name, scene.before)),
            _sent(name, scene.after, 20.0, tokens.second, 0, written, **_marks(name, scene.after)),
        )
        return _case(name, "below-minimum", calls, scene)

    return make


def expired(name: str, gap_s: float) -> Make:
    """The next call comes `gap_s` seconds later, when nothing is alive any more."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        sized = _sized(scene, lab, entry(name).rules.min_tokens + 200)
        if sized is None:
            return None
        padded, tokens = sized
        writes = entry(name).rules.write is not None
        before, after = padded.calls
        calls = (
            _sent(
                name,
                before,
                0.0,
                tokens.first,
                0,
                tokens.first if writes else None,
                **_marks(name, before),
            ),
            _sent(
                name,
                after,
                gap_s,
                tokens.second,
                0,
                tokens.second if writes else None,
                **_marks(name, after),
            ),
        )
        return _case(name, "ttl-expired", calls, padded)

    return make


def lookback(name: str, num_rounds: int, num_parallel: int, *, mark_head: bool = False) -> Make:
    """Between two calls come more blocks than the provider looks back over: rounds of tool calls,
    each `num_parallel` wide, and only the newest message is marked (`mark_head`: the system too,
    whose prefix is then read)."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        sized = _sized(scene, lab, entry(name).rules.min_tokens + 200)
        if sized is None:
            return None
        padded, _ = sized
        before = padded.before
        if before.messages[-1].get("role") not in ("user", "tool"):
            return None
        rounds = [m for number in range(num_rounds) for m in _round(number, num_parallel, rng)]
        first_reply = rounds[0]
        before = replace(before, reply=first_reply)
        after = with_messages(replace(padded.after, reply=None), [*before.messages, *rounds])
        longer = replace(padded, before=before, after=after)
        tokens = counted(longer, lab)
        if tokens is None:
            return None
        head = (0,) if mark_head else ()
        last = (len(before.messages) - 1, len(after.messages) - 1)
        read = 0
        if mark_head:
            system = session_of((with_messages(before, before.messages[:1]),), padded.tools)
            read = len(lab.prompt_ids("chatml", system, 0) or []) // 2
        calls = (
            _sent(name, before, 0.0, tokens.first, 0, tokens.first, marks=(*head, last[0])),
            _sent(
                name, after, 60.0, tokens.second, read, tokens.second - read, marks=(*head, last[1])
            ),
        )
        return _case(name, "lookback-exceeded", calls, longer)

    return make


def _round(number: int, width: int, rng: Random) -> list[Message]:
    ids = [f"call_{number}_{index}" for index in range(width)]
    functions = [
        {"name": "read_file", "arguments": f'{{"path": "src/m{number}_{i}.py"}}'}
        for i in range(width)
    ]
    calls = [
        {"id": call_id, "type": "function", "function": function}
        for call_id, function in zip(ids, functions, strict=True)
    ]
    results: list[Message] = [
        {
            "role": "tool",
            "tool_call_id": call_id,
            "content": f"{rng.randrange(10**5)} lines, no match",
        }
        for call_id in ids
    ]
    return [{"role": "assistant", "content": "", "tool_calls": calls}, *results]


def mark_moved(name: str, first: tuple[int, ...], later: tuple[int, ...]) -> Make:
    """The later call marks elsewhere, where no entry ends. Marks count from the end of the earlier
    call's messages where negative (-2 is its last message), -1 is the tools."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        sized = _sized(scene, lab, 2 * entry(name).rules.min_tokens + 600)
        if sized is None:
            return None
        padded, tokens = sized
        num = len(padded.before.messages)
        if num < 4 or num > 18 or (-1 in (*first, *later) and not padded.tools):
            return None
        marks = [tuple(m if m >= -1 else num + m + 1 for m in each) for each in (first, later)]
        if any(not -1 <= m < num for each in marks for m in each) or min(marks[0]) <= max(marks[1]):
            return None
        calls = (
            _sent(
                name, padded.before, SERIAL[0], tokens.first, 0, tokens.first - 40, marks=marks[0]
            ),
            _sent(
                name, padded.after, SERIAL[1], tokens.second, 0, tokens.first // 2, marks=marks[1]
            ),
        )
        return _case(name, "breakpoint-moved", calls, padded)

    return make


def not_reported(facts: dict[str, Any], *, before_too: bool, unit: int = 16) -> Make:
    """The answer counts its tokens and does not say how many of them were cached."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        tokens = counted(scene, lab)
        if tokens is None or tokens.reusable(unit) < 4 * unit:
            return None
        calls = (
            sent(scene.before, SERIAL[0], tokens.first, None if before_too else 0, **facts),
            sent(scene.after, SERIAL[1], tokens.second, None, **facts),
        )
        settings = {"unit_tokens": unit}
        session = session_of(calls, scene.tools)
        causes: frozenset[Cause | None] = frozenset(["not-reported"])
        return Case(causes, (session,), ("s", 1), settings=settings, parts=False)

    return make
