"""Clocks, ids and counters as the half that was scored on, and then opened spells them."""

from datetime import datetime, timedelta
from random import Random
from string import ascii_lowercase, ascii_uppercase, digits
from uuid import UUID

from duramen.experiments.injection.values import Stamp, clock, counting, drawn, variants


def _after(**units: float) -> timedelta:
    return timedelta(**units)


def _ordinal(t: datetime) -> str:
    suffix = "th" if 11 <= t.day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(t.day % 10, "th")
    return f"{t.day}{suffix} of {t:%B} {t.year}"


def _chars(alphabet: str, length: int, rng: Random) -> str:
    return "".join(rng.choices(alphabet, k=length))


def _time_uuid(rng: Random) -> str:
    """Version 7: the same head for calls of one minute."""
    bits = (0x0197_4F2A_0000 << 80) | (7 << 76) | (2 << 62)
    return str(UUID(int=bits | rng.getrandbits(62) | rng.getrandbits(12) << 64))


MOIS = (
    *("janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août"),
    *("septembre", "octobre", "novembre", "décembre"),
)


def _uptime(rng: Random) -> tuple[str, str]:
    first = rng.randrange(5, 50)
    return f"{first} seconds", f"{first + 9} seconds"


CLOCKS = {
    "ordinal day, system middle": Stamp(
        "You are speaking with the customer on the {}.",
        "system middle",
        clock(_ordinal, _after(days=1)),
    ),
    "milliseconds, system tail": Stamp(
        "server_time_ms={}",
        "system tail",
        clock(lambda t: str(int(t.timestamp() * 1000)), _after(seconds=4.2)),
    ),
    "ctime, user head": Stamp(
        "$ date\n{}",
        "user head",
        clock(lambda t: f"{t:%a %b %d %H:%M:%S} UTC {t:%Y}", _after(seconds=91)),
    ),
    "time only, user tail": Stamp(
        "(local time {})", "user tail", clock(lambda t: f"{t:%H:%M}", _after(minutes=3))
    ),
    "French, system head": Stamp(
        "Nous sommes le {}.",
        "system head",
        clock(lambda t: f"{t.day} {MOIS[t.month - 1]} {t.year}", _after(days=2)),
    ),
    "Japanese, system tail": Stamp(
        "現在の日時: {}",
        "system tail",
        clock(
            lambda t: f"{t.year}年{t.month:02d}月{t.day:02d}日{t.hour}時{t.minute}分",
            _after(minutes=7),
        ),
    ),
    "compact, tool description": Stamp(
        "Snapshot {}.",
        "tool description",
        clock(lambda t: f"{t:%Y%m%dT%H%M%SZ}", _after(seconds=64)),
    ),
    "XML attribute, system head": Stamp(
        '<context generated-at="{}" locale="en-GB"/>',
        "system head",
        clock(lambda t: f"{t:%d/%m/%Y %H:%M}", _after(hours=1)),
    ),
    "offset, parameter": Stamp(
        "defaults to the present, {}",
        "parameter description",
        clock(lambda t: f"{t:%Y-%m-%dT%H:%M:%S}+02:00", _after(seconds=12)),
    ),
    "week and weekday, user tail": Stamp(
        "Calendar: {}",
        "user tail",
        clock(lambda t: f"{t:%a}, week {t:%V} of {t:%G}", _after(days=1)),
    ),
    "uptime, system tail": Stamp(
        "Sandbox started {} ago; it is stopped after an hour.",
        "system tail",
        _uptime,
        also=("counter",),
    ),
    "Python repr, system middle": Stamp(
        "state = {'cwd': '/app', 'now': {}, 'debug': False}",
        "system middle",
        clock(
            lambda t: f"datetime.datetime({t.year}, {t.month}, {t.day}, {t.hour}, {t.minute})",
            _after(minutes=1),
        ),
    ),
    "hour, between sessions": Stamp(
        "Knowledge is current as of {}.",
        "system tail",
        clock(lambda t: f"{t:%d-%b-%Y %H}:00", _after(hours=1)),
        across=True,
    ),
    "epoch with fraction, between sessions": Stamp(
        "boot: {}",
        "system head",
        clock(lambda t: f"{t.timestamp():.6f}", _after(seconds=500)),
        True,
    ),
}

