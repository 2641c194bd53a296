"""Clocks, ids and counters as the half to develop on spells them."""

import uuid
from datetime import timedelta
from random import Random
from string import ascii_letters, digits

from duramen.experiments.injection.develop import more_values
from duramen.experiments.injection.values import Stamp, clock, counting, drawn, letters, variants

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
S, M, H, D = (timedelta(seconds=37), timedelta(minutes=9), timedelta(hours=5), timedelta(days=1))


def _hex(length: int, rng: Random) -> str:
    return letters("0123456789abcdef", length, rng)


def _uuid4(rng: Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _ago(rng: Random) -> tuple[str, str]:
    first = rng.randrange(2, 30)
    return f"{first} minutes", f"{first + rng.randrange(1, 20)} minutes"


CLOCKS = {
    "second, system head": Stamp(
        "Current time: {}", "system head", clock(lambda t: f"{t:%Y-%m-%d %H:%M:%S}", S)
    ),
    "minute, 12 hours, system tail": Stamp(
        "It is now {}.", "system tail", clock(lambda t: f"{t:%B %d, %Y at %I:%M %p}", M)
    ),
    "day, system middle": Stamp(
        "Today's date is {}.", "system middle", clock(lambda t: f"{t:%Y-%m-%d}", D)
    ),
    "day, environment block": Stamp(
        "<env>\nWorking directory: /repo\nPlatform: linux\nToday's date: {}\n</env>",
        "system tail",
        clock(lambda t: f"{t.month}/{t.day}/{t.year}", D),
    ),
    "weekday, system head": Stamp("Today is {}.", "system head", clock(lambda t: f"{t:%A}", D)),
    "ISO with microseconds, user head": Stamp(
        "[{}]", "user head", clock(lambda t: f"{t:%Y-%m-%dT%H:%M:%S.%f}+00:00", S)
    ),
    "epoch, tool description": Stamp(
        "Server epoch: {}.", "tool description", clock(lambda t: f"{int(t.timestamp())}", S)
    ),
    "German, system tail": Stamp(
        "Heute ist der {} Uhr.", "system tail", clock(lambda t: f"{t:%d.%m.%Y, %H:%M}", M)
    ),
    "Chinese, user tail": Stamp(
        "当前时间：{}",
        "user tail",
        clock(lambda t: f"{t.year}年{t.month}月{t.day}日 {t:%H:%M:%S}", S),
    ),
    "JSON context, user tail": Stamp(
        '{"cwd": "/srv/app", "now": "{}", "shell": "bash"}',
        "user tail",
        clock(lambda t: f"{t:%Y-%m-%dT%H:%M:%SZ}", M),
    ),
    "relative, system tail": Stamp(
        "The workspace was last indexed {} ago.", "system tail", _ago, also=("counter",)
    ),
    "RFC 2822, parameter": Stamp(
        "as of {}", "parameter description", clock(lambda t: f"{t:%a, %d %b %Y %H:%M:%S} +0000", H)
    ),
    "second, between sessions": Stamp(
        "Session started: {}",
        "system head",
        clock(lambda t: f"{t:%Y/%m/%d %H:%M:%S} UTC", M),
        across=True,
    ),
    "day, between sessions": Stamp(
        "The current date is {}.", "system tail", clock(lambda t: f"{t:%A, %B %d, %Y}", D), True
    ),
}


IDS = {
    "uuid, system head": Stamp("Request ID: {}", "system head", drawn(_uuid4)),
    "uuid, session tag, user head": Stamp("<session id={}>", "user head", drawn(_uuid4)),
    "32 hex digits, system tail": Stamp(
        "trace={}", "system tail", drawn(lambda rng: _hex(32, rng))
    ),
    "sha256, system middle": Stamp(
        "Config digest: sha256:{}", "system middle", drawn(lambda rng: _hex(64, rng))
    ),
    "billing header, system head": Stamp(
        "x-anthropic-billing-header: cc_version=2.1.4; cch={};",
        "system head",
        drawn(lambda rng: _hex(5, rng)),
    ),
    "base64url, tool description": Stamp(
        "Page token {} is valid for this request only.",
        "tool description",
        drawn(lambda rng: letters(ascii_letters + digits + "-_", 22, rng)),
    ),
    "ULID, user tail": Stamp(
        "message_id: {}", "user tail", drawn(lambda rng: "01J" + letters(CROCKFORD, 23, rng))
    ),
    "request id with prefix, system tail": Stamp(
        "(req_{})", "system tail", drawn(lambda rng: letters(ascii_letters + digits, 24, rng))
    ),
    "temporary folder, system tail": Stamp(
        "Scratch directory: /tmp/agent-{}/work",
        "system tail",
        drawn(lambda rng: letters("abcdefghijklmnopqrstuvwxyz0123456789_", 8, rng)),
    ),
    "traceparent, user head": Stamp(
        "traceparent: 00-{}-01",
        "user head",
        drawn(lambda rng: f"{_hex(32, rng)}-{_hex(16, rng)}"),
    ),
    "object address, parameter": Stamp(
        "default <function now at 0x7f{}>",
        "parameter description",
        drawn(lambda rng: _hex(10, rng)),
    ),
    "uuid, between sessions": Stamp(
        "Conversation: {}", "system head", drawn(lambda rng: _uuid4(rng).upper()), True
    ),
}

COUNTERS = {
    "step of, system head": Stamp("Step {} of 40.", "system head", counting(str, 3, 1)),
    "tokens left, system tail": Stamp(
        "Tokens remaining: {}", "system tail", counting(lambda n: f"{n:,}", 187_420, -2_311)
    ),
    "cost, system tail": Stamp(
        "Cost so far: ${}", "system tail", counting(lambda n: f"{n / 10_000:.4f}", 312, 147)
    ),
    "percent of context, user tail": Stamp("Context used: {}%", "user tail", counting(str, 14, 6)),
    "JSON, user tail": Stamp('{"turn": {}, "max_turns": 30}', "user tail", counting(str, 4, 1)),
    "attempt, tool description": Stamp(
        "This is attempt {}.", "tool description", counting(str, 1, 1)
    ),
    "calls left, user head": Stamp("[{} tool calls remaining]", "user head", counting(str, 21, -1)),
    "iteration with hash sign, system middle": Stamp(
        "iteration #{}", "system middle", counting(str, 9, 1)
    ),
    "fraction, system tail": Stamp("Budget: {}/50 turns", "system tail", counting(str, 7, 1)),
    "messages so far, user tail": Stamp(
        "There are {} messages in this conversation.", "user tail", counting(str, 98, 2)
    ),
    "padded, parameter": Stamp(
        "call no. {}", "parameter description", counting(lambda n: f"{n:04d}", 12, 1)
    ),
}

VARIANTS = [
    *more_values.VARIANTS,
    *variants("clock", CLOCKS),
    *variants("uuid-or-hash", IDS),
    *variants("counter", COUNTERS),
]
