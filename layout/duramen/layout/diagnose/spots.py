"""A changed value and the line that it stands in."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from duramen.layout.diagnose.change import quoted

_WINDOW_CHARS = 200  # of a line, on both sides of a change
_LABEL_CHARS = 60
_JOINTS = re.compile(r"(?<=[a-z])(?=[A-Z])|_")
_SENTENCE_ENDS = (".", "!", "?", "。", "！", "？")
CHARACTERS = re.compile(r".", re.S)


@dataclass(frozen=True)
class Spot:
    """The changed region of one version within its line: `line[start:end]`. `above`: the end of the
    line before it."""

    line: str
    start: int
    end: int
    above: str = ""

    @classmethod
    def of(cls, text: str, start: int, end: int) -> "Spot":
        low = max(text.rfind("\n", max(start - _WINDOW_CHARS, 0), start) + 1, start - _WINDOW_CHARS)
        low = max(low, 0)
        high = text.find("\n", end, end + _WINDOW_CHARS)
        high = min(len(text), end + _WINDOW_CHARS) if high < 0 else high
        line, above = (
            str.__getitem__(text, slice(*ends))
            for ends in ((low, high), (max(low - _LABEL_CHARS, 0), low))
        )
        return cls(line, start - low, end - low, above.rstrip("\n").rpartition("\n")[2])

    @property
    def value(self) -> str:
        return self.line[self.start : self.end]

    @property
    def left(self) -> str:
        return self.line[max(self.start - _LABEL_CHARS, 0) : self.start]

    @property
    def words(self) -> str:
        """`left` with the words of names apart (`currentTime`, `request_id`); the line above, a
        heading, where the value begins its own."""
        above = "" if self.above.rstrip()[-1:] in _SENTENCE_ENDS else self.above
        left = self.left if self.left.strip(" \t\"'`*_") else f"{above} {self.left}"
        return _JOINTS.sub(" ", left)

    @property
    def right(self) -> str:
        return self.line[self.end : self.end + _LABEL_CHARS]

    @property
    def stands_alone(self) -> bool:
        """No letter or digit of ASCII touches it."""
        around = self.line[max(self.start - 1, 0) : self.start] + self.line[self.end : self.end + 1]
        return not any(c.isascii() and c.isalnum() for c in around)

    @property
    def is_labelled(self) -> bool:
        """It stands for itself: behind a label or a bracket, or at the beginning of a line."""
        left = self.left.rstrip(" \t\"'`*_")
        if left[-1:] in "-/" and left[-2:-1].isalnum():
            return False  # inside a name
        return not left or left[-1] in ":=>[({|-–—•：【（"

    def whole(self, pieces: re.Pattern[str]) -> "Spot":
        """With the rest of the pieces that it cuts."""
        touched = [
            found.span()
            for found in pieces.finditer(self.line)
            if found.start() < max(self.end, self.start + 1) and found.end() > self.start
        ]
        if not touched:
            return self
        start, end = min(touched[0][0], self.start), max(touched[-1][1], self.end)
        return replace(self, start=start, end=end)

    def grown(self, allowed: Callable[[str], bool], pieces: re.Pattern[str]) -> "Spot":
        """With the pieces around it that `allowed` takes, without blanks at its ends."""
        start, end = self.start, self.end
        cut = [found.span() for found in pieces.finditer(self.line)]
        for low, high in reversed([span for span in cut if span[0] < start]):
            if not allowed(self.line[low:high]):
                break
            start = low
        for low, high in (span for span in cut if span[1] > end):
            if not allowed(self.line[low:high]):
                break
            end = high
        while start < min(end, self.start) and self.line[start] in " \t,.:-+/([|·~'’)]":
            start += 1
        while end > max(start, self.end) and self.line[end - 1] in " \t,.:-+/([|·~'’)]":
            end -= 1
        return replace(self, start=start, end=end)


def shown_values(was: Spot, now: Spot) -> str:
    """Both values and what stands before the first."""
    label = was.left.strip()[-24:]
    evidence = f"{quoted(was.value)} became {quoted(now.value)}"
    return f"{evidence} behind {quoted(label)}" if label else evidence
