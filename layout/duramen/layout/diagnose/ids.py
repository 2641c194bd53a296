"""An id that is new in each request: told by its shape, or by the word before it."""

import re
from dataclasses import replace
from itertools import pairwise

from duramen.layout.delta import common_text
from duramen.layout.diagnose.change import Change
from duramen.layout.diagnose.counters import is_counted
from duramen.layout.diagnose.place import Place
from duramen.layout.diagnose.spots import CHARACTERS, Spot, shown_values

_INSIDE = frozenset("_+/=.~:%@{}#-$€£¥₹")
_ID_WORD = re.compile(
    r"(?:uu|gu|request|req|trace|session|run|conversation|correlation|invocation|span|message"
    r"|thread|task|job|call|turn|cache|user|device|client|build)[ _-]?(?:id|hash|key|token|uid)"
    r"|\b(?:id|uuid|guid|ulid|hash|nonce|seed|salt|cch|bust(?:er)?|rand(?:om)?|etag"
    r"|sig(?:nature)?|checksum"
    r"|digest|sha\d*|md5|fingerprint|jwt|token(?![ _-]?(?:budget|usage|count|limit|used|left))"
    r"|commit|head|rev(?:ision)?|ref(?:erence)?|blob|ray|x-[a-z-]+|pid"
    r"|(?:run|session|request|trace|job|worker|container|instance|sandbox)(?=\W*\Z))(?![A-Za-z])"
    r"|kennung|identifiant|identificador|識別子|标识",
    re.I,
)
_UUID = re.compile(r"[0-9A-Fa-f]{8}-?(?:[0-9A-Fa-f]{4}-?){3}[0-9A-Fa-f]{12}")
_HEX = re.compile(r"(?:0x)?[0-9a-f]{5,128}|(?:0x)?[0-9A-F]{5,128}")
_FRACTION = re.compile(r"0?[.][0-9]{7,20}")
_WORD_ID = re.compile(r"[A-Za-z0-9_+/=.~:%@{}-]{4,512}")
_TEMPORARY = re.compile(r"/(?:te?mp|var/folders|scratch|sandbox)/")
_TEMPORARY_NAME = re.compile(r"[A-Za-z0-9_.-]{6,40}")
_CONSONANTS = re.compile(r"[bcdfghjklmnpqrstvwxz]{5}|(?:[^aeiouyAEIOUY]{5,})", re.I)
_TURNS = re.compile(r"[a-z][A-Z]+[a-z]+[A-Z]")
_LABEL_CHARS = 14  # between a word for an id and the id
_PORT = re.compile(r"\b(?:ports?|localhost:|127\.0\.0\.1:)", re.I)
_FIRST_EPHEMERAL = 32_768
_SHARE = re.compile(
    r"\d{1,3}(?:[_,.]\d{3})+\Z|\d[\d.,]*(?:[kKMGT]i?B?|[kmM%]|ms|s)\Z|PT?(?:\d+[DHMS])+\Z"
    r"|[\d.,]+[kKmM%]?/[\d.,]+[kKmM%]?\Z|\d+[.]\d+e[+-]\d+\Z"
)
_VERSION = re.compile(r"v?\d{1,3}(?:[.]\d{1,3}){1,3}")
_ADDRESS_PARTS = 4
_YEAR = re.compile(r"(?:19|20)\d\d")
_NAME_PARTS = re.compile(r"[-_.:/@+ ]+")
_NAME_PART = re.compile(
    r"[A-Za-z]{1,3}|[A-Z]?[a-z]*[aeiouy][a-z]*|[A-Z]{2,5}|v?\d{1,4}[a-z]?|[a-z]{1,2}\d{1,3}[a-z]?"
    r"|(?:19|20)\d{6}"
    r"|\d{1,2}x?[a-z]{2,6}"
)
_TIME_WORD = re.compile(r"(?:\bts|time|date|stamp|clock|epoch|now)(?![a-z])", re.I)


def _in_word(piece: str) -> bool:
    return (piece.isascii() and piece.isalnum()) or piece in _INSIDE


def id_change(was: Spot, now: Spot, place: Place) -> Change | None:
    was, now = was.grown(_in_word, CHARACTERS), now.grown(_in_word, CHARACTERS)
    was, now = _without_label(was, now)
    if _SHARE.match(was.value) or _VERSION.fullmatch(was.value):
        return None
    labelled = _is_labelled(was) and not _is_count(was, now)
    sure = _confidence(was.value, now.value, labelled, place, was.words)
    return Change("uuid-or-hash", sure, shown_values(was, now)) if sure else None


def _is_count(was: Spot, now: Spot) -> bool:
    if not (was.value.isdecimal() and now.value.isdecimal() and is_counted(was)):
        return False
    old, new = int(was.value[:30]), int(now.value[:30])
    return abs(new - old) * 4 <= max(old, new) < 10**9


def _is_labelled(spot: Spot) -> bool:
    """Whether a word for an id stands close in front."""
    words = spot.words
    ends = [found.end() for found in _ID_WORD.finditer(words)]
    return bool(ends) and len(words) - ends[-1] <= _LABEL_CHARS


def is_numbered(was: Spot, now: Spot) -> bool:
    """Whether both are numbers behind the name of an id, which may look like times."""
    was, now = was.grown(str.isdecimal, CHARACTERS), now.grown(str.isdecimal, CHARACTERS)
    if _PORT.search(was.words[-24:]):
        return True
    named = _ID_WORD.search(was.words[-24:]) and not _TIME_WORD.search(was.words[-24:])
    return named is not None and min(map(len, (was.value, now.value))) >= 9


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


