"""A number that counts up or down from call to call: told by the words around it."""

import re

from duramen.layout.diagnose.change import Change
from duramen.layout.diagnose.place import Place
from duramen.layout.diagnose.spots import CHARACTERS, Spot, shown_values

_COUNTED = re.compile(
    r"\b(?:steps?|turns?|calls?|iterations?|attempts?|rounds?|requests?|messages?|cycles?|loops?"
    r"|tries|retry|retries|tokens?|budget|credits?|quota|cost|spen[dt]|used|usage|consumed|left"
    r"|remain\w*|so far|progress|percent|complete[d]?|count(?:er)?|total|number|no[.]|iter|actions?"
    r"|context|index|elapsed|pending|done|already|schritt\w*|runde|versuch\w*|übrig|verbleib\w*"
    r"|verbraucht|étapes?|tours?|restant\w*|essais?|pasos?|turnos?|intentos?|quedan?|restan\w*"
    r"|passos?|passi|tentativ\w+|rimanent\w*|шаг\w*|осталось|попытк\w+)(?![A-Za-z])"
    r"|第|步|已|剩|令牌|词元|トークン|토큰|剩余|残り|ステップ|回目|남은|단계",
    re.I,
)
_LIMIT = re.compile(
    r"\b(?:at most|at least|max(?:imum)?|min(?:imum)?|up to|no more than|limit\w*|exactly|within"
    r"|every|each|per|than|default|may|can|must|should|allowed|never|only|under|over|above|below"
    r"|höchstens|maximal|au plus|como máximo)(?![A-Za-z])",
    re.I,
)
_STRONG_COUNT = re.compile(
    r"(?:steps?|turns?|calls?|iterations?|attempts?|rounds?|requests?|schritt|étape|paso|passo|шаг"
    r"|ステップ|第)\W{0,3}\d+\W{0,3}(?:of|/|von|de|sur|из|out of|步)"
    r"|(?:tokens?|steps?|turns?|calls?|budget|credits?|quota|context)"
    r"\W{1,3}(?:used|left|remain\w*|spent|so far|consumed|window)"
    r"|\d\W{0,3}(?:tokens?|steps?|turns?|calls?|credits?)\W{1,3}(?:used|left|remain\w*|so far)"
    r"|(?:used|remaining|left|so far)\s{0,2}[:=]\D{0,20}\d"
    r"|\d\s?[%％]\W{0,3}(?:complete|done|used|left|remain\w*|full|of (?:the |your )?context)",
    re.I,
)
_NUMBER = re.compile(
    r"[$€£¥#~+-]{0,2}\d[\d.,_' ]{0,20}?(?:[kKmM%％]|USD|EUR)?(?:/\d[\d.,]*[kKmM]?)?"
)


_OF = re.compile(r"\s?(?:of|von|de|sur|di|из)\s(\d+)\b")
_SPELLED = re.compile(
    r"\d+(?:st|nd|rd|th)|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|one|two"
    r"|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen"
    r"|seventeen|eighteen|nineteen|twenty",
    re.I,
)
_BAR = re.compile(r"[#=.>*_█▉▊▋▌▍▎▏░▒▓■□●○◯◉▪▫▮▯\- ]+")
_PERIOD = re.compile(
    r"\b(?:year|quarter|month|week|day|hour|minute|jahr|monat|woche|tag|année|mois|semaine|año|mes"
    r"|semana)\W*\Z",
    re.I,
)


def _in_number(piece: str) -> bool:
    return piece.isdecimal() or piece in "$€£¥.,_/%％'kKmM"


def counter_change(was: Spot, now: Spot, place: Place) -> Change | None:
    was, now = was.grown(_in_number, CHARACTERS), now.grown(_in_number, CHARACTERS)
    old, new = was.value.strip(" .,/"), now.value.strip(" .,/")
    if not (_NUMBER.fullmatch(old) and _NUMBER.fullmatch(new)):
        return _spelled_change(was, now, place) or _bar_change(was, now, place)
    if place.is_root and _PERIOD.search(was.words) and not _LIMIT.search(was.words[-30:]):
        return Change("clock", 0.75, shown_values(was, now))
    sure = _confidence(was, now, place)
    return Change("counter", sure, shown_values(was, now)) if sure else None


def _spelled_change(was: Spot, now: Spot, place: Place) -> Change | None:
    was, now = was.grown(str.isalnum, CHARACTERS), now.grown(str.isalnum, CHARACTERS)
    if not (_SPELLED.fullmatch(was.value) and _SPELLED.fullmatch(now.value)):
        return None
    near = f"{was.words[-30:]} {was.right[:20]}"
    if not place.is_root or _LIMIT.search(near) or not _COUNTED.search(near):
        return None
    return Change("counter", 0.85, shown_values(was, now))


def _bar_change(was: Spot, now: Spot, place: Place) -> Change | None:
    """A bar of progress."""
    bars = [spot.grown(lambda c: _BAR.fullmatch(c) is not None, CHARACTERS) for spot in (was, now)]
    widths = {len(bar.value) for bar in bars}
    if not place.is_root or len(widths) > 1 or min(widths) < 4:
        return None
    drawn = all(_BAR.fullmatch(bar.value) and bar.value.strip() for bar in bars)
    return Change("counter", 0.8, shown_values(*bars)) if drawn else None


def _confidence(was: Spot, now: Spot, place: Place) -> float:
    around = was.words + was.value + was.right
    if _STRONG_COUNT.search(around):
        return 0.97 if place.is_root or place.is_first_user else 0.8
    if not (place.is_root or place.is_first_user) or _LIMIT.search(was.words[-30:]):
        return 0.0
    if _total(was) and _total(was) == _total(now):
        return 0.9 if place.is_root else 0.7
    near = was.words[-30:] + " " + was.value + " " + was.right[:20]
    if _COUNTED.search(near):
        return 0.95 if place.is_root else 0.8
    labelled = was.is_labelled and (place.is_root or was.left.endswith("="))
    return 0.7 if labelled and _is_step(was.value, now.value) else 0.0


def _is_step(old: str, new: str) -> bool:
    """Whether a number moved by at most a half."""
    was, now = (float(re.sub(r"\D", "", text)[:15] or "0") for text in (old, new))
    return abs(now - was) <= max(10.0, was / 2)


def _total(spot: Spot) -> str:
    """What a share is of: the number behind the stroke, or behind "of"."""
    inside = spot.value.partition("/")[2].strip(" .,")
    found = _OF.match(spot.right)
    return inside or (found[1] if found else "")