IDS = {
    "uuid without dashes, user tail": Stamp(
        "Correlation-Id: {}", "user tail", drawn(lambda rng: f"{rng.getrandbits(128):032x}")
    ),
    "uuid 7, system tail": Stamp("run {} is in progress", "system tail", drawn(_time_uuid)),
    "braced GUID, system head": Stamp(
        "{{}}",
        "system head",
        drawn(lambda rng: str(UUID(int=rng.getrandbits(128), version=4)).upper()),
    ),
    "nanoid, system middle": Stamp(
        'data-key="{}"',
        "system middle",
        drawn(lambda rng: _chars(ascii_lowercase + ascii_uppercase + digits + "_-", 21, rng)),
    ),
    "cache buster, user head": Stamp(
        "Style guide: https://docs.example.com/style.md?v={}",
        "user head",
        drawn(lambda rng: f"{rng.getrandbits(48):012x}"),
    ),
    "container host name, system tail": Stamp(
        "hostname={}", "system tail", drawn(lambda rng: f"{rng.getrandbits(48):012x}")
    ),
    "pod name, system head": Stamp(
        "Worker: agent-runner-6c9d7f5b4d-{}",
        "system head",
        drawn(lambda rng: _chars("bcdfghjklmnpqrstvwxz2456789", 5, rng)),
    ),
    "etag, tool description": Stamp(
        'ETag: W/"{}"', "tool description", drawn(lambda rng: f"{rng.getrandbits(64):016x}")
    ),
    "call id with prefix, parameter": Stamp(
        "echo chatcmpl-{} back",
        "parameter description",
        drawn(lambda rng: _chars(ascii_uppercase + ascii_lowercase + digits, 29, rng)),
    ),
    "base64 nonce, system tail": Stamp(
        "nonce: {}==",
        "system tail",
        drawn(lambda rng: _chars(ascii_uppercase + ascii_lowercase + digits + "+/", 22, rng)),
    ),
    "JSON, user head": Stamp(
        '{"v": 2, "conversation_uuid": "{}"}',
        "user head",
        drawn(lambda rng: str(UUID(int=rng.getrandbits(128), version=4))),
    ),
    "fence of random words, between sessions": Stamp(
        "Untrusted text is fenced by BOUNDARY_{}.",
        "system tail",
        drawn(lambda rng: f"{rng.getrandbits(40):010X}"),
        across=True,
    ),
}

COUNTERS = {
    "turn, system tail": Stamp("turn_number={}", "system tail", counting(str, 6, 1)),
    "words around, system head": Stamp(
        "You have used {} of your 25 actions.", "system head", counting(str, 5, 1)
    ),
    "budget tag, user head": Stamp(
        "<budget:token_budget>{}</budget:token_budget>", "user head", counting(str, 191_000, -4_205)
    ),
    "seconds of CPU, tool description": Stamp(
        "Quota used: {} CPU-seconds.",
        "tool description",
        counting(lambda n: f"{n / 10:.1f}", 42, 17),
    ),
    "thousands, system tail": Stamp(
        "context: {}k / 200k", "system tail", counting(lambda n: f"{n / 10:.1f}", 351, 24)
    ),
    "remaining, user tail": Stamp(
        "Remember: {} attempts left before the run is aborted.",
        "user tail",
        counting(str, 12, -1),
    ),
    "euro, system middle": Stamp(
        "Ausgaben bisher: {} €",
        "system middle",
        counting(lambda n: f"{n / 100:.2f}".replace(".", ","), 104, 9),
    ),
    "progress bar, user tail": Stamp("Progress: {}% complete", "user tail", counting(str, 10, 5)),
    "XML attribute, system head": Stamp(
        '<loop index="{}" limit="64">', "system head", counting(str, 8, 1)
    ),
    "crossing ten, system tail": Stamp("Round {}", "system tail", lambda rng: ("9", "10")),
    "revision, parameter": Stamp(
        "schema seen {} times", "parameter description", counting(str, 30, 1)
    ),
}

VARIANTS = [
    *variants("clock", CLOCKS),
    *variants("uuid-or-hash", IDS),
    *variants("counter", COUNTERS),
]