def _confidence(old: str, new: str, labelled: bool, place: Place, label: str) -> float:
    old, new = old.strip(".:"), new.strip(".:")
    if _UUID.fullmatch(old) and _UUID.fullmatch(new):
        return 1.0
    if all(_FRACTION.fullmatch(text) for text in (old, new)):
        return 0.85 if labelled or place.is_root else 0.0
    if not (_WORD_ID.fullmatch(old) and _WORD_ID.fullmatch(new)):
        return 0.0
    if old.isdecimal() and new.isdecimal():
        return _of_numbers(old, new, labelled, place, label)
    if abs(len(old) - len(new)) > max(4, len(old) // 4):
        return 0.0
    return _of_words((old, new), labelled, place)


def _of_numbers(old: str, new: str, labelled: bool, place: Place, label: str) -> float:
    """Long numbers far apart are drawn, or made of a time and a number; a label names others."""
    was, now = int(old[:30]), int(new[:30])
    step, shortest = abs(was - now), min(len(old), len(new))
    if labelled and step > 1 and shortest >= 4:
        return 0.9
    if not (place.is_root or place.is_first_user):
        return 0.0
    if shortest >= 15 and step > 1000:
        return 0.85
    if place.is_root and _PORT.search(label) and min(was, now) >= _FIRST_EPHEMERAL:
        return 0.8
    return 0.7 if place.is_root and shortest >= 9 and step * 4 > max(was, now) else 0.0


def _is_name(text: str) -> bool:
    """Words, versions and dates, as models, machines and licences are called."""
    parts = _NAME_PARTS.split(text)
    numbers = sum(part.isdecimal() for part in parts)
    numbers = 2 if numbers and any(_YEAR.fullmatch(part) for part in parts) else numbers
    plain = all(
        _NAME_PART.fullmatch(p) and not (p.isalpha() and _CONSONANTS.search(p)) for p in parts if p
    )
    return plain and numbers < _ADDRESS_PARTS and (any(map(_is_word, parts)) or numbers > 1)


def _is_word(part: str) -> bool:
    return re.search(r"[A-Za-z]{4}", part) is not None


def _of_words(whole: tuple[str, str], labelled: bool, place: Place) -> float:
    if not labelled and all(map(_is_name, whole)) and not _in_temporary_folder(*whole):
        return 0.0
    old, new = _segments(*whole)
    looks = [_looks_random(text) for text in (old, new)]
    much = _differ_much(old, new) or (all(looks) and _differ_much(*whole))
    random = all(looks) or (any(looks) and 8 <= len(old) == len(new) and much)
    if not random and len(whole[0]) == len(whole[1]) >= 8 and not any(map(_is_name, whole)):
        random = much = all(map(_looks_random, whole)) and _differ_much(*whole)
        old, new = whole if random else (old, new)
    if _HEX.fullmatch(old) and _HEX.fullmatch(new) and random:
        return 0.98 if labelled or len(old) >= 7 else 0.8
    if labelled and (random or much or _differ_much(*whole)):
        return 0.95
    if random and much:
        return 0.9 if len(old) >= 10 else 0.7 if place.is_root else 0.0
    if not (place.is_root or place.is_first_user):
        return 0.0
    if _in_temporary_folder(*whole):
        return 0.9
    if not _is_drawn(old, new):
        return 0.0
    return 0.9 if labelled else 0.7 if place.is_root else 0.0


def _in_temporary_folder(old: str, new: str) -> bool:
    """Whether the first difference is in the name of a folder as `mkdtemp` makes them."""
    names = list(zip(old.split("/"), new.split("/"), strict=False))
    first = next((i for i, (a, b) in enumerate(names) if a != b), 0)
    was, now = names[first]
    ending = common_text(was[::-1], now[::-1])
    if "." in was[len(was) - ending :]:
        was, now = was[: was.rindex(".")], now[: now.rindex(".")]
    folders = [re.match(r"te?mp", name) or _TEMPORARY.search(old.lower()) for name in (was, now)]
    drawn = _TEMPORARY_NAME.fullmatch(was) and _TEMPORARY_NAME.fullmatch(now)
    if not (all(folders) and drawn and len(was) == len(now)) or not _far_apart(was, now, 5):
        return False
    made = was.startswith(("tmp", "temp")) and now.startswith(("tmp", "temp"))
    return made or _is_odd(was, now) or any(c in "_0123456789" for c in was + now)


def _is_drawn(old: str, new: str) -> bool:
    """Two runs of letters, as long as each other, that no one can say."""
    plain = old.isascii() and old.isalnum() and new.isascii() and new.isalnum()
    return plain and len(old) == len(new) and _far_apart(old, new, 5) and _is_odd(old, new)


def _is_odd(old: str, new: str) -> bool:
    """Whether one of the two has fewer vowels than words have, or cases in turns."""
    return any(_CONSONANTS.search(text) or _TURNS.search(text) for text in (old, new))


def _far_apart(old: str, new: str, least: int) -> bool:
    """Other characters in two places of three, from the first difference on, `least` or more."""
    pairs = list(zip(old, new, strict=False))
    while len(old) == len(new) and pairs and pairs[-1][0] == pairs[-1][1]:
        pairs.pop()
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    same = sum(a == b for a, b in pairs[first:])
    return len(pairs) - first >= least and same * 3 <= len(pairs) - first


def _differ_much(old: str, new: str) -> bool:
    """In most places behind the common beginning, as random text does."""
    pairs = zip(old, new, strict=False)
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))
    has_digits = any(c.isdecimal() for c in old[first:] + new[first:])
    mixed = any(c.isupper() for c in old[first + 1 :]) and any(c.islower() for c in old[first:])
    return _far_apart(old, new, 3) and (has_digits or mixed)


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
