"""The root's constraints once more, where a model that has read far still sees them."""

import re
from collections.abc import Callable, Iterator, Sequence

HEADER = "The rules above still hold:"
MAX_LINE_CHARS = 1000  # more is no rule; it is not measured either
_FENCE = re.compile(r"[ \t]{0,3}(?:```|~~~)")
_SENTENCE_END = re.compile(r"(?<=[.!?])[ \t]+(?=[^a-z\s])")
_CONSTRAINT = re.compile(
    r"\b(?:must|mustn't|shall|never|always|do not|don't|cannot|can't|may not|should not|shouldn't"
    r"|only|requires?|required|mandatory|forbidden|prohibited|not (?:allowed|permitted)|no more"
    r" than|at (?:most|least)|make sure|ensure|avoid|under no circumstances|refuse)\b",
    re.IGNORECASE,
)


def reminder(texts: Sequence[str], max_tokens: int, count: Callable[[str], int]) -> str:
    """A header and the lines of `texts` that state a constraint (sentences of long lines; the first
    lines where none does), in order, as many as fit from the first on. "" where none fits.

    `count`: tokens of a text; asked some log(lines) times, never about more than twice the lines
    that fit. At most `max_tokens` in all. Constraints are told by English words.
    """
    lines = [line for text in texts for line in _lines(text)]
    chosen = [line for line in lines if _CONSTRAINT.search(line)] or lines

    def written(num_lines: int) -> str:
        return "\n".join([HEADER, *chosen[:num_lines]])

    fits, too_many = 0, 1
    while too_many <= len(chosen) and count(written(too_many)) <= max_tokens:
        fits, too_many = too_many, 2 * too_many
    too_many = min(too_many, len(chosen) + 1)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if count(written(middle)) <= max_tokens:
            fits = middle
        else:
            too_many = middle
    return written(fits) if fits else ""


def _lines(text: str) -> Iterator[str]:
    """Lines and the sentences of long ones, without code blocks, empty lines and headings."""
    in_code = False
    for line in text.splitlines():
        if _FENCE.match(line):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith("#"):
            for sentence in _SENTENCE_END.split(line):
                if sentence.strip() and len(sentence) <= MAX_LINE_CHARS:
                    yield sentence.strip()
