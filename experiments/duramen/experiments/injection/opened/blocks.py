"""Breaks by blocks and by providers' rules, of the half that was scored on, and then opened."""

from typing import Any

from duramen.experiments.injection import by_blocks, by_provider, by_units
from duramen.experiments.injection.by_blocks import evicted, nothing, other_facts, share
from duramen.experiments.injection.cases import Make, Variant, variants_of

ALIKE: dict[str, Any] = {"salt": "org-17", "model": "mistral-small", "replica": "pod-a"}
EVICTION = variants_of(
    "eviction",
    {
        "nothing left, unit 8": evicted(8, nothing),
        "nothing left, unit 48": evicted(48, nothing),
        "a third left": evicted(16, share(0.33)),
        "four fifths left": evicted(16, share(0.8)),
        "a quarter left, unit 32": evicted(32, share(0.25)),
        "a twentieth left": evicted(8, share(0.05)),
        "unit 256": evicted(256, nothing),
        "all facts alike": evicted(16, share(0.6), facts=ALIKE),
        "options alike": evicted(16, nothing, facts={"options": {"tool_choice": "auto"}}),
        "small pool, three others": by_blocks.pool_too_small(16, 3, room=1.15),
        "small pool, unit 32": by_blocks.pool_too_small(32, 2, room=1.05),
        "small pool, six others": by_blocks.pool_too_small(16, 6, room=1.5),
    },
)


def _changed(
    name: str, before: dict[str, Any], after: dict[str, Any], **more: Any
) -> tuple[str, Make]:
    return name, other_facts("salt-or-model-changed", before, after, **more)


SALT = variants_of(
    "salt-or-model-changed",
    dict(
        [
            _changed("by user", {"salt": "u-1001"}, {"salt": "u-1002"}),
            _changed("by day", {"salt": "2026-03-01"}, {"salt": "2026-03-02"}),
            _changed("lost on the way", {"salt": "s", "model": "m"}, {"model": "m"}),
            _changed("first given", {"model": "m"}, {"salt": "s", "model": "m"}, unit=32),
            _changed("dated model", {"model": "gpt-x-0301"}, {"model": "gpt-x-0613"}),
            _changed("smaller model", {"model": "coder-70b"}, {"model": "coder-7b"}),
            _changed("adapter taken off", {"model": "base/tone"}, {"model": "base"}, unit=64),
            _changed("revision", {"model": "m@a1b2c3"}, {"model": "m@d4e5f6"}),
            _changed("both", {"salt": "a", "model": "m1"}, {"salt": "b", "model": "m2"}, unit=8),
            _changed("nothing reported", {"model": "m1"}, {"model": "m2"}, reported=False),
        ]
    ),
)

REPLICA = variants_of(
    "other-replica",
    {
        f"{first} to {later}, unit {unit}": other_facts(
            "other-replica", {"replica": first, **more}, {"replica": later, **more}, unit=unit
        )
        for first, later, unit, more in (
            ("engine-core-0", "engine-core-1", 16, {}),
            ("dp0", "dp3", 16, {"model": "qwen3-30b"}),
            ("192.168.7.21", "192.168.7.22", 32, {}),
            ("llm-blue", "llm-green", 16, {}),
            ("llm-blue-5d8f", "llm-blue-77c1", 64, {}),
            ("https://one.internal/v1", "https://two.internal/v1", 8, {}),
            ("a", "b", 48, {"salt": "z"}),
            ("worker:1", "worker:2", 16, {"salt": "z", "model": "m"}),
            ("fra", "sin", 16, {}),
            ("7", "11", 256, {}),
        )
    },
)

IN_FLIGHT = variants_of(
    "in-flight",
    {
        "same moment, short": by_blocks.in_flight(8, (0.0, 0.0), 0.8),
        "just before it ends": by_blocks.in_flight(16, (0.0, 4.9), 5.0),
        "late in the session": by_blocks.in_flight(16, (300.0, 300.4), 2.0),
        "unit 128": by_blocks.in_flight(128, (0.0, 1.0), 7.5),
        "four at once": by_blocks.in_flight(16, (1.0, 1.0, 1.0, 1.0), 12.0),
        "three, staggered": by_blocks.in_flight(32, (0.0, 2.0, 3.5), 30.0),
        "most of it there": by_blocks.in_flight(16, (0.0, 3.0), 4.0, share(0.8)),
        "a third of it there": by_blocks.in_flight(16, (0.0, 1.5), 4.0, share(0.34)),
        "sibling session": by_blocks.in_flight_across(16, 0.2, 3.0),
        "sibling session, unit 64": by_blocks.in_flight_across(64, 0.0, 8.0),
    },
)

