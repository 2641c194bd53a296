"""A number that counts up or down from call to call: told by the words around it."""

import re

from duramen.layout.diagnose.change import Change
from duramen.layout.diagnose.numbers import CHINESE_DIGITS, number, roman
from duramen.layout.diagnose.place import Place
from duramen.layout.diagnose.spots import CHARACTERS, Spot, shown_values

_COUNTED = re.compile(
    r"\b(?:steps?|turns?|calls?|iterations?|attempts?|rounds?|requests?|messages?|msg|cycles?"
    r"|loops?"
    r"|tr(?:y|ies)|retry|retries|tokens?|budget|credits?|quota|cost|spen[dt]|used|usage|consumed"
    r"|left"
    r"|remain\w*|so far|progress|percent|complete[d]?|count(?:er)?|total(?!\s*\d)|number|no[.]"
    r"|iter|actions?"
    r"|context|index|elapsed|pending|done|already"
    r"|schritt\w*|runde|versuch\w*|übrig|verbleib\w*"
    r"|verbraucht|étapes?|tours?|restant\w*|essais?|pasos?|turnos?|intentos?|quedan?|restan\w*"
    r"|passos?|passi|tentativ\w+|rimanent\w*|шаг\w*|осталось|попытк\w+"
    r"|stappen|stap|beurt\w*|poging\w*|resterend\w*|kroków|krok|prób\w*|pozosta\w+|tury|tura"
    r"|zużyt\w*"
    r"|adım\w*|tur|deneme\w*|kalan|kullanıl\w*|bütçe|mesaj\w*|mensagem|mensagens|mensaj\w+"
    r"|messaggi\w*"
    r"|nachricht\w*|aufruf\w*|anfragen?|chamad\w+|vezes|veces|volte|fois|keer|gånger|restantes?"
    r"|appels?|reste\w*|crédit\w*|jetons?|consomm\w+|непрочитан\w*|load average|créditos?"
    r"|guthaben|saldo|balance|solde|battery|akku|accu|batería|batterie"
    r"|waiting|screened|hp|mana|gold|coins?|health|moves?|odometer|output|reading|sensor"
    r"|llamadas?|lượt|bước|còn lại|langkah|giliran|sisa|percakapan|reflections?|questions?|queue"
    r"|lag|offset|seq\w*"
    r"|streak|hidden|failing|failures?|passed|passing|ahead|behind|commits|échanges?|n°|nr\b[.]?"
    r"|\w*budget|\w*guthaben|\w*kontingent|history|more questions?"
    r"|ongelezen|ungelesen\w*|non lus?|sin leer|non letti|não lidas?|nieprzeczyt\w+|okunmamış"
    r"|left|unread|connected|processed|uploaded|downloaded|so ?far)(?![A-Za-z])"
    r"|अब तक|शेष|बचे|عدد|المتبقي|متبقي|خطوة|ターン|대기|순번|メッセージ数|चरण|\bitera\w+"
    r"|\bpassaggi\w*|\bsteg|\btrinn|\blépés|\betap\w*|сообщени\w*|未读|未読|対応中|件|읽지 않은"
    r"|안 읽은|\bwarteschlange|\bfile d.attente|\banrufer|\bvuoro|\bkierros|βήμα|γύρος"
    r"|προσπάθεια|เหลือ|ครั้งที่|รอบที่|шаг|ход"
    r"|第|步|已|剩|令牌|词元|トークン|토큰|剩余|残り|ステップ|回目|남[은음]|단계|번째|회차",
    re.I,
)
_COUNTED_IN_ROOT = re.compile(
    r"\b(?:seen|made|taken|visited|opened|tried|failed|more|notes|unread|score|points|lives"
    r"|modified|changed|staged|untracked|online|free now|active|running|queued"
    r"|notifications?|problems?|warnings?|errors?|latency|showing|rows|last|bid|ask|spot"
    r"|at present|holds|sent|derzeit|aktuell|currently|right now|en ce moment|actuellement"
    r"|attualmente|atualmente|conversations?|chats|callers"
    r"|open issues|load(?=:))"
    r"(?![A-Za-z])",
    re.I,
)
_LIMIT = re.compile(
    r"\b(?:at most|at least|max(?:imum)?|min(?:imum)?|up to|no more than|l[ií]mit\w*|exactly|within"
    r"|every|each|per|than|default|may|can|must|should|allowed|never|only|under|over|above|below"
    r"|exceeds?|if the|when|required|after|always|starts? with|begins? with|worth"
    r"|höchstens|maximal|au plus|como máximo|wenigstens|mindestens|minimal\w*|mínim\w*"
    r"|au moins)(?![A-Za-z])"
    r"|न्यूनतम|अधिकतम|最大|最多|最少|最低|至少|以内|以上|以下|まで|최대|최소|이상|이하",
    re.I,
)
_STRONG_COUNT = re.compile(
    r"(?:steps?|turns?|calls?|iterations?|attempts?|rounds?|requests?|schritt|étape|paso|passo|шаг"
    r"|ステップ|第)\W{0,3}\d+\W{0,3}(?:of|/|von|de|sur|из|out of|步)"
    r"|(?:tokens?|steps?|turns?|calls?|budget|credits?|quota|context)"
    r"\W{1,3}(?:used|left|remain\w*|spent|so far|consumed|window)"
    r"|\d\W{0,3}(?:tokens?|steps?|turns?|calls?|credits?|requests?|messages?|actions?|attempts?"
    r"|tries)"
    r"\W{1,3}(?:used|left|remain\w*|so far)"
    r"|(?:used|remaining|left|so far)\s{0,2}[:=]\D{0,20}\d"
    r"|(?:remaining|left|noch)\W{1,3}(?:tokens?|steps?|turns?|calls?|credits?|requests?|attempts?"
    r"|tries)"
    r"|\bstill use\D{0,16}\d"
    r"|\d\s?[%％]\W{0,3}(?:complete|done|used|left|remain\w*|full|of (?:the |your )?context)",
    re.I,
)
_NUMBER = re.compile(
    r"[$€£¥#~+-]{0,2}\d[\d.,_' ]{0,20}?(?:[kKmM%％]|USD|EUR)?(?:/[$€£¥]?\d[\d.,]*[kKmM]?)?"
)


