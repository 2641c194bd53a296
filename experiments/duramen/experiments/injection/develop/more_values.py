"""More clocks, ids and counters of the half to develop on: other languages, pairs, odd forms."""

from datetime import datetime, timedelta
from random import Random
from string import ascii_letters, ascii_lowercase, digits

from duramen.experiments.injection.values import Stamp, clock, counting, drawn, letters, variants

MESES = (
    *("enero", "febrero", "marzo", "abril", "mayo", "junio", "julio", "agosto"),
    *("septiembre", "octubre", "noviembre", "diciembre"),
)


def _korean(t: datetime) -> str:
    half = "오전" if t.hour < 12 else "오후"
    return f"{t.year}년 {t.month}월 {t.day}일 {half} {t.hour % 12 or 12}시 {t.minute}분"


CLOCKS = {
    "Spanish, system middle": Stamp(
        "Fecha actual: {}",
        "system middle",
        clock(lambda t: f"{t.day} de {MESES[t.month - 1]} de {t.year}", timedelta(days=1)),
    ),
    "Korean, user tail": Stamp("현재 시각: {}", "user tail", clock(_korean, timedelta(minutes=11))),
    "afternoon, system head": Stamp(
        "It's {} where the user is.",
        "system head",
        clock(lambda t: f"{t.hour % 12 or 12}:{t:%M %p} on a {t:%A}", timedelta(minutes=25)),
    ),
    "month, system tail": Stamp(
        "The month is {}.", "system tail", clock(lambda t: f"{t:%B %Y}", timedelta(days=40))
    ),
    "eight digits, tool description": Stamp(
        "Index built {}.", "tool description", clock(lambda t: f"{t:%Y%m%d}", timedelta(days=1))
    ),
    "tag, user head": Stamp(
        "<now>{}</now>", "user head", clock(lambda t: f"{t:%Y-%m-%dT%H:%MZ}", timedelta(minutes=2))
    ),
    "log line, system middle": Stamp(
        "[{}] INFO session ready",
        "system middle",
        clock(lambda t: f"{t:%H:%M:%S}.{t.second * 7:03d}", timedelta(seconds=19)),
    ),
    "milliseconds in JSON, user tail": Stamp(
        '{"tz": "UTC", "ts": {}}',
        "user tail",
        clock(lambda t: f"{int(t.timestamp()) * 1000 + 250}", timedelta(seconds=3)),
    ),
    "with an h, system tail": Stamp(
        "Il est {}.", "system tail", clock(lambda t: f"{t:%H}h{t:%M}", timedelta(minutes=6))
    ),
}

IDS = {
    "sha1, system head": Stamp(
        "Build: {}", "system head", drawn(lambda rng: letters("0123456789abcdef", 40, rng))
    ),
    "KSUID, system tail": Stamp(
        "event {}",
        "system tail",
        drawn(lambda rng: "2N" + letters(ascii_letters + digits, 25, rng)),
    ),
    "signed link, user tail": Stamp(
        "Upload to https://files.example.com/u?sig={}%3D",
        "user tail",
        drawn(lambda rng: letters(ascii_letters + digits, 43, rng)),
    ),
    "CUID, user head": Stamp(
        "thread c{}", "user head", drawn(lambda rng: letters(ascii_lowercase + digits, 24, rng))
    ),
    "Snowflake in JSON, system middle": Stamp(
        '{"message_id": "{}"}',
        "system middle",
        drawn(lambda rng: str(rng.randrange(10**18, 2 * 10**18))),
    ),
    "short hash in brackets, tool description": Stamp(
        "[{}]", "tool description", drawn(lambda rng: "a1" + letters("0123456789abcdef", 6, rng))
    ),
}


def _two(rng: Random) -> tuple[str, str]:
    used = rng.randrange(120, 500)
    before, after = (f"{n / 10:.1f}K used, {(2000 - n) / 10:.1f}K left" for n in (used, used + 23))
    return before, after


COUNTERS = {
    "ordinal, system head": Stamp(
        "This is the {} attempt.", "system head", counting(lambda n: f"{n}th", 5, 1)
    ),
    "used and left, system tail": Stamp("Tokens: {}", "system tail", _two),
    "page of, user tail": Stamp("Page {} of 19", "user tail", counting(str, 3, 1)),
    "bar, system middle": Stamp(
        "[{}]", "system middle", counting(lambda n: f"{'#' * n}{'.' * (20 - n)}] {n * 5}% [", 4, 1)
    ),
    "depth, user head": Stamp("depth={} limit=12", "user head", counting(str, 2, 1)),
    "falling percent, tool description": Stamp(
        "Quota left: {} %", "tool description", counting(lambda n: f"{n / 10:.1f}", 873, -14)
    ),
    "usage in JSON, user tail": Stamp(
        '{"usage": {"prompt_tokens": {}, "limit": 200000}}',
        "user tail",
        counting(str, 18_234, 912),
    ),
}

VARIANTS = [
    *variants("clock", CLOCKS),
    *variants("uuid-or-hash", IDS),
    *variants("counter", COUNTERS),
]
