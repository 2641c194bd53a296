"""Dates and times in a piece of text, as prompts write them, in the larger languages.

A field is read piece by piece: digits, calendar words, separators. That follows any order and
punctuation, so it does not depend on a list of formats.
"""

import datetime
import re

_MONTH_NAMES = (
    "january february march april may june july august september october november december",
    "januar februar märz april mai juni juli august september oktober november dezember",
    "jänner feber maerz april mai juni juli august september oktober november dezember",
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "januari februari maart april mei juni juli augustus september oktober november december",
    "januari februari mars april maj juni juli augusti september oktober november december",
    "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada"
    " grudnia",
    "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    "ocak şubat mart nisan mayıs haziran temmuz ağustos eylül ekim kasım aralık",
    "jan feb mar apr may jun jul aug sep oct nov dec",
    "jan feb mrz apr mai jun jul aug sept okt nov dez",
    "janv févr mars avr mai juin juil août sept oct nov déc",
    "ene feb mar abr may jun jul agos sep oct nov dic",
)
_WEEKDAY_NAMES = (
    "monday tuesday wednesday thursday friday saturday sunday",
    "montag dienstag mittwoch donnerstag freitag samstag sonntag",
    "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "lunes martes miércoles jueves viernes sábado domingo",
    "lunedì martedì mercoledì giovedì venerdì sabato domenica",
    "segunda terça quarta quinta sexta sábado domingo",
    "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
    "måndag tisdag onsdag torsdag fredag lördag söndag",
    "poniedziałek wtorek środa czwartek piątek sobota niedziela",
    "понедельник вторник среда четверг пятница суббота воскресенье",
    "pazartesi salı çarşamba perşembe cuma cumartesi pazar",
    "mon tue wed thu fri sat sun",
    "mo tues weds thur fr sonnabend so",
    "월요일 화요일 수요일 목요일 금요일 토요일 일요일",
)
MONTHS = {name: i + 1 for names in _MONTH_NAMES for i, name in enumerate(names.split())}
WEEKDAYS = frozenset(name for names in _WEEKDAY_NAMES for name in names.split())
_WORDS = {
    kind: frozenset(words.split())
    for kind, words in {
        "unit": "ms s sec secs second seconds m min mins minute minutes h hr hrs hour hours d day"
        " days week weeks month months year years sekunde sekunden minuten stunde stunden tag tage"
        " tagen woche wochen seconde secondes heure heures jour jours segundo segundos minuto"
        " minutos hora horas día días dias ore minuti giorni минут минуты минуту часов часа"
        " час дней дня",
        "ago": "ago elapsed uptime vor hace fa назад 前 전",
        "day": "yesterday today tomorrow now gestern heute ayer hoy ieri вчера сегодня",
        "daypart": "morning afternoon evening night noon midnight dawn dusk",
        "hour": "am pm p uhr oclock clock",
        "number": "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
        " fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty half quarter past",
        "glue": "just t z w at of the on st nd rd th to and o utc gmt bst msk jst ist cet cest est"
        " edt cst cdt mst mdt pst pdt aest aedt de del le den der um las la à il y a das feira",
    }.items()
}
_MARKS = frozenset("年月日時时分秒点년월일시분초")
_CJK_WORDS = (
    "星期[一二三四五六日天]|[周週][一二三四五六日]|[月火水木金土日]曜日?|[월화수목금토일]요일"
    "|午前|午後|上午|下午|오전|오후"
)
PIECES = re.compile(rf"{_CJK_WORDS}|\d+|[^\W\d_\u2e80-\ud7af]+|.", re.S)
_IS_CJK_WORD = re.compile(_CJK_WORDS)
_SEPARATORS = frozenset("-/:.,+ \t()'’[]|·~")
_ISO = re.compile(
    r"(?<!\d)((?:19|20)\d\d)(?:[-/.]|年\s?|년\s?)(\d{1,2})(?:[-/.]|月\s?|월\s?)(\d{1,2})"
)
_SHORT = re.compile(
    r"(?<![\d.])(\d{1,2})([./-])\s?(\d{1,2})\2\s?((?:19|20)\d\d|(?<=\d\d.\d\d.)\d\d)(?![\d.]\d)"
)
_COMPACT = re.compile(
    r"(?<!\d)((?:19|20)\d\d)(0[1-9]|1[0-2])([0-3]\d)(?:T?(\d\d)(\d\d)(\d\d)?)?(?!\d)"
)
_TIME = re.compile(
    r"(?<!\d)([01]?\d|2[0-4])\s?(?:[:hH]|時|时|点|시)\s?([0-5]\d)(?:\s?(?:[:.]|分|분)\s?([0-6]\d))?"
    r"(?:[.,]\d+)?\s?([aApP])?"
)
_HOUR = re.compile(r"(?<!\d)(\d{1,2})\s?(?:[aApP]\.?[mM]|uhr|o.clock|時|时|点|시)(?!\w)", re.I)
_EPOCH = re.compile(r"(?<![\d.])1[4-9]\d{8}(?:\.?\d{3}|\d{6}|\d{9}|\.\d+)?(?!\d)")
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_ISO_WEEK = re.compile(r"(?:19|20)\d\d-?W[0-5]\d")
_CJK_DATE = re.compile(r"\d{1,2}\s?[月월]\s?\d{1,2}\s?[日일]")


