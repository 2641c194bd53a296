"""What clocks, ids and counters look like in prompts, and the words that tell them from lookalikes.

Each pattern is bounded in length where it repeats, and cannot start twice in one run of characters,
so a search is linear in the text. All stay on one line.
"""

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["clock", "uuid", "id", "counter", "changed text"]


@dataclass(frozen=True)
class Rule:
    """`needs`: a line without any of these, in lower case, holds no match; () where all may.
    `pattern` may name a group `value`: then only that is the field; and a group `label`: where a
    text holds different values under one label, it is a list. `sure`: counts where no word near it
    decides. `now` and `still`: the words for and against it."""

    kind: Kind
    needs: tuple[str, ...]
    pattern: re.Pattern[str]
    sure: bool
    now: re.Pattern[str]
    still: re.Pattern[str]


_MONTH = (
    "(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    "|Sep(?:t(?:ember)?)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)[.]?"
)
_WEEKDAY = (
    "(?:Mon(?:day)?|Tue(?:s(?:day)?)?|Wed(?:nesday)?|Thu(?:r(?:s(?:day)?)?)?|Fri(?:day)?"
    "|Sat(?:urday)?|Sun(?:day)?)"
)
_YEAR = "(?:19|20)[0-9]{2}"
_DAY = "(?:3[01]|[12][0-9]|0?[1-9])(?:st|nd|rd|th)?"
_GAP = "[ \t]{1,3}"
_ZONE = "(?:Z|UTC|GMT|BST|MSK|JST|IST|CES?T|AE[SD]T|[ECMP][SD]T|[+-][0-9]{2}:?[0-9]{2})"
_TIME = (
    "(?:2[0-3]|[01]?[0-9]):[0-5][0-9](?::[0-6][0-9](?:[.,][0-9]{1,9})?)?"
    rf"(?:[ ]?[AaPp](?:[.][Mm][.]|[Mm]\b))?(?:[ ]?\(?{_ZONE}(?!\w)\)?){{0,2}}"
)
_NUMERIC_DATE = (
    f"(?:{_YEAR}-(?:0[1-9]|1[0-2])-(?:3[01]|[12][0-9]|0[1-9])"
    f"|{_YEAR}[/.](?:0[1-9]|1[0-2])[/.](?:3[01]|[12][0-9]|0[1-9])"
    f"|(?:3[01]|[12][0-9]|0?[1-9])/(?:3[01]|[12][0-9]|0?[1-9])/{_YEAR}"
    f"|(?:3[01]|[12][0-9]|0[1-9])[.](?:0[1-9]|1[0-2])[.]{_YEAR}"
    f"|{_YEAR}年[0-9]{{1,2}}月[0-9]{{1,2}}日)"
)
_COMPACT_DATE = f"{_YEAR}(?:0[1-9]|1[0-2])(?:3[01]|[12][0-9]|0[1-9])"
_DAY_OF_MONTH = rf"(?:{_MONTH}{_GAP}{_DAY}|{_DAY}{_GAP}(?:of[ ])?{_MONTH})(?!\w)"
_LONG_DATE = (
    f"(?:{_WEEKDAY}[.]?,?{_GAP}{_DAY_OF_MONTH}(?:,?{_GAP}{_YEAR})?|{_DAY_OF_MONTH},?{_GAP}{_YEAR})"
)
_DATE = f"(?:(?:{_WEEKDAY},?{_GAP})?{_NUMERIC_DATE}|{_LONG_DATE})"
_BETWEEN = f"(?:T|,?{_GAP}(?:at{_GAP}|-{_GAP})?)"
_SURE_CLOCK = (
    f"(?>{_WEEKDAY},?{_GAP}{_DAY_OF_MONTH}{_GAP}{_TIME}{_GAP}{_YEAR}"
    f"|{_DATE}(?:{_BETWEEN}{_TIME})?"
    f"|{_TIME}(?:,|[ ]on)?{_GAP}{_DATE}"
    f"|{_COMPACT_DATE}T[0-9]{{4}}(?:[0-9]{{2}})?Z?)"
)
_EPOCH_S = "1[5-9][0-9]{8}"  # July 2017 to May 2033
_SUBSECONDS = "(?:[.][0-9]{3,9}|[0-9]{9}|[0-9]{6}|[0-9]{3})"
_UNSURE_CLOCK = f"(?>{_TIME}|{_DAY_OF_MONTH}|{_EPOCH_S}|{_COMPACT_DATE})"
_NO_NAME = r"(?<![\w/\\@.$€£+#-])"  # not inside a word, a path, a price, an address
_BEFORE = rf"{_NO_NAME}(?<!\w[:=])"
_AFTER = r"(?![\w/\\%-]|[.:,]\w)"
_NO_RANGE = "(?![ ]{0,2}(?:[-–—]|to|until|till|through|and)[ ]{0,2}[0-9])"

