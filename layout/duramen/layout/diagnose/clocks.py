"""A date or time that moved on, told from one that a person changed."""

import re
from dataclasses import replace

from duramen.layout.diagnose.change import Change
from duramen.layout.diagnose.counters import is_counted
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

_NEAR_S = 40 * 86_400.0  # a maintainer seldom changes a date by less
_TICK_S = 2 * 86_400.0
_MINUTES_S = 3_600.0
_BEHIND_CHARS = 40
_NOW = re.compile(
    r"\b(?:now|today|tonight|present (?:day|date|time)|current(?:ly)?|as of|it is|it's"
    r"|time ?stamp|generated|resets? (?:at"
    r"|in)|rendered|clock|calendar (?:shows|says|reads)"
    r"|we are in|we're in|nous sommes|estamos|siamo|heute|jetzt|aktuell\w*|snapshot|derzeit\w*"
    r"|stand:"
    r"|aujourd|maintenant|actuel\w*|hoy|ahora|actual\w*"
    r"|oggi|adesso|attual\w*|hoje|agora|atual\w*|vandaag|huidige|dzisiaj|dziś|teraz|сегодня|сейчас"
    r"|текущ\w*|сьогодні|зараз|idag|i dag|il est|son las|sono le|es ist|nuvarande"
    r"|bugün|şimdi|şu an\w*|dnes|dneska|tänään|hari ini"
    r"|सम्प्रति|आज|अभी|اليوم|الآن|היום|עכשיו|σήμερα|τώρα|hôm nay)(?![A-Za-z])"
    r"|今天|今日|现在|現在|今(?=は)|当前|當前|目前|지금|현재|오늘",
    re.I,
)
_LABEL = re.compile(
    r"(?:\b(?:current|local|server|system|present|today'?s|wall[- ]clock"
    r"|host)(?:[ _-]\w+){0,2}?[ _-]?"
    r"(?:date|time|day|datetime|timestamp|weekday|month|year|season|quarter|week|hour|shift)"
    r"|\b(?:today|now|right now|tonight|time since|time until|session[ _]age|last (?:login|seen"
    r"|message|update|activity|contact|visit)\b[^.:]{0,24})"
    r"|\b(?:date(?: today| now)?|weekday|wochentag|day of (?:the )?week)|תאריך|ημερομηνία|\bdátum"
    r"|\btarih|\bpäivämäärä"
    r"|วันที่|তারিখ|तारीख|تاریخ|التاريخ"
    r"|\bhet is nu|\bvandaag|\bhôm nay|\bbây giờ|\bhari ini|\bsekarang|\bpukul|\bklockan"
    r"|\bklokken|\bidag|\bleo|วันนี้|ขณะนี้|เวลา"
    r"|\bheute|\bjetzt|\baujourd['’]hui|\bmaintenant|\bhoy|\bahora|\boggi|\badesso|\bhoje|\bagora"
    r"|\bdzisiaj|\bdziś|\bteraz"
    r"|сегодня|сейчас|сьогодні|зараз|\bbugün|\bşimdi|\bσήμερα|\bτώρα|σημερινή ημερομηνία|امروز"
    r"|اکنون|اليوم|الآن|היום|עכשיו"
    r"|आज|अभी|আজ\S*|এখন|今日|今天|现在|現在|当前时间|當前時間|오늘|현재|지금)"
    r"(?:[ _]\w+){0,3}?(?:\s?[:=：]|\s(?:is|are|it's|it is|ist|est|es|è|é|jest|är|er|là|ni|nu"
    r"|date|time|तारीख|তারিখ|วันที่)(?!\w)|は|是|일|은|는|วันที่)"
    r"(?:[^.;!?\n]|(?<=\d)[.]){0,40}\Z"
    r"|(?:pukul|klockan|klokken|klokka|uhrzeit|jam) (?:är |er |nu )*(?:[^.;!?\n]"
    r"|(?<=\d)[.]){0,12}\Z"
    r"|\b(?:now|today)\(\)[^.;!?\n]{0,20}\Z"
    r"|(?:วันนี้|ขณะนี้|今は|いまは)[^.;!?\n]{0,40}\Z",
    re.I,
)
_BARE_NOW = re.compile(
    r"(?:now|right now|today|tonight|الآن|اليوم|现在|今天|目前|지금|현재)\W*\Z", re.I
)
_PLAIN_NUMBER = re.compile(r"[\d.,]+")
_NAMED_TIME = re.compile(
    r"\b(?:time|date|datetime|epoch|unix|ts|day|weekday|sent|started?|updated?|refreshed"
    r"|at|datum|uhrzeit|zeit|zeitstempel|heure|fecha|hora|data(?=\W*(?:\Z|di|de|e|atual|attuale))"
    r"|ora|tid|dato|czas|время|дата)"
    r"(?![A-Za-z])|时间|時間|時刻|日期|日付|시간|시각|날짜",
    re.I,
)
_TIME_IS = re.compile(
    r"\b(?:time|date|day|week|month|year|datum|uhrzeit|heure|fecha|hora|data|дата|время)\s+(?:is"
    r"|was|ist|est|es|è|é)"
    r"\s*\Z",
    re.I,
)
_TIME_THEN = re.compile(
    r"\b(?:time|clock|uhrzeit|ortszeit|heure|hora|ora|время)[ =]*\Z|(?:时间|時間|時刻|시간|시각)\Z",
    re.I,
)
_NAMED_PERIOD = re.compile(
    r"\b(?:quarter|fiscal|report\w*|period|season|week|woche|semaine|semana|zone|tz|timezone|saison"
    r"|jahreszeit|quartal|trimest\w+)\W*(?:is\W*)?\Z",
    re.I,
)
_RUNNING = re.compile(
    r"\b(?:elapsed|uptime|up|running|working|worked|active|idle|session|started|since|for|so far"
    r"|left|remain\w*|spent|ago|age|restlaufzeit|restzeit|restdauer|noch|seit|vergangen"
    r"|restant\w*|reste|depuis|il y a|desde"
    r"|quedan?"
    r"|temu|geleden|sedan|siden|önce|fa|há|atrás|restan\w*|transcurr\w+|rimanent\w*|mancano"
    r"|осталось|прошло)(?![A-Za-z])"
    r"|已|剩|経過|残り|남은|경과",
    re.I,
)
_ENDS = re.compile(
    r"\b(?:ends?|opens?|opening|closing|closes?|starts?|begins?|deadline|due|expires?|next"
    r"|countdown)\b",
    re.I,
)
_IN = re.compile(r"\bin\W*\Z", re.I)
_YEAR_IS = re.compile(
    r"\b(?:year|jahr|année|año|anno|ano|год|jaar|år)\W*(?:is\W*)?\Z|年[:：]?\Z", re.I
)
_CLOCK_WORDS = re.compile(r"\b(?:half|quarter|past|o.?clock)\b", re.I)
_GREETING = re.compile(
    r"\b(?:good|this|guten|bon|buen\w*|bom|boa|god|goede\w*|dobry|dobrý|добр\w+)\W*\Z", re.I
)
_FIXED = re.compile(
    r"\b(?:versions?|cut-?off|released?|publish(?:ed)?|trained|training|knowledge|effective"
    r"|founded|planned|valid|born|birth\w*|copyright"
    r"|introduced|deprecated|deadline|due|expir\w+|every|daily|weekly|hours|limit|timeout|duration"
    r"|examples?|e[.]g|such as|format|flight|depart\w*|arriv\w*|appointment|meeting"
    r"|booked|opens|opening|open(?=\W+(?:at|from|on|until|till)\b|\W*\Z)|closes"
    r"|(?:close|meet|leave|eat|serve|starts|begins|ends)(?=\W+at\b)|leaves|score"
    r"|öffn\w+|geöffnet|schließ\w+|ouvr\w+|fermons|ferme|abrimos|abre|cerramos|cierra"
    r"|closing|business|scheduled?|reservation|holiday|until|till|before|after|between|frist|fällig"
    r"|sale|freeze|closed|must|finish|required|bis|até|fino a\w*|hasta|jusqu\w*|exams?|wake|keep"
    r"|kept|retain\w*|backups?|allowed|up to|within|at most|horarios?|orari[oa]?"
    r"|apertura|chiud\w+|chius\w+|iscrizion\w+|horaires|öffnungszeit\w*|sprechzeit\w*"
    r"|geschäftszeit\w*"
    r"|check-?(?:in|out)|delivery|warranty|refunds?|notice|valid|visiting|dinner|breakfast|lunch"
    r"|meals?|servi\w+|cena|abendessen|frühstück|office|quiet|hours?(?=\W*\Z)"
    r")(?![A-Za-z])|(?<!\w)--?[a-z][a-z-]*=\W*\Z|©|まで|以内|営業|定休|营业|受付|开放|영업|휴무"
    r"|ωράριο"
    r"|режим|часы работы|otwar\w+|açılış|kapanış",
    re.I,
)