_OF = re.compile(r"\s?(?:of|von|de|sur|di|из)\s(\d+)\b")
_PART = re.compile(
    r"\b(?:chapter|round|phase|part|stage|attempt|step|turn|try|iteration|pass|trial|episode|cycle"
    r"|batch|level|page|rev(?:ision)?|act|kapitel|runde|teil|tour|étape|paso|fase)\W{0,3}\Z",
    re.I,
)
_SETTING = re.compile(
    r"\b(?:version|ver|python|node|java|ruby|port|temperature|top[ _]?[pk]|width|height|columns?"
    r"|size|threshold|weight|priority|interval|delay|timeout|ratio|age|year|since|cutoff|default"
    r"|seed|v|ttl|replicas?|mode|qty|quantity|amount|seconds|minutes|hours|days|timeout \w+"
    r"|engine|model"
    r"|revision|edition|release|build)\W*\Z",
    re.I,
)
_ORDER = re.compile(
    r"\b(?:set|use|change|make|increase|reduce|give|remind|write|want|need|buy|send|fix|add|update"
    r"|bump|move|turn (?:the|on|off|up|down)|dim|raise|lower|please|let|order|book|i|my|we)\b",
    re.I,
)
_BAR = re.compile(r"[#=.>*_█▉▊▋▌▍▎▏░▒▓■□●○◯◉▪▫▮▯\- ]+")
_PERIOD = re.compile(
    r"\b(?:date|time|day of (?:the )?year(?: today)?|clock|(?:cache[ _])?age|idle|kalenderwoche"
    r"|year|quarter|month|week|weekday"
    r"|day|hour"
    r"|minute|(?:utc|zone|time) offset"
    r"|jahr|monat"
    r"|woche|tag|uhrzeit|heure|année|mois|semaine|año|mes|semana|hora|ora|klockan|klokken|kello)"
    r"(?:[ _](?:ms|s|secs?|seconds|ns|us))?(?:\W*(?:is|number|no|ist|est|es|è|är|er|on))?\W*\Z"
    r"|\bpast the hour\W*\Z"
    r"|(?:\A|[.!?]\s)\W*today\W*\Z",
    re.I,
)
_REST_OF_DATE = re.compile(r"\.?(?:\s[^\W\d]\w*\.?){1,3}(?:\s\d{1,2})?,?\s(?:19|20|25)\d\d(?!\d)")
_RECORD = re.compile(
    r"\b(?:phone|tel(?:ephone|efon)?|fax|mobile|hotline|order|invoice|account"
    r"|ticket"
    r"|membership|serial|case|contract|passport|postal|zip|kunden?|auftrags?|rechnungs?)"
    r"[ -]?(?:numbers?|no\b[.]?|nr\b[.]?|nummer|code|id)?\W*(?:is\W*|ist\W*)?\Z",
    re.I,
)
_NUMBERED = re.compile(r"(?:\bnumber|\bno[.]|nummer|\bnr[.]?)\W*(?:is\W*|ist\W*)?\Z", re.I)
_DIALLED = re.compile(r"\b(?<!this )(?<!per )(?<!each )(?:call|dial|ring)\W*\Z", re.I)
_SCORE_BEFORE = re.compile(r"\d( ?):\1\Z|\bscore\b\D{0,12}\d+ ?[-–] ?\Z", re.I)
_SCORE_BEHIND = re.compile(r"( ?):\1\d")
_GROUPS = re.compile(r"(?<!\w)\+?\(?\d+\)?(?:[ -]\(?\d+\)?)*(?!\w)")
_THOUSANDS = re.compile(r"\d{1,3}(?: \d{3})+|\d+")
_MIN_PHONE_DIGITS = 7
_ALONE = re.compile(r"\s?(?:[KMGT]i?B|[%％]|bytes)?\W*(?:\Z|[,;.)\]}>|<\"'\n]|[ ,;][\w-]+\s?[=:])")