_ADJACENT = r"""(?=[\s"'(\[]{0,3}\Z)"""
_RANGE = r"[0-9][ ]{0,2}[-–—][ ]{0,2}\Z"
_END = "(?![A-Za-z])"
_CLOCK_NOW = (
    r"\b(?:now|today|tonight|current(?:ly)?|clock|time|date|datetime|timestamp|epoch|unix|ts"
    rf"|as of|it is|it's){_END}"
)
_CLOCK_STILL = (
    r"(?:\b(?:versions?|cut-?off|released?|publish(?:ed)?|effective|revis(?:ed|ion)|founded|born"
    r"|copyright|updated|modified|valid|introduced|deprecated|deadline|due|expires|every|daily"
    r"|hours|limit|max(?:imum)?|min(?:imum)?|timeout|duration|examples?|e[.]g|i[.]e|such as"
    rf"|format|phone|tel|isbn|bytes?|size|price|port){_END}|©|{_RANGE}"
    rf"|\b(?:before|after|until|till|since|by|from|between|to|through|like|and|or){_ADJACENT})"
)
_ID_NOW = (
    r"\b(?:requests?|session|trace|run|nonce|conversation|correlation|invocation|span|message"
    rf"|call|turn|thread){_END}"
)
_ID_STILL = (
    r"\b(?:commits?|sha-?[0-9]{0,3}|md5|git|rev|revision|checksum|digest|blob|version|colou?r"
    rf"|key|examples?|e[.]g|like|model|image|project|account|user|org(?:anization)?){_END}"
)
_COUNTER_NOW = rf"\b(?:now|current(?:ly)?|this is(?: your)?|you are (?:on|at|in)){_END}"
_COUNTER_STILL = rf"\b(?:max(?:imum)?|limit|up to|at most|total|each|every|examples?|e[.]g){_END}"
_COUNTED = "(?i:(?P<label>step|turn|call|iteration|attempt|round|request|message|cycle|loop))"
_MEASURED = "(?:tokens?|steps?|turns?|calls?|iterations?|attempts?|rounds?|requests?|messages?)"
_NUMBER = "(?P<value>[0-9]{1,3}(?:,[0-9]{3}){1,4}|[0-9]{1,12})"
_NUMBER_END = r"(?![\w%]|[.,:/-][0-9])"
_NAMED_ID = (
    "(?i:(?P<label>(?:req|request|session|trace|run|conversation|correlation|invocation|span"
    "|message|thread|task|job|call|turn)[ _-]?(?:id|hash|uid)|nonce|hash))"
)
_IS = r"""["']?[ \t]{0,2}[:=][ \t]{0,2}["']?"""


_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_COUNTED_WORDS = (
    *("step", "turn", "call", "iteration", "attempt"),
    *("round", "request", "message", "cycle", "loop"),
)
_SPENT_WORDS = ("used", "left", "remaining", "spent", "so far")


def _clock(needs: tuple[str, ...], pattern: str, *, sure: bool = True) -> Rule:
    now, still = re.compile(_CLOCK_NOW, re.I), re.compile(_CLOCK_STILL, re.I)
    return Rule("clock", needs, re.compile(pattern), sure, now, still)


