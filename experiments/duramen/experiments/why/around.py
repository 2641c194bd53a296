"""Where in a prompt a token stands: its zone, and the text around it."""

from collections.abc import Sequence

from duramen.experiments.why.rendering import Ids, Rendered
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tracked import OTHER, TEMPLATE, TOOLS
from duramen.layout.transcript import num_root_messages
from duramen.layout.zones import Zone

NUM_AROUND = 12  # tokens on each side
BEHIND_CHARS = 512  # of the text behind a token, on which its ids may depend
CUT = "\ufffd"  # what a piece of a character decodes to


def around(tokenizer: Tokenizer, before: Ids, after: Ids, token: int) -> tuple[str, str]:
    """Decoded text around `token`, as it was and as it is; without the pieces of characters that
    are cut at its ends."""
    start, end = max(token - NUM_AROUND, 0), token + NUM_AROUND
    was, now = (_decoded(tokenizer, ids, start, end) for ids in (before, after))
    return was, now


def _decoded(tokenizer: Tokenizer, ids: Ids, start: int, end: int) -> str:
    text = tokenizer.decode(ids[start:end].tolist())
    text = text.lstrip(CUT) if start else text
    return text.rstrip(CUT) if end < len(ids) else text


def character_of(tokenizer: Tokenizer, rendered: Rendered, token: int) -> int:
    """The character at which a token of the prompt starts; of one that begins within a character,
    that one. Told from offsets, since ids may spell blanks that the text does not have
    (SentencePiece) and composed forms of what it has (NFC)."""
    character, start = rendered.anchor(token)
    if token == start:
        return character
    section = _section(tokenizer, rendered, character, token)
    spelled = len(tokenizer.decode(rendered.token_ids[start:token].tolist()))
    for text in (section[: spelled + BEHIND_CHARS], section):
        starts = tokenizer.token_starts(text, at_start=not character)
        if token - start < len(starts):
            return character + starts[token - start]
    return character + len(section)


def _section(tokenizer: Tokenizer, rendered: Rendered, character: int, token: int) -> str:
    """The text from an anchor's `character` to the next control token, `token` being in it."""
    end = next((end for end, behind in rendered.anchors if behind > token), len(rendered.text))
    text = rendered.text[character:end]
    control = next((low for low, _, _ in tokenizer.controls(text)), len(text))
    return str.__getitem__(text, slice(control))


def zone_of(rendered: Rendered, character: int, num_past: int) -> Zone:
    """The zone of a character, whose first `num_past` messages were there before. What a template
    writes between messages belongs to the one that it opens."""
    origin = _origin_from(rendered.text.runs, character)
    if origin in (TOOLS, OTHER):
        return Zone.ROOT
    if origin == TEMPLATE:
        return Zone.LEAF if rendered.messages else Zone.ROOT
    if origin <= num_root_messages(rendered.messages):
        return Zone.ROOT
    return Zone.TRUNK if origin <= num_past else Zone.LEAF


def _origin_from(runs: Sequence[tuple[int, int]], character: int) -> int:
    """Of the first data at or behind `character`; TEMPLATE if there is none."""
    position = 0
    for length, origin in runs:
        position += length
        if position > character and origin != TEMPLATE:
            return origin
    return TEMPLATE