_VERSION = re.compile(r"\b(?:rev(?:ision)?|version|release|edition|v)\W*\Z", re.I)
_UNTIL = re.compile(
    r"\b(?:days?|hours?|minutes?|seconds?|weeks?|tage|stunden|minuten|jours|heures|días|horas"
    r"|giorni"
    r"|ore|dias)(?: \w+)? (?:until|till|to|since|left|remaining|bis|seit|avant|depuis|hasta|desde"
    r"|fino"
    r"|até)\b[^.;]{0,40}\Z|\b(?:julian|mjd|net ticks|unix)\b[^.;]{0,24}\Z",
    re.I,
)
_RULE = re.compile(
    r"[^\w<\"']*(?:turn (?:the|on|off|up|down|it)|set|keep|use|bake|heat|take|write|answer|wait"
    r"|move|dim)\s(?=[a-z])",
    re.I,
)
_PRICE = re.compile(
    r"\b(?:prices?|fees?|fares?|charges?|tariffs?|rates?|factors?|premium|rent|salary|gebühr"
    r"|preis\w*|prix"
    r"|tarif\w*|precios?|cuota|prezz\w+|costs?(?! so far)|per (?:month|year|night|person|hour)"
    r"|[$€£¥₹] ?per|/mo)\b"
    r"|शुल्क|प्रति|رسوم|سعر|价格|费用|料金|価格|가격|요금|цена|тариф",
    re.I,
)
_NAMED = re.compile(r"(?<![.!?:]\s)(?<!\A)\b[A-Z]\w+\s\Z|\baccess to\s\Z")
_RANGE = re.compile(r"\s?(?:[-–—~〜]|to|bis|до|إلى|à|a|al|do|ile)\s?\d")
_RANGE_BEFORE = re.compile(r"\d\s?(?:[-–—~〜]|to|bis|до|إلى|à|a|al|do|ile)\s?\Z")
_CODE = re.compile(r"[\w\])]\{\Z")
_YEARS = re.compile(r"(?:19|20)\d\d-(?:19|20)\d\d")
_ACRONYM = re.compile(r"(?<![A-Za-z])(?!CPU|GPU|RAM|BTC|USD|EUR|ID|NO)[A-Z][A-Z&]+[ -]?\Z")
_GLUED = re.compile(r"[A-Za-z][-.]?\Z")
_SMALL_STEP = 10.0
_LAST_WORD = re.compile(r"([^\W\d_]+)\s\Z")


def _in_number(piece: str) -> bool:
    return piece.isdecimal() or piece in "$€£¥.,_/%％'kKmM"


def days_left_change(was: Spot, now: Spot, place: Place) -> Change | None:
    """Days, hours or other units of time up to something, or since."""
    was, now = was.grown(_in_number, CHARACTERS), now.grown(_in_number, CHARACTERS)
    counted = was.value.isdecimal() and now.value.isdecimal() and place.is_root
    if not counted or not _UNTIL.search(was.words) or _LIMIT.search(was.words[-30:]):
        return None
    return Change("clock", 0.75, shown_values(was, now))


