"""What a prompt is made of: segments of text in zones, and the token spans they became.

Tokens go out in ascending volatility: root, then trunk, then leaf, and inside a zone the slowest
segment first. Whatever changes then invalidates only what stands behind it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from duramen.layout.errors import LayoutError


class Zone(IntEnum):
    """Where a segment lives; the value is its authority (0 is highest).

    Root is the immutable contract, trunk slow and checked state, leaf what is new or volatile.
    """

    ROOT = 0
    TRUNK = 1
    LEAF = 2


@dataclass(frozen=True)
class Segment:
    """A piece of prompt text with its place. `volatility`: changes per call, 0 = never."""

    text: str
    zone: Zone
    source: str
    version: str | None = None
    volatility: float = 0.0

    def __post_init__(self) -> None:
        if self.volatility < 0:
            raise LayoutError(f"segment {self.source!r}: volatility {self.volatility} is negative")


@dataclass(frozen=True)
class Span:
    """Tokens [start, end) of a prompt and where they came from.

    `digest` identifies the exact text (of sampled tokens, what they spell), so equal digests mean
    equal content wherever they stand.
    """

    start: int
    end: int
    zone: Zone
    source: str
    digest: bytes
    sampled: bool = False

    @property
    def num_tokens(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Prompt:
    """Token ids that are sent, and the spans that cover them without gap or overlap.

    `notes` say what the layout had to do for this call that a reader of the messages would not
    expect.
    """

    token_ids: Sequence[int]
    spans: tuple[Span, ...]
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        position = 0
        for span in self.spans:
            if span.start != position or span.end < span.start:
                raise LayoutError(
                    f"span {span.source!r} is [{span.start}, {span.end}), "
                    f"but the previous one ended at {position}"
                )
            position = span.end
        if position != len(self.token_ids):
            raise LayoutError(f"spans cover {position} of {len(self.token_ids)} tokens")


def cut_front(prompt: Prompt, num_tokens: int) -> Prompt:
    """The last `num_tokens` of a prompt, as engines truncate. What was cut is noted."""
    shift = len(prompt.token_ids) - num_tokens
    if shift <= 0:
        return prompt
    spans = tuple(
        replace(span, start=max(span.start - shift, 0), end=span.end - shift)
        for span in prompt.spans
        if span.end > shift
    )
    note = "the first tokens of the prompt were cut off to fit the model"
    return Prompt(prompt.token_ids[shift:], spans, (*prompt.notes, note))
