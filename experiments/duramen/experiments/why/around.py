"""Where in a prompt a token stands: its zone, and the text around it."""

from collections.abc import Sequence

from duramen.experiments.why.rendering import Ids, Rendered
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tracked import OTHER, TEMPLATE, TOOLS
from duramen.layout.transcript import num_root_messages
from duramen.layout.zones import Zone

NUM_AROUND = 12  # tokens on each side


def around(tokenizer: Tokenizer, before: Ids, after: Ids, token: int) -> tuple[str, str]:
    """Decoded text around `token`, as it was and as it is."""
    start = max(token - NUM_AROUND, 0)
    was, now = (
        tokenizer.decode(ids[start : token + NUM_AROUND].tolist()) for ids in (before, after)
    )
    return was, now


def character_of(tokenizer: Tokenizer, rendered: Rendered, token: int) -> int:
    """The character at which a token of the prompt starts; of one that begins within a character,
    that one."""
    character, start = rendered.anchor(token)
    spelled = tokenizer.decode(rendered.token_ids[start:token].tolist())
    return min(character + len(spelled.rstrip("\ufffd")), len(rendered.text))


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
