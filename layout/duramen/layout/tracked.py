"""Strings that know which of their characters are data.

A chat template mixes its own text (which may spell control tokens) with text from messages and
tools (which must not). `Tracked` is a `str` whose runs name the origin of every character; each
operation a template can apply keeps the runs exact where positions are preserved, and otherwise
calls the whole result data. Text can lose the right to spell a control token, never gain it.
"""

import re
import string
from collections.abc import Callable, Iterable, Iterator
from typing import Any, SupportsIndex

TEMPLATE = 0  # the template's own text, BOS and EOS strings included
TOOLS = -1
OTHER = -2  # data that is neither a message nor a tool: documents, template arguments
# Message i of the request has origin i + 1.

Run = tuple[int, int]  # (number of characters, origin)

_BARE = (str, int, float, bool)  # types whose values carry no origin: the template's own


def origin_of(value: Any) -> int:
    """Origin of the first data in `value` (containers searched); TEMPLATE if there is none.

    What cannot be searched (views, namespaces, strings of other libraries) counts as OTHER.
    """
    if isinstance(value, Tracked):
        return next((origin for _, origin in value.runs if origin != TEMPLATE), TEMPLATE)
    if value is None or type(value) in _BARE:
        return TEMPLATE
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple)):
        return next((o for o in map(origin_of, value) if o != TEMPLATE), TEMPLATE)
    return OTHER


def runs_of(text: str) -> tuple[Run, ...]:
    if isinstance(text, Tracked):
        return text.runs
    return ((len(text), origin_of(text)),) if text else ()


def tracked_str(value: Any) -> "Tracked":
    """str(value), where the text of a container that holds data is data."""
    if isinstance(value, Tracked):
        return value
    if isinstance(value, str):
        return Tracked(value, runs_of(value))
    return Tracked.data(str(value), origin_of(value))


def concat(values: Iterable[Any]) -> "Tracked":
    """Join the text of `values`; runs stay exact."""
    pieces = [v if isinstance(v, str) else tracked_str(v) for v in values]
    runs: list[Run] = []
    for piece in pieces:
        for length, origin in runs_of(piece):
            if runs and runs[-1][1] == origin:
                runs[-1] = (runs[-1][0] + length, origin)
            else:
                runs.append((length, origin))
    return Tracked("".join(pieces), tuple(runs))