UNIT = variants_of(
    "shorter-than-unit",
    {
        f"unit {unit}{', nothing reported' * (not reported)}": by_units.below_unit(
            unit, reported=reported, least=unit // 6
        )
        for unit in (1056, 2112, 3168, 5280, 6000)
        for reported in (True, False)
    },
)

LAST = variants_of(
    "last-token",
    {
        f"{unit} a unit, {'regenerated' if between else 'repeated'}": by_units.last_token(
            unit, between=between
        )
        for unit in (12, 24, 40, 80, 128)
        for between in (False, True)
    },
)

DRAFT = variants_of(
    "draft-drop",
    {
        f"{unit} a unit, {'told' if reported else 'not told'}": by_units.draft(
            unit, reported=reported
        )
        for unit in (12, 24, 48, 96, 256)
        for reported in (True, False)
    },
)

FIRST = [
    Variant("first-call", f"{num} before it, take {take}", by_blocks.first_of_all(num))
    for take in (1, 2, 3, 4)
    for num in (0, 2, 3)
]

MINIMUM = variants_of(
    "below-minimum",
    {
        f"{name}, take {take}": by_provider.below_minimum(name)
        for name in (
            "anthropic/claude-sonnet-4-6+1h",
            "anthropic/claude-haiku-4-5+1h",
            "anthropic/claude-opus-4-8",
            "openai/gpt-5.4",
            "openai/gpt-6.1-terra",
        )
        for take in (1, 2)
    },
)

EXPIRED = variants_of(
    "ttl-expired",
    {
        f"{name} after {gap_s:,.0f} s": by_provider.expired(name, gap_s)
        for name, gap_s in (
            ("anthropic/claude-opus-4-8", 305.0),
            ("anthropic/claude-opus-4-8", 7_200.0),
            ("anthropic/claude-sonnet-4-6", 600.0),
            ("anthropic/claude-haiku-4-5+1h", 5_400.0),
            ("anthropic/claude-opus-4-8+1h", 90_000.0),
            ("openai/gpt-5.4+in_memory", 1_500.0),
            ("openai/gpt-5.4+in_memory", 43_000.0),
            ("openai/gpt-5.4", 100_000.0),
            ("openai/gpt-6.1-terra", 2_400.0),
            ("openai/gpt-6.1-terra", 10_000.0),
        )
    },
)

LOOKBACK = variants_of(
    "lookback-exceeded",
    {
        f"{width} calls, {rounds} times{', head marked' * head}": by_provider.lookback(
            "anthropic/claude-opus-4-8", rounds, width, mark_head=head
        )
        for rounds, width, head in (
            *((11, 2, False), (13, 1, False), (17, 1, False), (22, 2, False), (35, 1, False)),
            *((13, 1, True), (18, 2, True), (28, 1, True), (16, 4, False), (1, 30, False)),
        )
    },
)

MOVED = variants_of(
    "breakpoint-moved",
    {
        f"{first} to {later}, {name}": by_provider.mark_moved(name, first, later)
        for name in ("anthropic/claude-sonnet-4-6+1h", "anthropic/claude-opus-4-8")
        for first, later in (
            *(((-3,), (0,)), ((3,), (0,)), ((-2,), (2,)), ((-2, 3), (0,)), ((3,), (1, 2))),
        )
    },
)

SILENT = variants_of(
    "not-reported",
    {
        f"{name}, {'in both' if both else 'in the later one'}": by_provider.not_reported(
            facts, before_too=both, unit=unit
        )
        for name, unit, facts in (
            ("unit 32", 32, {}),
            ("unit 64", 64, {"replica": "r"}),
            ("salt and model", 16, {"salt": "s", "model": "m"}),
            ("options", 16, {"options": {"tool_choice": "auto"}}),
            ("provider", 16, {"provider": "together", "model": "m"}),
        )
        for both in (False, True)
    },
)

VARIANTS = [
    *(*EVICTION, *SALT, *REPLICA, *IN_FLIGHT, *UNIT, *LAST, *DRAFT, *FIRST),
    *(*MINIMUM, *EXPIRED, *LOOKBACK, *MOVED, *SILENT),
]
