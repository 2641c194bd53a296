"""Dates and times in a piece of text, as prompts write them, in the larger languages.

A field is read piece by piece: digits, calendar words, separators. That follows any order and
punctuation, so it does not depend on a list of formats.
"""

import datetime
import re
from collections.abc import Sequence

from duramen.layout.diagnose.calendar_words import MONTHS, WEEKDAYS, WORDS

_MARKS = frozenset("年月日時时分秒点钟鐘間间令和年년월일시분초간")
_CJK_WORDS = (
    "星期[一二三四五六日天]|[周週][一二三四五六日]|[月火水木金土日]曜日?|[월화수목금토일]요일"
    "|午前|午後|上午|下午|오전|오후|(?<=[(（])[月火水木金土日](?=[)）])|[春夏秋冬][季天]"
)
_MARK = r"\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0903\u093a-\u094f"  # of vowels
_LETTER = r"[^\W\d_\u2e80-\ud7af]"
PIECES = re.compile(rf"{_CJK_WORDS}|[oO]['’]clock|\d+|{_LETTER}(?:{_LETTER}|[{_MARK}])*|.", re.S)
_IS_CJK_WORD = re.compile(_CJK_WORDS)
_SEPARATORS = frozenset("-/:.,+ \t()（）'’ʼ[]|·~_")
_ISO = re.compile(
    r"(?<!\d)((?:19|20)\d\d)(?:[-/.]\s?|年\s?|년\s?)(\d{1,2})(?:[-/.]\s?|月\s?|월\s?)(\d{1,2})"
)
_SHORT = re.compile(
    r"(?<![\d.])(\d{1,2})([./-])\s?(\d{1,2})\2\s?((?:19|20)\d\d|(?<=\d\d.\d\d.)\d\d)(?![\d.]\d)"
)
_COMPACT = re.compile(
    r"(?<!\d)((?:19|20)\d\d)(0[1-9]|1[0-2])([0-3]\d)(?:T?(\d\d)(\d\d)(\d\d)?)?(?!\d)"
)
_TUPLE = re.compile(  # of Python's datetime, JavaScript's Date
    r"(?<!\d)((?:19|20)\d\d), ?(\d\d?), ?(\d\d?)(?:, ?(\d\d?), ?(\d\d?)(?:, ?(\d\d?))?)?(?!\d)"
)
_DAY_OF_YEAR = re.compile(r"(?<!\d)((?:19|20)\d\d)-([0-2]\d\d|3[0-6]\d)(?![\d-])")
_YEAR_MONTH = re.compile(r"(?<![\d-])((?:19|20)\d\d)[-/.](0[1-9]|1[0-2])(?![\d./-])")
_MONTH_YEAR = re.compile(r"(?<![\d./-])(0?[1-9]|1[0-2])[/.-]((?:19|20)\d\d)(?!\d)")
_DAY_MONTH = re.compile(
    r"(?:\b(?:mo|di|mi|do|fr|sa|so)\.?,?\s|(?<![\d.]))(?:0[1-9]|[12]\d|3[01])\.(?:0[1-9]|1[0-2])"
    r"(?:\.(?!\d)|(?<=[a-z] \d\d\.\d\d)(?![\d.]))",
    re.I,
)
_TIME = re.compile(
    r"(?<!\d)([01]?\d|2[0-4])\s?(?:[:hH]|時|时|点|시)\s?([0-5]\d|\d(?=[分분]))(?:\s?(?:[:.]|分|분)\s?([0-6]\d))?"
    r"(?:[.,]\d+)?\s?([aApP])?"
)
_HOUR = re.compile(
    r"(?<!\d)(\d{1,2})\s?(?:[aApP]\.?[mM]|uhr|o.clock|時|时|点|시)(?![A-Za-z0-9])", re.I
)
_MILITARY = re.compile(r"(?<!\d)([01]\d|2[0-3])([0-5]\d)\s?(?:hrs?|h|Z|Zulu|UTC|Uhr)(?!\w)")
_EPOCH = re.compile(r"(?<![\d.])1[4-9]\d{8}(?:\.?\d{3}|\d{6}|\d{9}|\.\d+)?(?!\d)")
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_ISO_WEEK = re.compile(r"(?:19|20)\d\d-?W[0-5]\d")
_PERIOD = re.compile(
    r"(?<![^\W\d])(?:Q[1-4]|[1-4]Q|[HS][12](?=\W{0,3}(?:19|20)\d\d)|(?:FY|CY)\s?'?(?:\d\d)?\d\d|KW\s?\d\d?)(?![^\W_])",
    re.I,
)
_LONG_UNITS = "|".join(sorted((w for w in WORDS["unit"] if len(w) > 2), key=len, reverse=True))
_SPAN = re.compile(
    r"(?<![\w.])PT(?:\d+(?:\.\d+)?[HMS])+(?!\w)"
    rf"|(?:(?<![^\W\d_])an?|\d+)\s?(?:(?:{_LONG_UNITS}|hr|(?-i:ms|s|m|h|d))(?![^\W\d_])"
    r"|[時时]?[間间]|分[钟鐘間间]?|秒[钟鐘間间]?|[日天]|시간|분|초)",
    re.I,
)
_OTHER_DATES = (_COMPACT, _TUPLE, _ISO_WEEK, _DAY_OF_YEAR, _YEAR_MONTH, _MONTH_YEAR, _DAY_MONTH)
_CJK_DATE = re.compile(r"\d{1,2}\s?[月월]\s?\d{1,2}\s?[日일]")


_IN_FRONT = WORDS["day"] | {"quarter", "half"}