class Tracked(str):
    """A str with `runs`: (length, origin) pairs that cover it, neighbours of different origin."""

    runs: tuple[Run, ...]

    def __new__(cls, text: str, runs: tuple[Run, ...]) -> "Tracked":
        self = super().__new__(cls, text)
        self.runs = runs
        return self

    @classmethod
    def data(cls, text: str, origin: int) -> "Tracked":
        return cls(text, ((len(text), origin),) if text else ())

    def _whole(self, text: str, *others: Any) -> "Tracked":
        """`text` was made from self and others in a way that loses positions."""
        return Tracked.data(text, origin_of([self, *others]))

    def _cut(self, start: int, stop: int) -> "Tracked":
        """Characters [start, stop), both within the string."""
        if start == 0 and stop == len(self):
            return self
        runs: list[Run] = []
        position = 0
        for length, origin in self.runs:
            if position >= stop:
                break
            overlap = min(position + length, stop) - max(position, start)
            if overlap > 0:
                runs.append((overlap, origin))
            position += length
        return Tracked(str.__getitem__(self, slice(start, stop)), tuple(runs))

    def _remapped(self, text: str) -> "Tracked":
        """`text` is self with characters changed one for one, or else all data."""
        return Tracked(text, self.runs) if len(text) == len(self) else self._whole(text)

    def __str__(self) -> "Tracked":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Tracked, (str.__getitem__(self, slice(None)), self.runs)

    def __add__(self, other: str) -> "Tracked":
        return concat((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> "Tracked":
        return concat((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> "Tracked":
        return concat([self] * count.__index__())

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> "Tracked":
        return percent_format(self, values)

    def __rmod__(self, template: str) -> "Tracked":
        return percent_format(template, self)

    def __iter__(self) -> "Iterator[Tracked]":
        for i in range(len(self)):
            yield self._cut(i, i + 1)

    def __getitem__(self, key: Any) -> "Tracked":
        text = str.__getitem__(self, key)
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            return self._cut(start, max(start, stop)) if step == 1 else self._whole(text)
        index = key.__index__() % len(self)
        return self._cut(index, index + 1)

    def strip(self, chars: str | None = None) -> "Tracked":
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None) -> "Tracked":
        return self._cut(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None) -> "Tracked":
        return self._cut(0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str) -> "Tracked":
        return self._cut(len(prefix) if self.startswith(prefix) else 0, len(self))

    def removesuffix(self, suffix: str) -> "Tracked":
        return self._cut(0, len(self) - (len(suffix) if self.endswith(suffix) else 0))

    def _locate(self, parts: Iterable[str]) -> "list[Tracked]":
        """`parts` stand in self in this order without overlap, as split and its kin return."""
        located = []
        position = 0
        for part in parts:
            start = self.index(part, position)
            located.append(self._cut(start, start + len(part)))
            position = start + len(part)
        return located

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> "list[Tracked]":  # type: ignore[override]
        parts = str.split(self, sep, maxsplit)
        return self._locate(parts) if sep is None else self._between(parts, len(sep))

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> "list[Tracked]":  # type: ignore[override]
        parts = str.rsplit(self, sep, maxsplit)
        return self._locate(parts) if sep is None else self._between(parts, len(sep))

    def _between(self, parts: list[str], gap: int) -> "list[Tracked]":
        """`parts` follow each other in self with `gap` characters between them."""
        cut = []
        position = 0
        for part in parts:
            cut.append(self._cut(position, position + len(part)))
            position += len(part) + gap
        return cut

    def splitlines(self, keepends: bool = False) -> "list[Tracked]":  # type: ignore[override]
        lines = self._between(str.splitlines(self, True), 0)
        if keepends:
            return lines
        bare = str.splitlines(self)
        return [line._cut(0, len(text)) for line, text in zip(lines, bare, strict=True)]

    def partition(self, sep: str) -> "tuple[Tracked, Tracked, Tracked]":
        a, b, c = self._between(list(str.partition(self, sep)), 0)
        return a, b, c

    def rpartition(self, sep: str) -> "tuple[Tracked, Tracked, Tracked]":
        a, b, c = self._between(list(str.rpartition(self, sep)), 0)
        return a, b, c

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> "Tracked":
        if old:
            return tracked_str(new).join(self.split(old, count))
        return self._whole(str.replace(self, old, new, count), new)

    def join(self, parts: Iterable[str]) -> "Tracked":
        parts = list(parts)
        str.join(self, parts)  # raises what Python raises
        pieces: list[str] = []
        for part in parts:
            pieces += (self, part) if pieces else (part,)
        return concat(pieces)

    def format(self, *args: Any, **kwargs: Any) -> "Tracked":
        return brace_format(self, args, kwargs, string.Formatter().get_field)

    def format_map(self, mapping: Any) -> "Tracked":
        return brace_format(self, (), mapping, string.Formatter().get_field)

    def lower(self) -> "Tracked":
        return self._remapped(str.lower(self))

    def upper(self) -> "Tracked":
        return self._remapped(str.upper(self))

    def title(self) -> "Tracked":
        return self._remapped(str.title(self))

    def capitalize(self) -> "Tracked":
        return self._remapped(str.capitalize(self))

    def casefold(self) -> "Tracked":
        return self._remapped(str.casefold(self))

    def swapcase(self) -> "Tracked":
        return self._remapped(str.swapcase(self))

    def translate(self, table: Any) -> "Tracked":
        # A table may hold characters as numbers, which know no origin.
        return Tracked.data(str.translate(self, table), origin_of([self, table]) or OTHER)

    def center(self, width: SupportsIndex, fillchar: str = " ") -> "Tracked":
        return self._whole(str.center(self, width, fillchar), fillchar)

    def ljust(self, width: SupportsIndex, fillchar: str = " ") -> "Tracked":
        return self._whole(str.ljust(self, width, fillchar), fillchar)

    def rjust(self, width: SupportsIndex, fillchar: str = " ") -> "Tracked":
        return self._whole(str.rjust(self, width, fillchar), fillchar)

    def zfill(self, width: SupportsIndex) -> "Tracked":
        return self._whole(str.zfill(self, width))

    def expandtabs(self, tabsize: SupportsIndex = 8) -> "Tracked":
        return self._whole(str.expandtabs(self, tabsize))


_PERCENT = re.compile(
    r"%(?:\((?P<key>[^)]*)\))?[#0\- +]*(?:\d+)?(?:\.\d+)?[hlL]?(?P<kind>[a-zA-Z%])"
)


def percent_format(template: str, values: Any) -> Tracked:
    """template % values, with each converted value keeping its origin. Same errors as `%`."""
    plain = str.__mod__(template, values)  # raises what Python raises; also the expected text
    text = tracked_str(template)
    arguments = iter(values if isinstance(values, tuple) else (values,))
    pieces: list[str] = []
    position = 0
    for match in _PERCENT.finditer(text):
        pieces.append(text._cut(position, match.start()))
        position = match.end()
        conversion = text._cut(match.start(), match.end())
        if match["kind"] == "%":
            pieces.append(conversion._cut(0, 1))
            continue
        value = values[match["key"]] if match["key"] is not None else next(arguments, None)
        bare = re.sub(r"\([^)]*\)", "", conversion)
        if bare == "%s" and isinstance(value, Tracked):
            pieces.append(value)
            continue
        shown = str.__mod__(bare, (value,))
        pieces.append(Tracked.data(shown, origin_of(value) or origin_of(conversion)))
    pieces.append(text._cut(position, len(text)))
    joined = concat(pieces)
    return joined if joined == plain else Tracked.data(plain, origin_of([template, values]))


_CONVERSIONS: dict[str, Callable[[Any], str]] = {"r": repr, "a": ascii, "s": str}


def brace_format(
    template: str,
    args: tuple[Any, ...],
    kwargs: Any,
    get_field: Callable[..., Any],
) -> Tracked:
    """template.format(*args, **kwargs), with each field keeping its origin.

    `get_field(name, args, kwargs) -> (value, used)` lets a sandbox vet attribute look-ups.
    """
    text = tracked_str(template)
    whole = origin_of(text)  # a format string that holds data makes everything data
    pieces: list[str] = []
    automatic = 0
    for literal, name, spec, conversion in string.Formatter().parse(text):
        pieces.append(Tracked.data(literal, whole))
        if name is None:
            continue
        if name == "" or name[0] in ".[":
            name, automatic = f"{automatic}{name}", automatic + 1
        value, _ = get_field(name, args, kwargs)
        shown = _CONVERSIONS[conversion](value) if conversion else value
        spec = brace_format(spec or "", args, kwargs, get_field) if spec else ""
        if isinstance(shown, Tracked) and not spec:
            pieces.append(shown)
        else:
            pieces.append(Tracked.data(format(shown, spec), origin_of([value, spec]) or whole))
    return concat(pieces)