def counter_change(was: Spot, now: Spot, place: Place) -> Change | None:
    was, now = was.grown(_in_number, CHARACTERS), now.grown(_in_number, CHARACTERS)
    old, new = was.value.strip(" .,/_"), now.value.strip(" .,/_")
    if not (_NUMBER.fullmatch(old) and _NUMBER.fullmatch(new)):
        return _spelled_change(was, now, place) or _bar_change(was, now, place)
    dated = _PERIOD.search(was.words) or _REST_OF_DATE.match(was.right)
    if place.is_root and dated and not _LIMIT.search(was.words[-30:]):
        return Change("clock", 0.75, shown_values(was, now))
    sure = _confidence(was, now, place)
    return Change("counter", sure, shown_values(was, now)) if sure else None


def is_counted(spot: Spot) -> bool:
    """Whether a word beside the value names what is counted."""
    return _COUNTED.search(_near(spot)) is not None


def _near(spot: Spot) -> str:
    return f"{spot.words[-30:]} {spot.value} {spot.right[:36]}"


def _spelled_change(was: Spot, now: Spot, place: Place) -> Change | None:
    """A number in words, or a Roman numeral or a letter behind the name of what is counted."""
    was, now = was.grown(_in_name, CHARACTERS), now.grown(_in_name, CHARACTERS)
    more = re.match(r"\s(?:more|weitere|autres|más|altre|mais|nog|еще|ещё)\b", was.right)
    if not place.is_root or (_is_limit(was) and not more):
        return None
    if None not in (number(was.value), number(now.value)):
        counts = bool(more or _COUNTED.search(_near(was)) or _COUNTED_IN_ROOT.search(_near(was)))
    else:
        counts = (
            not _VERSION.search(was.words)
            and _PART.search(was.words) is not None
            and _is_next(was.value, now.value)
        )
    return Change("counter", 0.85, shown_values(was, now)) if counts else None


def _in_name(piece: str) -> bool:
    return (piece.isalnum() and piece < "\u2e80") or piece == "-" or piece in CHINESE_DIGITS


def _is_next(old: str, new: str) -> bool:
    """Whether both are Roman numerals, or letters that follow each other."""
    if None not in (roman(old), roman(new)):
        return True
    letters = len(old) == len(new) == 1 and old.isalpha() and new.isalpha()
    return letters and 0 < ord(new) - ord(old) <= 3


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
    if _is_listed(was) or _is_name(was, now):
        return 0.0
    if _STRONG_COUNT.search(around):
        return 0.97 if place.is_root or place.is_first_user else 0.8
    if not (place.is_root or place.is_first_user):
        return 0.6 if _is_large_count(was, now) else 0.0
    if _is_limit(was):
        return 0.0
    if place.is_first_user and _ORDER.search(was.words):
        return 0.0
    if place.is_root and _RULE.match(was.left):
        return 0.0
    if _total(was) and _total(was) == _total(now):
        return 0.9 if place.is_root else 0.7
    near = _near(was)
    if _COUNTED.search(near):
        return 0.95 if place.is_root else 0.8
    if place.is_root and (_PART.search(was.words) or _COUNTED_IN_ROOT.search(near)):
        return 0.8
    stands = not re.search(r"\w:\Z|[A-Za-z0-9/]\Z", was.left) and not _PRICE.search(near)
    if place.is_root and stands and _is_irregular(was, now) and not _SETTING.search(was.words):
        return 0.7
    labelled = was.is_labelled and (not place.is_first_user or was.left.endswith("="))
    if _SETTING.search(was.words) or re.search(r"\w:\Z", was.left) or not was.left.strip():
        return 0.0
    labelled = labelled and _ALONE.match(was.right) is not None and not _CODE.search(was.left)
    if _YEARS.fullmatch(f"{was.value}-{now.value}"):
        return 0.0
    if labelled and _is_step(was.value, now.value) and not _is_set(was, now):
        return 0.7
    plain = place.is_root and not place.is_first_user and stands
    return 0.6 if plain and _moves_a_little(was, now) else 0.0


def _is_large_count(was: Spot, now: Spot) -> bool:
    return _digits(was.value) >= 1000 and _moves_a_little(was, now) and was.is_labelled


