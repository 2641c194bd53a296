"""Where the zones of a rendered prompt begin, by whose text it is."""

from bisect import bisect_right

from duramen.experiments.why.rendering import Rendered
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tracked import TEMPLATE
from duramen.layout.transcript import num_root_messages


def zone_starts(tokenizer: Tokenizer, rendered: Rendered, num_past: int) -> tuple[int, int]:
    """Tokens at which trunk and leaf begin, the first `num_past` messages being older.

    The trunk begins behind the data that stands before that of the first message beyond the root,
    the leaf in the same way: at the control token that closes it, or at its last character where a
    template closes it with none. Raw text is all root.
    """
    if not rendered.messages:
        return len(rendered.token_ids), len(rendered.token_ids)
    num_root = num_root_messages(rendered.messages)
    trunk = _start(tokenizer, rendered, num_root)
    return trunk, max(trunk, _start(tokenizer, rendered, max(num_root, num_past)))


def _start(tokenizer: Tokenizer, rendered: Rendered, num_before: int) -> int:
    """Token behind all data that stands before any of a message beyond the first `num_before`."""
    position = end = 0
    for length, origin in rendered.text.runs:
        if origin > num_before:
            break
        position += length
        end = end if origin == TEMPLATE else position
    return _token_within(tokenizer, rendered, end, position)


def _token_within(tokenizer: Tokenizer, rendered: Rendered, start: int, end: int) -> int:
    """The first control token of characters [start, end), which are the template's; without one,
    the token that begins at `start`."""
    index = bisect_right(rendered.anchors, start, key=lambda each: each[0])
    if index < len(rendered.anchors) and rendered.anchors[index][0] <= end:
        return rendered.anchors[index][1] - 1
    character, token = rendered.anchors[index - 1] if index else (0, 0)
    piece = rendered.text[character:start]
    return token + len(tokenizer.encode(piece, at_start=character == 0).token_ids)