_DOTTED = re.compile(r"(?:[01]?\d|2[0-3])[.][0-5]\d")
_NOW_RIGHT_BEFORE = re.compile(
    r"(?:сейчас|сегодня|зараз|сьогодні|şu an|şimdi|bugün|tänään on|dziś|teraz jest|il est"
    r"|son las)\s\Z"
    r"|(?:今は|现在|現在|今天|今日は|지금은|오늘은)\s?\Z",
    re.I,
)
_GREETS = re.compile(r"(?:good|bom|boa|bon\w*|buen\w+|buongiorno|guten|god|goede\w*)\s", re.I)
_SENT = re.compile(
    r"\b(?:sent|received|posted|asked|gesendet|envoyé|reçu|enviad[oa]|recibido|inviato"
    r"|отправлено|发送|送信)\b",
    re.I,
)
_NOW_BEHIND = re.compile(
    r"[\s(,]{1,3}(?:local time|right now|as of now|server time|ortszeit)\b", re.I
)
_PATTERN = re.compile(r"[YyMmDdHhSs./: -]+")
_DURATION_LETTERS = frozenset(["P", "PT", "D", "H", "M", "S", "T"])
_COUNTDOWN = re.compile(r"PT?(?:\d+[DHMST])+|\d{1,3}(?::[0-5]\d){1,2}|\d+[.]\d{6}")
_UPTIME = re.compile(r"\[\s*\Z")  # of a kernel's log
_UNTIL = re.compile(r"\s?(?:前?まで|以内|之前|以前|까지)")
_OPENING_BRACKET = re.compile(r"\W*[\[(<{][^\])>}\n]{0,60}\Z")
_RECURS = re.compile(
    r"\W{1,3}(?:(?:on |every )?(?:weekdays|weekends|daily|only|sharp|each|every)\b)", re.I
)


