"""Text of a log as it can be shown: what has no look of its own is spelled out."""

import unicodedata

from duramen.layout.delta import common_text
from duramen.layout.diagnose.causes import Cause

MAX_CHARACTERS = 600  # of one text


def spelled(text: str) -> str:
    """Line ends, control and bidi marks, odd blanks and lone surrogates as escapes; long texts end
    in an ellipsis."""
    shown = "".join(map(_spelled, text[: MAX_CHARACTERS + 1]))
    return shown if len(text) <= MAX_CHARACTERS else f"{shown[:MAX_CHARACTERS]}…"


def shortened(name: str, most: int = 60) -> str:
    """A name spelled out; of a long one the beginning and the end."""
    shown = spelled(name)
    return shown if len(shown) <= most else f"{shown[: most - 17]}…{shown[-16:]}"


def parted(was: str, now: str, cause: Cause) -> tuple[str, str, str, str]:
    """What two texts begin with, where each differs, and how both end: spelled out, and backslashes
    doubled."""
    same = common_text(was, now)
    head, was, now = was[:same], was[same:], now[same:]
    num_end = common_text(was[::-1], now[::-1])
    ends = len(was) - num_end, len(now) - num_end
    pieces = head, was[: ends[0]], now[: ends[1]], was[ends[0] :]
    doubled = (forms_escaped(piece.replace("\\", "\\\\"), cause) for piece in pieces)
    head, was, now, tail = map(spelled, doubled)
    return head, was, now, tail


def forms_escaped(text: str, cause: Cause) -> str:
    """As it is; where it differs from another one in Unicode forms that look the same, with the
    characters that have another form as escapes."""
    if cause != "unicode-normalisation":
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.combining(character) or unicodedata.normalize("NFKD", character) != character
        else character
        for character in text
    )


def _spelled(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
