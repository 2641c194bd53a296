"""The prompt layouts that can be compared, and their parameters.

Whole: each call is rendered and encoded anew, as a client that keeps no ids does.
  recorded           the messages as they were recorded
  clock              the time of the call is the first line of the system prompt
  uuid               an id of the request is the first line of the system prompt
  counter            a number that creeps up is the last line of the system prompt
  shuffled-tools     the tools stand in another order in each call
  unsorted-json      tool definitions and tool arguments have their keys in another order each time
  thinking-stripped  the thinking of turns before the last user message is left out
  thinking-kept      all thinking stays, where the template has an option for that
  pruned:k=N         tool outputs but the newest N are replaced by a line, in place
Append-only: what was sent or sampled keeps its ids, a call adds only its new messages.
  stable             cut for encoding at proven seams
  independent        each piece encoded alone, ids may be other than canonical
Working set: see `zoned`.
  zoned:k=N,step=M,change=rewrite|tombstone,align=UNIT
"""

from dataclasses import dataclass, fields
from enum import Enum

from duramen.layout.errors import LayoutError


class LayoutName(Enum):
    RECORDED = "recorded"
    CLOCK = "clock"
    UUID = "uuid"
    COUNTER = "counter"
    SHUFFLED_TOOLS = "shuffled-tools"
    UNSORTED_JSON = "unsorted-json"
    THINKING_STRIPPED = "thinking-stripped"
    THINKING_KEPT = "thinking-kept"
    PRUNED = "pruned"
    STABLE = "stable"
    INDEPENDENT = "independent"
    ZONED = "zoned"


class Change(Enum):
    """What `zoned` does when an artifact has changed."""

    REWRITE = "rewrite"  # the old version leaves its place
    TOMBSTONE = "tombstone"  # it stays, and the leaf says that it is superseded


PARAMETERS: dict[LayoutName, dict[str, int | Change | None]] = {  # by layout, with the defaults
    LayoutName.PRUNED: {"k": 5},
    LayoutName.ZONED: {"k": 4, "step": 1, "change": Change.REWRITE, "align": None},
}
ASSUMED = {LayoutName.PRUNED, LayoutName.ZONED, LayoutName.THINKING_STRIPPED}


@dataclass(frozen=True)
class Layout:
    """`k`: what stays whole, newest first: tool outputs in `pruned`, turns in `zoned`. `step`: how
    many turns leave `zoned` at once; until then they stay beside the k. `align`: the match unit, in
    tokens, that `zoned` ends its zones at where that pays. A parameter that the layout does not
    take is None."""

    name: LayoutName
    k: int | None = None
    step: int | None = None
    change: Change | None = None
    align: int | None = None

    def __post_init__(self) -> None:
        takes = PARAMETERS.get(self.name, {})
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value is None:
                object.__setattr__(self, field.name, takes.get(field.name))
            elif field.name not in takes:
                raise LayoutError(f"layout {self.name.value} takes no {field.name}")
            elif isinstance(value, int) and value < 1:
                raise LayoutError(f"layout {self.name.value}: {field.name}={value} is below 1")

    @property
    def label(self) -> str:
        """The name with k and what differs from the defaults, as `parse` takes it."""
        given = []
        for name, default in PARAMETERS.get(self.name, {}).items():
            value = getattr(self, name)
            if name == "k" or value != default:
                given.append(f"{name}={value.value if isinstance(value, Change) else value}")
        return f"{self.name.value}:{','.join(given)}" if given else self.name.value

    @property
    def is_assumed(self) -> bool:
        """Whether the model saw something else than in the recording, so that its replies might
        have been others."""
        return self.name in ASSUMED

    @classmethod
    def parse(cls, text: str) -> "Layout":
        """Raises LayoutError for what is no layout."""
        name, _, rest = text.partition(":")
        try:
            known = LayoutName(name)
        except ValueError:
            names = ", ".join(each.value for each in LayoutName)
            raise LayoutError(f"unknown layout {name!r}: take one of {names}") from None
        takes = PARAMETERS.get(known, {})
        values: dict[str, int | Change] = {}
        for item in filter(None, rest.split(",")):
            key, _, value = item.partition("=")
            if key not in takes:
                known_keys = ", ".join(takes) or "no parameters"
                raise LayoutError(f"layout {name} takes {known_keys}: not {item!r}")
            if key in values:
                raise LayoutError(f"layout {name}: {key} is given twice")
            values[key] = _value(name, key, value)
        return cls(known, **values)  # type: ignore[arg-type]


def _value(name: str, key: str, text: str) -> int | Change:
    if key == "change":
        try:
            return Change(text)
        except ValueError:
            raise LayoutError(
                f"layout {name}: change is rewrite or tombstone, not {text!r}"
            ) from None
    if not (text.isdecimal() and 0 < int(text) < 10**9):
        raise LayoutError(f"layout {name}: {key}={text} is no positive number")
    return int(text)