def is_time(was: Spot, now: Spot) -> bool:
    """Whether both changed values are times, or parts of one, and stand apart from other words."""
    pieces = (p for spot in (was, now) for p in PIECES.findall(spot.whole(PIECES).value))
    if not all(map(is_temporal_piece, pieces)):
        return False
    was, now = _field(was), _field(now)
    shown, shown_now = forms(was.value), forms(now.value)
    if "words" in shown & shown_now and not _tells_hours(was, now):
        return False
    alike = shown & shown_now or (shown and shown_now and "ago" in shown | shown_now)
    return bool(alike) and was.stands_alone and now.stands_alone


def _tells_hours(was: Spot, now: Spot) -> bool:
    """Whether numbers in words are read off a clock."""
    told = _NOW.search(was.words) or _NAMED_TIME.search(was.words)
    return bool(told or _CLOCK_WORDS.search(was.value) or _CLOCK_WORDS.search(now.value))


def clock_change(was: Spot, now: Spot, place: Place) -> Change | None:
    """None where a person changed the time. To be asked of what `is_time`."""
    was, now = _field(was), _field(now)
    sure = _confidence(was, now, forms(was.value) & forms(now.value), place)
    return Change("clock", sure, shown_values(was, now)) if sure else None


def example_change(was: Spot, now: Spot) -> Change | None:
    """A date of an example that is up to two days later: no other one was chosen, a program wrote
    the day."""
    was, now = _field(was), _field(now)
    step_s = _step_s(was.value, now.value)
    dated = forms(was.value) & forms(now.value) & {"date", "epoch", "seconds"}
    if not dated or step_s is None or not 0 < step_s <= _TICK_S:
        return None
    return Change("clock", 0.8, shown_values(was, now))


def tells_now(text: str) -> bool:
    return _NOW.search(text) is not None


def told_change(was: Spot, now: Spot, place: Place) -> Change | None:
    """A value of any form right behind words that introduce the time: "Hôm nay là", "It is now"."""
    fixed = _FIXED.search(was.words[-_BEHIND_CHARS:])
    if not (place.is_root or place.is_first_user) or fixed or is_counted(was):
        return None
    was, now = (spot.grown(_in_number, PIECES) for spot in (was, now))
    words = was.words
    told = None if _PATTERN.fullmatch(was.value) else _LABEL.search(words)
    bare = told is not None and _BARE_NOW.match(told[0]) and _PLAIN_NUMBER.fullmatch(was.value)
    dotted = _DOTTED.fullmatch(was.value) and _DOTTED.fullmatch(now.value)
    near = words[-_BEHIND_CHARS:]
    is_clock = (
        (told and not bare)
        or (dotted and (_NOW.search(near) or _TIME_THEN.search(near)))
        or (_NOW_RIGHT_BEFORE.search(words) and not was.value.isdecimal())
    )
    return Change("clock", 0.8, shown_values(was, now)) if is_clock else None


def countdown_change(was: Spot, now: Spot, place: Place) -> Change | None:
    """Minutes and seconds that are left, or have passed."""
    was, now = (spot.grown(_in_number, PIECES) for spot in (was, now))
    runs = _RUNNING.search(was.words[-_BEHIND_CHARS:]) or _UPTIME.search(was.left)
    both = _COUNTDOWN.fullmatch(was.value) and _COUNTDOWN.fullmatch(now.value)
    if not (both and runs and (place.is_root or place.is_first_user)):
        return None
    return Change("clock", 0.85, shown_values(was, now))


