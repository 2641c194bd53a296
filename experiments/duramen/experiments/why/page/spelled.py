"""Text of a log as it can be shown: what has no look of its own is spelled out."""

from duramen.layout.delta import common_text

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


def parted(was: str, now: str) -> tuple[str, str, str, str]:
    """What two texts begin with, where each differs, and how both end: spelled out, and backslashes
    doubled."""
    same = common_text(was, now)
    head, was, now = was[:same], was[same:], now[same:]
    num_end = common_text(was[::-1], now[::-1])
    ends = len(was) - num_end, len(now) - num_end
    pieces = head, was[: ends[0]], now[: ends[1]], was[ends[0] :]
    head, was, now, tail = (spelled(piece.replace("\\", "\\\\")) for piece in pieces)
    return head, was, now, tail


def _spelled(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
