"""Breaks by blocks and by providers' rules, of the half that is only scored on."""

from typing import Any

from duramen.experiments.injection import by_blocks, by_provider, by_units
from duramen.experiments.injection.by_blocks import evicted, nothing, other_facts, share
from duramen.experiments.injection.cases import Make, Variant
from duramen.layout.diagnose.causes import Cause


def _of(cause: Cause, makes: dict[str, Make]) -> list[Variant]:
    return [Variant(cause, name, make) for name, make in makes.items()]


DESK: dict[str, Any] = {"salt": "desk-fr", "model": "ministral-14b", "replica": "paris-2"}
EVICTION = _of(
    "eviction",
    {
        "nothing left, unit 24": evicted(24, nothing),
        "nothing left, unit 64": evicted(64, nothing),
        "nothing left, unit 160": evicted(160, nothing),
        "two thirds left": evicted(16, share(0.67)),
        "a sixth left": evicted(16, share(0.17)),
        "two fifths left, unit 64": evicted(64, share(0.4)),
        "three quarters left, unit 32": evicted(32, share(0.75)),
        "a seventh left, unit 128": evicted(128, share(0.15)),
        "one desk": evicted(16, nothing, facts=DESK),
        "one desk, part left": evicted(32, share(0.45), facts=DESK),
        "one model, options alike": evicted(
            16, share(0.2), facts={"model": "coder-32b", "options": {"tool_choice": "required"}}
        ),
        "small pool, three strangers": by_blocks.pool_too_small(16, 3, room=1.25),
        "small pool, five others": by_blocks.pool_too_small(16, 5, room=1.4),
        "small pool, unit 48": by_blocks.pool_too_small(48, 4, room=1.1),
        "small pool, eight others": by_blocks.pool_too_small(32, 8, room=1.6),
    },
)


def _changed(
    name: str, before: dict[str, Any], after: dict[str, Any], **more: Any
) -> tuple[str, Make]:
    return name, other_facts("salt-or-model-changed", before, after, **more)


SALT = _of(
    "salt-or-model-changed",
    dict(
        [
            _changed("by country", {"salt": "desk-de"}, {"salt": "desk-pl"}),
            _changed("by shift", {"salt": "early"}, {"salt": "late"}, unit=32),
            _changed("salt of each request", {"salt": "c1d7e0"}, {"salt": "88ab42"}),
            _changed(
                "salt forgotten", {"salt": "t-9", "model": "qwen3-32b"}, {"model": "qwen3-32b"}
            ),
            _changed("salt introduced", {}, {"salt": "tenant:acme"}, unit=64),
            _changed("fallback model", {"model": "glm-4.7"}, {"model": "glm-4.7-flash"}),
            _changed("plan, then act", {"model": "large-thinking"}, {"model": "large-instruct"}),
            _changed("canary", {"model": "support-2025-05"}, {"model": "support-2025-06-rc1"}),
            _changed("adapter of a brand", {"model": "base:nordlicht"}, {"model": "base:atlas"}),
            _changed("other quantisation", {"model": "coder-awq"}, {"model": "coder-fp8"}, unit=8),
            _changed("not reported", {"salt": "desk-de"}, {"salt": "desk-fr"}, reported=False),
        ]
    ),
)

REPLICA = _of(
    "other-replica",
    {
        f"{first} to {later}, {unit} a unit": other_facts(
            "other-replica", {"replica": first, **more}, {"replica": later, **more}, unit=unit
        )
        for first, later, unit, more in (
            ("vllm-7d9c-abcde", "vllm-7d9c-fghij", 16, {}),
            ("node-03:8000", "node-05:8000", 16, {"model": "coder-32b"}),
            ("10.42.1.17", "10.42.3.9", 32, {}),
            ("paris-1", "paris-2", 16, {"salt": "desk-fr"}),
            ("warsaw", "frankfurt", 24, {}),
            ("rank0", "rank1", 16, {}),
            ("decode-a", "decode-b", 64, {"model": "glm-4.7"}),
            ("http://inference-1:8080", "http://inference-2:8080", 16, {}),
            ("h200-0", "h200-3", 128, {"salt": "s", "model": "m"}),
            ("canary", "stable", 8, {"salt": "t-9"}),
        )
    },
)

IN_FLIGHT = _of(
    "in-flight",
    {
        "same moment, long prompt": by_blocks.in_flight(16, (0.0, 0.0), 18.0),
        "retried by an impatient client": by_blocks.in_flight(16, (0.0, 10.0), 25.0),
        "double click": by_blocks.in_flight(16, (0.0, 0.15), 2.5),
        "unit 48": by_blocks.in_flight(48, (2.0, 2.3), 6.0),
        "unit 256": by_blocks.in_flight(256, (0.0, 0.7), 5.0),
        "five samples at once": by_blocks.in_flight(16, (0.0,) * 5, 14.0),
        "three workers, staggered": by_blocks.in_flight(16, (0.0, 0.8, 1.9), 11.0),
        "two thirds of it there": by_blocks.in_flight(16, (0.0, 2.0), 3.0, share(0.66)),
        "an eighth of it there": by_blocks.in_flight(16, (0.0, 0.4), 3.5, share(0.125)),
        "map over two tasks": by_blocks.in_flight_across(16, 0.05, 4.0),
        "map over two tasks, unit 32": by_blocks.in_flight_across(32, 1.0, 6.0),
    },
)