def _in_number(piece: str) -> bool:
    return piece.isdecimal() or piece in ".:," or piece in _DURATION_LETTERS


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
    if common & {"seconds"} and (place.is_root or place.is_first_user) and _is_ticking(was, now):
        return 0.85
    told = max((found.end() for found in _NOW.finditer(was.words)), default=-1)
    fixed = max((found.end() for found in _FIXED.finditer(was.words)), default=-1)
    if "span" in common and (sure := _span_confidence(was, place)):
        return sure
    if common <= {"span"}:
        return 0.0
    if _NOW_BEHIND.match(was.right):
        told = len(was.words)
    elif told < 0 and _NOW.search(was.right[:_BEHIND_CHARS]):
        told = 0
    step_s = _step_s(was.value, now.value)
    by_minutes = {"date", "time"} <= common and step_s is not None and 0 < step_s < _MINUTES_S
    if by_minutes and place.is_root:
        return 0.85
    if "ago" in common and "span" in common and place.is_root:
        return 0.8
    if fixed > told or (told < 0 and (_RECURS.match(was.right) or _UNTIL.match(was.right))):
        return 0.0
    backward = step_s is not None and step_s < 0 and bool(common & {"date", "epoch"})
    if told >= 0:
        return 0.7 if backward else 0.98
    if backward:
        return 0.0
    if place.is_root and common & {"season", "period", "zone"}:
        if _NAMED_PERIOD.search(was.words[-40:]):
            return 0.85
        return 0.75 if was.is_labelled else 0.0
    if common & {"seconds", "epoch"}:
        return 0.95 if place.is_root or place.is_first_user else 0.75
    if common & {"ago"} and not common <= {"ago", "year"}:
        return 0.8
    if "ago" in common and re.search(r"\d", was.value + now.value):
        return 0.85
    if "daypart" in common and (_GREETING.search(was.words) or _GREETS.match(was.value)):
        return 0.8 if place.is_root else 0.0
    named = _NAMED_TIME.search(was.words) is not None
    if place.is_tool_output and "time" in common and step_s is not None and step_s >= 0:
        return 0.7
    if place.is_tool_output or not (place.is_root or place.is_first_user):
        return 0.0
    if _TIME_IS.search(was.words) and common & {"time", "date", "weekday", "month"}:
        return 0.85
    apart = _OPENING_BRACKET.match(was.left) or _SENT.search(was.left)
    if place.is_first_user and common & {"time"} and apart:
        return 0.8
    a_stamp = {"date", "time"} <= common and step_s is not None and 0 <= step_s <= _TICK_S
    if a_stamp and place.is_first_user:
        return 0.7
    near = step_s is None or 0 <= step_s <= _NEAR_S
    if near and "time" in common and _TIME_THEN.search(was.words):
        return 0.8
    if was.is_labelled and (named or common & {"time", "date", "weekday", "words"}):
        return 0.9 if named else 0.75
    if place.is_root and common & {"daypart", "month"} and was.is_labelled:
        return 0.7
    if place.is_root and "year" in common and _YEAR_IS.search(was.words):
        return 0.85
    plain = place.is_root and not place.is_first_user
    return 0.75 if plain and near and common & {"time", "date", "weekday"} else 0.0


def _is_ticking(was: Spot, now: Spot) -> bool:
    """Nobody writes odd seconds by hand."""
    return not all(spot.value.rstrip(" Zz").endswith(":00") for spot in (was, now))


def _span_confidence(was: Spot, place: Place) -> float:
    """A length of time counts where it is said to run or to be left."""
    behind = was.right[:_BEHIND_CHARS]
    runs = _RUNNING.search(was.words[-40:]) or _RUNNING.search(behind) or _NOW.search(behind)
    until = _IN.search(was.words) and _ENDS.search(was.words)
    fixed = _FIXED.search(was.words[-40:]) and not until
    if place.is_root and _IN.search(was.words) and not fixed and not _RECURS.match(was.right):
        return 0.7
    if (
        fixed
        or _UNTIL.match(was.right)
        or not (runs or until)
        or not (place.is_root or place.is_first_user)
    ):
        return 0.0
    return 0.85 if place.is_root else 0.7 if was.is_labelled else 0.0


def _step_s(old: str, new: str) -> float | None:
    """The smallest step forward that 01/02/2026 may stand for, else the smallest backward."""
    steps = []
    for days_first in (False, True):
        before, after = moment_s(old, days_first), moment_s(new, days_first)
        if before is not None and after is not None:
            steps.append(after - before)
    forward = [step for step in steps if step >= 0]
    return min(forward) if forward else max(steps, default=None)
