"""What became of one piece of a prompt, before it is known where in the prompt it stands."""

from dataclasses import dataclass, replace

from duramen.layout.delta import common_text
from duramen.layout.diagnose.causes import Cause

MAX_SHOWN_CHARS = 60
_BEFORE_CHARS = 12  # shown of what both have in common


@dataclass(frozen=True)
class Change:
    """`where`: the message, field or tool it is in, in words. `mend`: what to change, where it is
    not what the cause asks for in general."""

    cause: Cause
    confidence: float
    evidence: str
    where: str = ""
    mend: str = ""

    def at(self, where: str) -> "Change":
        """The same, inside `where`."""
        return replace(self, where=f"{where}, {self.where}" if self.where else where)


def quoted(text: str) -> str:
    """One line, at most MAX_SHOWN_CHARS characters of `text` in quotes."""
    text = str.__getitem__(text, slice(0, MAX_SHOWN_CHARS + 1))
    shown = text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + "…"
    return repr(shown.encode("utf-8", "backslashreplace").decode())


def became(old: str, new: str) -> str:
    """Both from a little before the place where they part."""
    start = max(common_text(old, new) - _BEFORE_CHARS, 0)
    old, new = (str.__getitem__(text, slice(start, start + 200)) for text in (old, new))
    return f"{quoted(old)} became {quoted(new)}"