def _moves_a_little(was: Spot, now: Spot) -> bool:
    """A whole number from 10 on that is one more or less, from 100 on up to three; one behind a
    name or in a range is chosen by somebody."""
    if not (was.value.isdecimal() and now.value.isdecimal()):
        return False
    old, step = _digits(was.value), abs(_digits(now.value) - _digits(was.value))
    chosen = _NAMED.search(was.left) or _RANGE.match(was.right) or _RANGE_BEFORE.search(was.left)
    return 0 < step <= (3 if old >= 100 else 1 if old >= 10 else 0) and not chosen


def _is_irregular(was: Spot, now: Spot) -> bool:
    """Whether they look read off something: odd digits to the end, and not far apart."""
    texts = [re.sub(r"[^\d.,]", "", spot.value).strip(".,") for spot in (was, now)]
    digits = [re.sub(r"\D", "", text) for text in texts]
    if not all(digits) or _YEARS.fullmatch("-".join(digits)):
        return False
    exact = [
        int(d[-1]) % 5 and len(d) >= (2 if re.search(r"[.,]\d", t) else 3)
        for d, t in zip(digits, texts, strict=True)
    ]
    old, new = (float(d[:15]) for d in digits)
    if all(exact) and all(
        "%" in spot.value and re.search(r"[.,]\d", spot.value) for spot in (was, now)
    ):
        return True
    step, near = abs(new - old), 0.25 if all(exact) else 0.05
    return any(exact) and not old % 10 == new % 10 == 9 and step <= near * max(old, new)


def _is_set(was: Spot, now: Spot) -> bool:
    """Whether both are round, or small and further apart than one: what people choose."""
    old, new = _digits(was.value), _digits(now.value)
    round_ones = old % 5 == new % 5 == 0 and abs(new - old) > 1
    return round_ones or (max(old, new) < 20 and abs(new - old) > 2)


def _is_limit(spot: Spot) -> bool:
    behind = spot.right.lstrip()[:24]
    return bool(_LIMIT.search(spot.words[-30:]) or re.search(r"\bat (?:most|least)\b", behind))


def _is_name(was: Spot, now: Spot) -> bool:
    """Whether the number names something, or is a part of a score: nothing counts it."""
    if _ACRONYM.search(was.left) and not _total(was):
        return True
    if _GLUED.search(was.left) and not _COUNTED.search(was.words[-12:]):
        return True
    if _VERSION.search(was.words) and "." in was.value + now.value:
        return True
    if _SCORE_BEFORE.search(was.left) or _SCORE_BEHIND.match(was.right) or _is_phone(was):
        return True
    if _RECORD.search(was.words) and not _total(was):
        return True
    is_long = min(_digits(was.value), _digits(now.value)) >= 100
    named = _NUMBERED.search(was.words) or (is_long and _DIALLED.search(was.words))
    return bool(named) and _step(was.value, now.value) > _SMALL_STEP


def _is_phone(spot: Spot) -> bool:
    """Whether it stands in groups of digits that are no thousands: 555-0123, +49 30 1234567."""
    for found in _GROUPS.finditer(spot.line):
        if found.start() <= spot.start and spot.end <= found.end():
            digits = sum(piece.isdecimal() for piece in found[0])
            return digits >= _MIN_PHONE_DIGITS and _THOUSANDS.fullmatch(found[0]) is None
    return False


def _is_listed(spot: Spot) -> bool:
    """Whether it numbers one of several entries: "Step 1: ..." stands in front of "Step 2: ..."."""
    name = _LAST_WORD.search(spot.left)
    if name is None or spot.right[:1] not in (":", "."):
        return False
    before = f"{spot.above} {spot.line[: spot.start - len(name[0])]}"
    return re.search(rf"\b{re.escape(name[1])}\s\d+[:.]", before) is not None


def _is_step(old: str, new: str) -> bool:
    """Whether a number moved by at most 10, or became at most twice or half of what it was."""
    return _step(old, new) <= max(_SMALL_STEP, min(_digits(old), _digits(new)))


def _step(old: str, new: str) -> float:
    return abs(_digits(new) - _digits(old))


def _digits(text: str) -> float:
    return float(re.sub(r"\D", "", text)[:15] or "0")


def _total(spot: Spot) -> str:
    """What a share is of: the number behind the stroke, or behind "of"."""
    inside = spot.value.partition("/")[2].strip(" .,")
    found = _OF.match(spot.right)
    return inside or (found[1] if found else "")