def _id(needs: tuple[str, ...], pattern: str, kind: Kind = "id") -> Rule:
    now, still = re.compile(_ID_NOW, re.I), re.compile(_ID_STILL, re.I)
    return Rule(kind, needs, re.compile(pattern, re.M), True, now, still)


def _counter(needs: tuple[str, ...], pattern: str, *, sure: bool = True) -> Rule:
    now, still = re.compile(_COUNTER_NOW, re.I), re.compile(_COUNTER_STILL, re.I)
    return Rule("counter", needs, re.compile(pattern), sure, now, still)


RULES = (
    _clock(("19", "20", *_WEEKDAYS), f"{_BEFORE}{_SURE_CLOCK}{_NO_RANGE}{_AFTER}"),
    _clock(("[", "(", "<"), rf"(?<=[\[(<])(?>{_TIME}|{_EPOCH_S})(?=[\])>])"),
    _clock((), rf"{_NO_NAME}{_EPOCH_S}{_SUBSECONDS}(?![\w/\\%-]|[.:,]\w)"),
    _clock(
        ("day",),
        r"\b(?i:today|it) is (?i:a )?(?P<value>(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day)\b",
    ),
    _clock(
        (":", "15", "16", "17", "18", "19", "20", *_MONTHS),
        f"{_NO_NAME}{_UNSURE_CLOCK}{_NO_RANGE}{_AFTER}",
        sure=False,
    ),
    _id(
        ("-",),
        r"(?<![\w/\\@.-])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![\w/\\-]|[.]\w)",
        "uuid",
    ),
    _id(
        (),
        r"(?<![\w/\\@.#-])(?=[a-fA-F]{0,128}[0-9])(?=[0-9]{0,128}[a-fA-F])"
        r"(?:[0-9a-f]{16,128}|[0-9A-F]{16,128})(?![\w/\\-]|[.]\w)",
    ),
    _id(
        ("id", "hash", "nonce"),
        rf"(?<![\w.]){_NAMED_ID}{_IS}(?P<value>(?=[A-Za-z_-]{{0,127}}[0-9])"
        r"[A-Za-z0-9][\w-]{3,127})(?!\w)",
    ),
    _id(
        ("id",),
        r"""(?:^|[\[({,;|<])[ \t]{0,8}["']?(?i:(?P<label>id))"""
        rf"{_IS}(?P<value>(?=[A-Za-z_-]{{0,127}}[0-9])(?=[0-9_-]{{0,127}}[A-Za-z])"
        r"[A-Za-z0-9][\w-]{5,127})(?!\w)",
    ),
    _counter(
        _COUNTED_WORDS,
        rf"\b{_COUNTED}{_GAP}{_NUMBER}(?={_GAP}of{_GAP}[0-9]|[ ]?/[ ]?[0-9])",
    ),
    _counter(
        _COUNTED_WORDS,
        rf"\b{_COUNTED}(?:{_GAP}(?i:number|no[.]?|count|counter|index))?(?:{_IS}#?|[ ]?#[ ]?)"
        rf"{_NUMBER}{_NUMBER_END}",
    ),
    _counter(
        _SPENT_WORDS,
        rf"\b(?i:(?P<label>(?:{_MEASURED}|budget)[ ](?:used|left|remaining|spent|so far)"
        rf"|(?:used|remaining)[ ](?:{_MEASURED}|budget))){_IS}[$€£]?{_NUMBER}(?![\w%])",
    ),
    _counter(
        _SPENT_WORDS,
        rf"(?<![\w.,:/$-]){_NUMBER}[ ]"
        rf"(?i:(?P<label>{_MEASURED}[ ](?:used|left|remaining|so far)))\b",
    ),
    _counter(_COUNTED_WORDS, rf"\b{_COUNTED}{_GAP}{_NUMBER}{_NUMBER_END}", sure=False),
)