def belongs_to_time(piece: str) -> bool:
    """Whether a piece beside a time is a part of it: words such as "today" introduce one."""
    return is_temporal_piece(piece) and piece.lower() not in _WORDS["day"]


def introduces_time(piece: str) -> bool:
    """Whether a piece in front of a time is no part of it by itself."""
    low = piece.lower()
    return low in _SEPARATORS or low in _WORDS["glue"] or low in _WORDS["unit"]


def is_temporal_piece(piece: str) -> bool:
    """Whether a piece may stand in a date or time, or between its parts."""
    low = piece.lower()
    return (
        piece.isdecimal()
        or low in _SEPARATORS
        or low in _MARKS
        or low in MONTHS
        or low in WEEKDAYS
        or any(low in words for words in _WORDS.values())
        or _IS_CJK_WORD.fullmatch(low) is not None
    )


def forms(field: str) -> frozenset[str]:
    """What of a time the field shows: date, time, seconds, weekday, month, year, epoch, ago,
    daypart, words. Empty where it is no time."""
    found = set()
    words = [p.lower() for p in PIECES.findall(field) if p[0].isalpha()]
    digits = any(c.isdecimal() for c in field)
    if _EPOCH.fullmatch(field.strip()):
        return frozenset({"epoch"})
    if _ISO.search(field) or _SHORT.search(field) or _CJK_DATE.search(field):
        found.add("date")
    if _COMPACT.search(field) or _ISO_WEEK.search(field):
        found.add("date")
    if (time := _TIME.search(field)) or _HOUR.search(field):
        found.add("time")
        if time and time[3]:
            found.add("seconds")
    months = [word for word in words if word in MONTHS]
    if months:
        found.add("date" if digits else "month")
    if any((w in WEEKDAYS and len(w) > 2) or _IS_CJK_WORD.fullmatch(w) for w in words):
        found.add("weekday")
    if any(w in _WORDS["ago"] | _WORDS["day"] for w in words):
        found.add("ago")
    if any(w in _WORDS["daypart"] for w in words):
        found.add("daypart")
    if sum(w in _WORDS["number"] for w in words) > 1:
        found.add("words")
    if not found and _YEAR.fullmatch(field.strip()):
        found.add("year")
    return frozenset(found)


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
    if (found := _ISO.search(field)) or (found := _COMPACT.search(field)):
        return int(found[1]), int(found[2]), int(found[3])
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
    if found := _TIME.search(field):
        hour = int(found[1]) % 12 + 12 * (found[4] in "pP") if found[4] else int(found[1])
        return 3600.0 * hour + 60.0 * int(found[2]) + int(found[3] or 0)
    return None
