"""A date or time that moved on, told from one that a person changed."""

import re
from dataclasses import replace

from duramen.layout.diagnose.change import Change
from duramen.layout.diagnose.moments import (
    PIECES,
    belongs_to_time,
    forms,
    introduces_time,
    is_temporal_piece,
    moment_s,
)
from duramen.layout.diagnose.place import Place
from duramen.layout.diagnose.spots import Spot, shown_values

_DAY_S = 86_400.0
_BEHIND_CHARS = 24
_NOW = re.compile(
    r"\b(?:now|today|tonight|current(?:ly)?|as of|it is|it's|time ?stamp|generated|rendered|clock"
    r"|we are in|we're in|nous sommes|estamos|siamo|heute|jetzt|aktuell\w*|derzeit\w*|stand:"
    r"|aujourd|maintenant|actuel\w*|hoy|ahora|actual\w*"
    r"|oggi|adesso|attual\w*|hoje|agora|atual\w*|vandaag|huidige|dzisiaj|dziś|teraz|сегодня|сейчас"
    r"|текущ\w*|idag|nuvarande|bugün|şimdi)(?![A-Za-z])|今天|今日|现在|現在|当前|當前|目前|지금|현재|오늘",
    re.I,
)
_NAMED_TIME = re.compile(
    r"\b(?:time|date|datetime|epoch|unix|ts|day|weekday|sent|started?|updated?|refreshed"
    r"|at|datum|uhrzeit|zeit|zeitstempel|heure|fecha|hora|data|ora|tid|dato|czas|время|дата)"
    r"(?![A-Za-z])|时间|時間|時刻|日期|日付|시간|시각|날짜",
    re.I,
)
_TIME_IS = re.compile(
    r"\b(?:time|date|day|week|month|year|datum|uhrzeit|heure|fecha|hora|data|дата|время)\s+(?:is|was|ist|est|es|è|é)"
    r"\s*\Z",
    re.I,
)
_GREETING = re.compile(r"\b(?:good|this|guten|bon|buen\w*|bom|boa)\W*\Z", re.I)
_FIXED = re.compile(
    r"\b(?:versions?|cut-?off|released?|publish(?:ed)?|effective|founded|born|birth\w*|copyright"
    r"|introduced|deprecated|deadline|due|expir\w+|every|daily|weekly|hours|limit|timeout|duration"
    r"|examples?|e[.]g|such as|format|phone|port|flight|depart\w*|arriv\w*|appointment|meeting"
    r"|booked|opens|opening|open(?= from| on| until| till)|closes"
    r"|closing|business|scheduled?|reservation|holiday|until|till|before|after|between|frist|fällig)"
    r"(?![A-Za-z])|©",
    re.I,
)


def is_time(was: Spot, now: Spot) -> bool:
    """Whether both changed values are times, or parts of one, and stand apart from other words."""
    pieces = (p for spot in (was, now) for p in PIECES.findall(spot.whole(PIECES).value))
    if not all(map(is_temporal_piece, pieces)):
        return False
    was, now = _field(was), _field(now)
    shown, shown_now = forms(was.value), forms(now.value)
    alike = shown & shown_now or (shown and shown_now and "ago" in shown | shown_now)
    return bool(alike) and was.stands_alone and now.stands_alone


def clock_change(was: Spot, now: Spot, place: Place) -> Change | None:
    """None where a person changed the time. To be asked of what `is_time`."""
    was, now = _field(was), _field(now)
    sure = _confidence(was, now, forms(was.value) & forms(now.value), place)
    return Change("clock", sure, shown_values(was, now)) if sure else None


def _field(spot: Spot) -> Spot:
    grown = spot.grown(belongs_to_time, PIECES)
    start = grown.start
    for found in PIECES.finditer(spot.line, grown.start):
        if found.end() > spot.start or not introduces_time(found[0]):
            break
        start = found.end()
    return replace(grown, start=min(start, spot.start))


def _confidence(was: Spot, now: Spot, common: frozenset[str], place: Place) -> float:
    """0 where a person changed it. A clock goes forward; without a date it may pass midnight."""
    told = max((found.end() for found in _NOW.finditer(was.words)), default=-1)
    fixed = max((found.end() for found in _FIXED.finditer(was.words)), default=-1)
    if told < 0 and _NOW.search(was.right[:_BEHIND_CHARS]):
        told = 0
    if fixed > told:
        return 0.0
    step_s = _step_s(was.value, now.value)
    backward = step_s is not None and step_s < 0 and bool(common & {"date", "epoch"})
    if told >= 0:
        return 0.7 if backward else 0.98
    if backward:
        return 0.0
    if common & {"seconds", "epoch"}:
        return 0.95 if place.is_root or place.is_first_user else 0.75
    if common & {"ago"} and not common <= {"ago", "year"}:
        return 0.8
    if "ago" in common and re.search(r"\d", was.value + now.value):
        return 0.85
    if "daypart" in common and _GREETING.search(was.words):
        return 0.8 if place.is_root else 0.0
    named = _NAMED_TIME.search(was.words) is not None
    if place.is_tool_output and "time" in common and step_s is not None and step_s >= 0:
        return 0.7
    if place.is_tool_output or not (place.is_root or place.is_first_user):
        return 0.0
    if _TIME_IS.search(was.words) and common & {"time", "date", "weekday", "month"}:
        return 0.85
    if was.is_labelled and (named or common & {"time", "date", "weekday", "words"}):
        return 0.9 if named else 0.75
    near = step_s is not None and 0 <= step_s <= 2 * _DAY_S
    if place.is_root and (named or near) and common & {"time", "date", "weekday"}:
        return 0.75
    return 0.0


def _step_s(old: str, new: str) -> float | None:
    """The smallest step forward that 01/02/2026 may stand for, else the smallest backward."""
    steps = []
    for days_first in (False, True):
        before, after = moment_s(old, days_first), moment_s(new, days_first)
        if before is not None and after is not None:
            steps.append(after - before)
    forward = [step for step in steps if step >= 0]
    return min(forward) if forward else max(steps, default=None)
