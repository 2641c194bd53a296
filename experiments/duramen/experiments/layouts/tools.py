"""What a structured call does that is no shell command."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from duramen.experiments.layouts import arguments as given
from duramen.experiments.layouts.actions import Action, Plan, Read, State, Write
from duramen.experiments.layouts.observations import Use
from duramen.experiments.layouts.places import plain_path
from duramen.experiments.layouts.tool_words import (
    CLOCKS,
    ELSEWHERE,
    LISTS,
    METHODS,
    MOVES,
    NAMING,
    OPENERS,
    PLAN_NAMES,
    WINDOW,
    Doing,
    doing,
    is_plan,
    name_words,
    server,
    words,
)

Arguments = Mapping[str, Any]
SUBCOMMANDS = ("command", "action", "operation", "op", "subcommand", "method", "mode")
WHOLE = words("read cat view open show get fetch print display text content contents") | NAMING
PLAN_KEYS = words("plan todos todo todo_list steps tasks items checklist subtasks milestones")
BESIDE_A_PLAN = words("title goal explanation name description status operation action command")


def tool_action(use: Use) -> Action:
    if not use.name:
        return None
    arguments = {k: v for k, v in use.arguments.items() if k not in given.REASONS}
    named = name_words(use.name)
    spoken, arguments, kind = _verb(named, arguments)
    texts = given.named_texts(arguments)
    if is_plan(named) and not texts:
        return _plan(use, named, arguments, kind)
    if kind is Doing.HARMLESS:
        targets = any(name_words(str(key))[-1:] == ["id"] for key in arguments)
        return Write(None) if targets and not use.arguments.keys() & given.REASONS else None
    if WINDOW.intersection(spoken) and not texts and kind is not Doing.WRITES:
        return Write((), frozenset({State.WINDOW}))
    if kind is not Doing.WRITES and (statement := _statement(spoken, arguments)):
        reads = given.statement_reads(statement)
        return Read(_with(use.name, arguments), None) if reads else Write(None)
    if kind is Doing.READS and given.has_content(arguments, given.GIVEN):
        kind = Doing.UNKNOWN
    if kind is Doing.READS and (texts or not OPENERS.intersection(spoken)):
        return _read(use, spoken, arguments, texts)
    write = _write(use, spoken, arguments, texts, kind)
    return replace(write, changes=frozenset({State.PLAN})) if is_plan(named) else write


def _verb(named: list[str], arguments: dict[str, Any]) -> tuple[list[str], dict[str, Any], Doing]:
    """The words that say what is done, those of a subcommand where there is one; the arguments
    without it."""
    kind = doing(named)
    for key in SUBCOMMANDS:
        value = arguments.get(key)
        if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z][\w+-]*", value):
            continue
        sub = doing(name_words(value))
        if sub in (Doing.READS, Doing.WRITES):
            return name_words(value), {k: v for k, v in arguments.items() if k != key}, sub
        opens_for_writing = re.fullmatch(r"r?b?[wax+]+[bt+]*|rb?\+b?", value) is not None
        is_manner = key in ("mode", "method") and not value.isupper()
        if kind is not Doing.WRITES and (opens_for_writing or not is_manner):
            kind = Doing.UNKNOWN
    return named, arguments, kind


def _statement(spoken: Sequence[str], arguments: Arguments) -> str | None:
    """The words of a search are no statement if they only begin like one."""
    found = given.statement(arguments)
    is_search = {"search", "find", "lookup", "grep"}.intersection(spoken)
    return None if found is not None and is_search and not given.has_shape(found) else found


def _read(use: Use, spoken: Sequence[str], arguments: Arguments, texts: Sequence[str]) -> Action:
    if CLOCKS.intersection(spoken) and not texts:
        return None
    base = server(use.name)
    places = given.places_of(texts, *given.origin(arguments, base))
    if places is not None and LISTS.intersection(spoken):
        places = tuple(replace(each, listed=True) for each in places)
    moves = frozenset({State.WINDOW}) if OPENERS.intersection(spoken) else frozenset()
    single = [v for k, v in arguments.items() if given.names_place(str(k)) and v]
    if single != list(texts) or len(single) != 1:
        return Read(_with(use.name, arguments), places, changes=moves)
    path = plain_path(texts[0])
    rest = {k: v for k, v in arguments.items() if v not in (None, texts[0])}
    view = "" if set(spoken) <= WHOLE else "_".join(spoken)
    seen = "&".join(filter(None, [view, given.canonical(rest)]))
    key = f"{base}:{path}" if base else path
    is_whole = not seen and places is not None
    return Read(f"{key}?{seen}" if seen else key, places, is_whole, changes=moves)


def _write(
    use: Use, spoken: Sequence[str], arguments: Arguments, texts: Sequence[str], kind: Doing
) -> Write:
    patches = [v for _, v in given.leaves(arguments) if isinstance(v, str) and given.is_patch(v)]
    if patched := [text for patch in patches for text in given.patched_texts(patch)]:
        _, folder = given.origin(arguments, "")
        return Write(given.places_of([*patched, *texts], folder=folder))
    is_known = kind is Doing.WRITES
    is_atomic = is_known and not patches and not given.has_batch(arguments)
    everything = Write(None, is_atomic=is_atomic)
    if not texts or (not is_known and given.has_content(arguments, given.CODE)):
        return everything
    ends = given.other_ends(arguments)
    has_both_ends = MOVES.intersection(spoken) and len({*texts, *ends}) > 1
    if ELSEWHERE.intersection(spoken) and not has_both_ends:
        return everything
    places = given.places_of([*texts, *ends], *given.origin(arguments, server(use.name)))
    only_urls = places is not None and all(each.host for each in places)
    if only_urls and not METHODS.intersection(spoken):  # it says where from, not where to
        return everything
    return Write(places, is_atomic=is_atomic)


def _plan(use: Use, named: Sequence[str], arguments: Arguments, kind: Doing) -> Action:
    """Only a call that gives the whole plan and nothing else hands it over: in some trades a plan
    is a thing that is sold."""
    states = frozenset({State.PLAN})
    is_own = " ".join(named) in PLAN_NAMES or not {"plan", "plans"}.intersection(named)
    runs = ELSEWHERE.intersection(named) and " ".join(named) not in PLAN_NAMES
    held = {k: v for k, v in arguments.items() if "_".join(name_words(str(k))) in PLAN_KEYS}
    others = {"_".join(name_words(str(k))) for k in arguments.keys() - held.keys()}
    long = [v for v in held.values() if isinstance(v, list) or (isinstance(v, str) and len(v) > 40)]
    if runs:
        return Write(None, states)
    if long and others <= BESIDE_A_PLAN:
        items = tuple(v for _, v in given.leaves(held) if isinstance(v, str))
        text = msgspec.json.format(msgspec.json.encode(dict(arguments)), indent=1).decode()
        return Plan(use.name, text, items)
    if kind is Doing.READS:
        return Read(_with(use.name, arguments), () if is_own else None, shows=states)
    return Write((), states) if is_own else Write(None, states)


def _with(name: str, arguments: Arguments) -> str:
    return f"{name}?{given.canonical(arguments)}" if arguments else name
