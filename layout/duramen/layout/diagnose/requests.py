"""What of two requests differs where they should be equal, chosen by the place at which their
prompts part."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duramen.layout.diagnose.change import Change
from duramen.layout.diagnose.messages import differing, messages_changes
from duramen.layout.diagnose.parting import Near
from duramen.layout.diagnose.sent import Request
from duramen.layout.diagnose.tools import tools_change
from duramen.layout.tracked import OTHER, TOOLS

_INPUT = frozenset(["messages", "input", "contents", "prompt"])


def request_change(
    old: Request, new: Request, nears: Sequence[Near], reply: str = ""
) -> Change | None:
    """The difference that stands at the place, in the past that both should share; without a place
    the first of tools, messages and options. None where none differs, or none stands there.
    `reply`: the text of the reply to `old`."""
    found = _differences(old, new)
    if nears:
        here = [origin for origin in _origins(nears) if origin in found]
        found = [*here, *(origin for origin in found if origin == OTHER)]
    return _first_of(old, new, found, reply)


def any_change(old: Request, new: Request) -> Change | None:
    """The first of tools, messages and options that differ, wherever it stands."""
    return _first_of(old, new, _differences(old, new))


def _first_of(old: Request, new: Request, origins: Sequence[int], reply: str = "") -> Change | None:
    changes = (_of(old, new, origin, reply) for origin in origins)
    return next((change for change in changes if change is not None), None)


def _differences(old: Request, new: Request) -> list[int]:
    """Origins (see tracked.py) of what differs."""
    found = [TOOLS] if tools_change(old.tools, new.tools) else []
    if len(new.messages) < len(old.messages):
        found.append(len(new.messages) + 1)
    found[len(found) :] = [i + 1 for i in differing(old.messages, new.messages)]
    messages = sorted(origin for origin in found if origin > 0)
    options = [OTHER] if options_change(old.options, new.options) else []
    return [*(origin for origin in found if origin == TOOLS), *messages, *options]


def _origins(nears: Sequence[Near]) -> list[int]:
    """Those at the place, then those behind it, then those before it; the first messages first,
    since what stands behind a message that came or left is another one in each request."""
    known = [near.origins for near in nears]
    return [
        origin
        for level in zip(*known, strict=True)
        for origin in sorted({each for each in level if each is not None})
    ]


def _of(old: Request, new: Request, origin: int, reply: str) -> Change | None:
    if origin == TOOLS:
        return tools_change(old.tools, new.tools)
    if origin == OTHER:
        return options_change(old.options, new.options)
    changes = messages_changes(old.messages, new.messages, origin - 1, reply)
    return changes[0] if changes else None


def options_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> Change | None:
    if old == new:
        return None
    for name, was, now in _changed(old, new, ""):
        shown = f"{_value(was)} became {_value(now)}"
        return Change("template-option", 0.95, shown, f"option {name}")
    return None


_ABSENT = object()


def _changed(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, Any, Any]]:
    for key in [*old, *(key for key in new if key not in old)]:
        was, now = old.get(key, _ABSENT), new.get(key, _ABSENT)
        if was is now or was == now:
            continue
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            yield from _changed(was, now, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", was, now


def _value(value: Any) -> str:
    return "not given" if value is _ABSENT else f"{value!r:.60}"


def input_first(keys: Sequence[str]) -> bool:
    """Whether a body names its messages before its tools."""
    places = [i for i, key in enumerate(keys) if key in _INPUT]
    return "tools" in keys and bool(places) and places[0] < list(keys).index("tools")


def keys_change(old: Request, new: Request) -> Change | None:
    """Tools stood before the messages in one body and behind them in the other."""
    if not (old.tools or new.tools) or "tools" not in old.keys or "tools" not in new.keys:
        return None
    if input_first(old.keys) == input_first(new.keys):
        return None
    shown = f"{', '.join(old.keys)} became {', '.join(new.keys)}"
    return Change("input-before-tools", 0.6, shown[:200], "the order of the body's keys")
