"""An id that is new in each request: told by its shape, or by the word before it."""

import re
from dataclasses import replace
from itertools import pairwise

from duramen.layout.diagnose.change import Change
from duramen.layout.diagnose.place import Place
from duramen.layout.diagnose.spots import CHARACTERS, Spot, shown_values

_EDGES = frozenset("\"'`()[]{}<>,;!?|*«»“”")
_ID_WORD = re.compile(
    r"(?:uu|gu|request|req|trace|session|run|conversation|correlation|invocation|span|message"
    r"|thread|task|job|call|turn|cache|user|device|client|build)[ _-]?(?:id|hash|key|token|uid)"
    r"|\b(?:id|uuid|guid|ulid|hash|nonce|seed|salt|cch|bust(?:er)?|rand(?:om)?|etag|sig(?:nature)?|checksum|digest"
    r"|sha\d*|md5|fingerprint|token|commit|head|rev(?:ision)?|blob|ray|x-[a-z-]+|pid"
    r"|(?:run|session|request|trace|job|worker|container|instance|sandbox)(?=\W*\Z))(?![A-Za-z])"
    r"|kennung|identifiant|identificador|識別子|标识",
    re.I,
)
_UUID = re.compile(r"[0-9A-Fa-f]{8}-?(?:[0-9A-Fa-f]{4}-?){3}[0-9A-Fa-f]{12}")
_HEX = re.compile(r"(?:0x)?[0-9a-f]{5,128}|(?:0x)?[0-9A-F]{5,128}")
_FRACTION = re.compile(r"0?[.][0-9]{7,20}")
_WORD_ID = re.compile(r"[A-Za-z0-9_+/=.~:%-]{4,512}")


def _in_word(piece: str) -> bool:
    return not piece.isspace() and piece not in _EDGES


def id_change(was: Spot, now: Spot, place: Place) -> Change | None:
    was, now = was.grown(_in_word, CHARACTERS), now.grown(_in_word, CHARACTERS)
    was, now = _without_label(was, now)
    labelled = _ID_WORD.search(was.words) is not None
    sure = _confidence(was.value, now.value, labelled, place)
    return Change("uuid-or-hash", sure, shown_values(was, now)) if sure else None


def _without_label(was: Spot, now: Spot) -> tuple[Spot, Spot]:
    """Without `name=` or `name:` in front of both, which then is part of what stands before."""
    old, new = was.value, now.value
    cut = 0
    for i in range(min(len(old), len(new))):
        if old[i] != new[i]:
            break
        if old[i] in "=:/?&@":
            cut = i + 1
    return (
        replace(was, start=was.start + cut),
        replace(now, start=now.start + cut),
    )


def _confidence(old: str, new: str, labelled: bool, place: Place) -> float:
    old, new = old.strip(".:"), new.strip(".:")
    if _UUID.fullmatch(old) and _UUID.fullmatch(new):
        return 1.0
    if all(_FRACTION.fullmatch(text) for text in (old, new)):
        return 0.85 if labelled or place.is_root else 0.0
    if not (_WORD_ID.fullmatch(old) and _WORD_ID.fullmatch(new)):
        return 0.0
    if old.isdecimal() and new.isdecimal():
        far = abs(int(old[:30]) - int(new[:30])) > 1 and min(len(old), len(new)) >= 4
        return 0.9 if labelled and far else 0.0
    if abs(len(old) - len(new)) > max(4, len(old) // 4):
        return 0.0
    whole = old, new
    old, new = _segments(old, new)
    looks = [_looks_random(text) for text in (old, new)]
    random = all(looks) or (any(looks) and 8 <= len(old) == len(new) and _differ_much(old, new))
    if _HEX.fullmatch(old) and _HEX.fullmatch(new) and random:
        return 0.98 if labelled or len(old) >= 7 else 0.8
    if labelled and (random or _differ_much(old, new) or _differ_much(*whole)):
        return 0.95
    if random and _differ_much(old, new):
        return 0.9 if len(old) >= 10 else 0.7 if place.is_root else 0.0
    return 0.0


def _differ_much(old: str, new: str) -> bool:
    """In most places behind the common beginning, as random text does."""
    pairs = list(zip(old, new, strict=False))
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    tail = pairs[first:]
    same = sum(a == b for a, b in tail)
    has_digits = any(c.isdecimal() for c in old[first:] + new[first:])
    mixed = any(c.isupper() for c in old[first + 1 :]) and any(c.islower() for c in old[first:])
    return len(tail) >= 3 and same * 3 <= len(tail) and (has_digits or mixed)


def _segments(old: str, new: str) -> tuple[str, str]:
    """The runs of letters and digits that hold the first difference; all where they are short."""
    first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), 0)
    start = first
    while start and old[start - 1].isalnum():
        start -= 1
    cut = [re.match(r"[A-Za-z0-9]*", text[start:]) for text in (old, new)]
    was, now = (found[0] if found else "" for found in cut)
    return (was, now) if min(len(was), len(now)) >= 4 else (old, new)


def _looks_random(text: str) -> bool:
    """Digits and letters take turns as they do not in names, versions and words."""
    digits = sum(c.isdecimal() for c in text)
    letters = sum(c.isalpha() for c in text)
    turns = sum(a.isdecimal() != b.isdecimal() for a, b in pairwise(text))
    cases = sum(
        a.isalpha() and b.isalpha() and a.isupper() != b.isupper() for a, b in pairwise(text)
    )
    is_hex = _HEX.fullmatch(text) is not None
    if letters and digits:
        return turns >= 2 or is_hex
    return (cases >= 4 and len(text) >= 10) or (letters >= 12 and is_hex)