UNIT = _of(
    "shorter-than-unit",
    {
        f"unit of {unit}{', not reported' * (not reported)}": by_units.below_unit(
            unit, reported=reported, least=unit // 8
        )
        for unit in (1_024, 1_568, 2_560, 3_136, 4_096)
        for reported in (True, False)
    },
)

LAST = _of(
    "last-token",
    {
        f"{unit}, {'asked again later' if between else 'asked twice'}": by_units.last_token(
            unit, between=between
        )
        for unit in (4, 20, 56, 96, 112)
        for between in (False, True)
    },
)

DRAFT = _of(
    "draft-drop",
    {
        f"blocks of {unit}, {'reported' if reported else 'silent'}": by_units.draft(
            unit, reported=reported
        )
        for unit in (20, 40, 56, 80, 160)
        for reported in (True, False)
    },
)

FIRST = [
    Variant("first-call", f"{num} other sessions, number {number}", by_blocks.first_of_all(num))
    for number in (1, 2, 3)
    for num in (0, 1, 2, 3)
]

MINIMUM = _of(
    "below-minimum",
    {
        f"{name}, number {number}": by_provider.below_minimum(name)
        for name in (
            "anthropic/claude-haiku-5-5",
            "anthropic/claude-sonnet-5-5",
            "google/gemini-4-argon",
            "google/gemini-2.5-flash",
            "openai/gpt-6.2-sol",
            "openai/gpt-5.4-mini",
        )
        for number in (1, 2)
    },
)

EXPIRED = _of(
    "ttl-expired",
    {
        f"{name}, {gap_s / 60:,.0f} minutes": by_provider.expired(name, gap_s)
        for name, gap_s in (
            ("anthropic/claude-sonnet-5-5", 420.0),
            ("anthropic/claude-opus-5-5", 2_700.0),
            ("anthropic/claude-fable-5-1", 50_400.0),
            ("anthropic/claude-sonnet-5-5+1h", 4_500.0),
            ("anthropic/claude-opus-5-5+1h", 28_800.0),
            ("openai/gpt-5.4-mini", 1_200.0),
            ("openai/gpt-6.2-sol", 2_100.0),
            ("openai/gpt-6.2-astra", 14_400.0),
            ("google/gemini-3.8-flash", 5_400.0),
            ("mistral/mistral-large-4", 660.0),
            ("deepseek/deepseek-v4-pro", 36_000.0),
        )
    },
)

LOOKBACK = _of(
    "lookback-exceeded",
    {
        f"{name}: {rounds} times {width}{', system marked' * head}": by_provider.lookback(
            f"anthropic/claude-{name}", rounds, width, mark_head=head
        )
        for name, rounds, width, head in (
            *(("sonnet-5-5", 12, 2, False), ("sonnet-5-5", 16, 1, False)),
            *(("sonnet-5-5", 6, 5, False), ("sonnet-5-5", 1, 36, False)),
            *(("opus-5-5", 14, 1, False), ("opus-5-5", 19, 1, True), ("opus-5-5", 9, 4, True)),
            *(("fable-5-1", 24, 1, False), ("fable-5-1", 13, 3, False), ("fable-5-1", 2, 18, True)),
        )
    },
)

MOVED = _of(
    "breakpoint-moved",
    {
        f"{name}, {first} then {later}": by_provider.mark_moved(
            f"anthropic/claude-{name}", first, later
        )
        for name in ("sonnet-5-5", "opus-5-5+1h")
        for first, later in (
            *(((-2,), (3,)), ((-3,), (2,)), ((-4,), (0,)), ((-2, -4), (1,)), ((-2,), (0, 2))),
        )
    },
)

SILENT = _of(
    "not-reported",
    {
        f"{name}, {'never' if both else 'the second time'}": by_provider.not_reported(
            facts, before_too=both, unit=unit
        )
        for name, unit, facts in (
            ("unit 8", 8, {}),
            ("unit 128", 128, {"model": "glm-4.7"}),
            ("one desk", 16, DESK),
            ("kwargs", 16, {"options": {"parallel_tool_calls": False}}),
            ("hosted", 16, {"provider": "fireworks", "model": "coder-32b"}),
        )
        for both in (True, False)
    },
)

VARIANTS = [
    *(*EVICTION, *SALT, *REPLICA, *IN_FLIGHT, *UNIT, *LAST, *DRAFT, *FIRST),
    *(*MINIMUM, *EXPIRED, *LOOKBACK, *MOVED, *SILENT),
]