def belongs_to_time(piece: str) -> bool:
    """Whether a piece beside a time is a part of it: words such as "today" introduce one, and so
    do "est" and "ist", which in capitals are zones."""
    return (
        is_temporal_piece(piece) and piece.lower() not in _IN_FRONT and piece not in ("est", "ist")
    )


def introduces_time(piece: str) -> bool:
    """Whether a piece in front of a time is no part of it by itself."""
    low = piece.lower()
    return low in _SEPARATORS or low in WORDS["glue"] or low in WORDS["unit"]


def is_temporal_piece(piece: str) -> bool:
    """Whether a piece may stand in a date or time, or between its parts."""
    low = piece.lower()
    return (
        piece.isdecimal()
        or low in _SEPARATORS
        or low in _MARKS
        or low in MONTHS
        or low in WEEKDAYS
        or any(low in words for words in WORDS.values())
        or _IS_CJK_WORD.fullmatch(low) is not None
    )


def forms(field: str) -> frozenset[str]:
    """What of a time the field shows: date, time, seconds, weekday, month, year, epoch, ago,
    daypart, words, and alone season, period (a quarter, a fiscal year), zone, span (a length of
    time). Empty where it is no time."""
    found = set()
    words = [p.lower() for p in PIECES.findall(field) if p[0].isalpha()]
    digits = any(c.isdecimal() for c in field)
    if _EPOCH.fullmatch(field.strip()):
        return frozenset({"epoch"})
    if _ISO.search(field) or _SHORT.search(field) or _CJK_DATE.search(field):
        found.add("date")
    if any(way.search(field) for way in _OTHER_DATES):
        found.add("date")
    if (time := _TIME.search(field)) or _HOUR.search(field) or _MILITARY.search(field):
        found.add("time")
        if time and time[3]:
            found.add("seconds")
    months = [word for word in words if word in MONTHS]
    if months:
        found.add("date" if digits else "month")
    if any((w in WEEKDAYS and len(w) > 2) or _IS_CJK_WORD.fullmatch(w) for w in words):
        found.add("weekday")
    if any(w in WORDS["ago"] | WORDS["day"] for w in words):
        found.add("ago")
    if any(w in WORDS["daypart"] for w in words):
        found.add("daypart")
    if not digits and sum(w in WORDS["number"] or w in WORDS["hour"] for w in words) > 1:
        found.add("words")
    if not found and _YEAR.fullmatch(field.strip()):
        found.add("year")
    return frozenset(found | _loose_forms(field, words))


def _loose_forms(field: str, words: Sequence[str]) -> set[str]:
    found = set()
    if any(word in WORDS["season"] for word in words):
        found.add("season")
    if _PERIOD.search(field):
        found.add("period")
    if words and all(word in WORDS["zone"] for word in words) and not re.search(r"\d", field):
        found.add("zone")
    if _SPAN.search(field):
        found.add("span")
    return found


def moment_s(field: str, slash_days_first: bool = False) -> float | None:
    """Seconds since 1970 of the field, read as UTC; since midnight where it shows no date; None
    where it cannot be read. Days before months, between slashes only if `slash_days_first`."""
    if epoch := _EPOCH.fullmatch(field.strip()):
        digits = epoch[0].replace(".", "")
        return float(digits[:10]) + float("0." + (digits[10:] or "0"))
    date, time_s = _date(field, slash_days_first), _time_s(field)
    if date is None:
        return time_s
    try:
        day = datetime.datetime(*date, tzinfo=datetime.UTC)
    except ValueError:
        return None
    return day.timestamp() + (time_s or 0.0)


def _date(field: str, slash_days_first: bool) -> tuple[int, int, int] | None:
    if found := _ISO.search(field) or _COMPACT.search(field) or _TUPLE.search(field):
        return int(found[1]), int(found[2]), int(found[3])
    if found := _DAY_OF_YEAR.search(field):
        counted = datetime.date(int(found[1]), 1, 1) + datetime.timedelta(int(found[2]) - 1)
        return counted.year, counted.month, counted.day
    if found := _YEAR_MONTH.search(field):
        return int(found[1]), int(found[2]), 1
    if (found := _MONTH_YEAR.search(field)) and not _SHORT.search(field):
        return int(found[2]), int(found[1]), 1
    if found := _SHORT.search(field):
        first, second, year = int(found[1]), int(found[3]), int(found[4])
        month_first = (found[2] == "/" and first <= 12 and not slash_days_first) or second > 12
        month, day = (first, second) if month_first else (second, first)
        return year + 2000 * (year < 100), month, day
    pieces = [piece.lower() for piece in PIECES.findall(field)]
    month = next((MONTHS[piece] for piece in pieces if piece in MONTHS), 0)
    numbers = [int(piece) for piece in pieces if piece.isdecimal() and len(piece) <= 4]
    day = next((n for n in numbers if 1 <= n <= 31), 1)
    year = next((n for n in numbers if 1900 <= n <= 2100), 2000)
    return (year, month, day) if month else None


def _time_s(field: str) -> float | None:
    if (found := _COMPACT.search(field)) and found[4]:
        return 3600.0 * int(found[4]) + 60.0 * int(found[5]) + int(found[6] or 0)
    if (found := _TUPLE.search(field)) and found[4]:
        return 3600.0 * int(found[4]) + 60.0 * int(found[5]) + int(found[6] or 0)
    if found := _TIME.search(field):
        hour = int(found[1]) % 12 + 12 * (found[4] in "pP") if found[4] else int(found[1])
        return 3600.0 * hour + 60.0 * int(found[2]) + int(found[3] or 0)
    if found := _MILITARY.search(field):
        return 3600.0 * int(found[1]) + 60.0 * int(found[2])
    return None
