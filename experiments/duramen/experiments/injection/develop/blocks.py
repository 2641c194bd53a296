"""Breaks by blocks and by providers' rules, of the half to develop on."""

from duramen.experiments.injection import by_blocks, by_provider, by_units
from duramen.experiments.injection.by_blocks import evicted, nothing, other_facts, share
from duramen.experiments.injection.cases import Variant, variants_of

EVICTION = variants_of(
    "eviction",
    {
        "all of it, unit 16": evicted(16, nothing),
        "all of it, unit 32": evicted(32, nothing),
        "half of it": evicted(16, share(0.5)),
        "a tenth left": evicted(16, share(0.1)),
        "nine tenths left": evicted(16, share(0.9)),
        "unit 128": evicted(128, share(0.5)),
        "one salt and model": evicted(16, nothing, facts={"salt": "team-a", "model": "m-8b"}),
        "one replica": evicted(16, share(0.3), facts={"replica": "10.0.0.7:8000"}),
        "small pool, two others": by_blocks.pool_too_small(16, 2, room=1.1),
        "small pool, four others": by_blocks.pool_too_small(16, 4, room=1.3),
        "small pool, unit 64": by_blocks.pool_too_small(64, 3, room=1.2),
    },
)

SALT: list[Variant] = variants_of(
    "salt-or-model-changed",
    {
        "another salt": other_facts(
            "salt-or-model-changed", {"salt": "tenant-a"}, {"salt": "tenant-b"}
        ),
        "salt added": other_facts("salt-or-model-changed", {}, {"salt": "tenant-a"}),
        "salt left out": other_facts("salt-or-model-changed", {"salt": "tenant-a"}, {}),
        "salt new in each call": other_facts(
            "salt-or-model-changed", {"salt": "9f2c"}, {"salt": "b71e"}, unit=32
        ),
        "another model": other_facts(
            "salt-or-model-changed", {"model": "qwen3-8b"}, {"model": "qwen3-8b-v2"}
        ),
        "adapter added": other_facts(
            "salt-or-model-changed", {"model": "base"}, {"model": "base:support-lora"}
        ),
        "adapter changed": other_facts(
            "salt-or-model-changed", {"model": "b:lora-1"}, {"model": "b:lora-2"}, unit=64
        ),
        "quantised": other_facts(
            "salt-or-model-changed", {"model": "llama-3.1-8b"}, {"model": "llama-3.1-8b-fp8"}
        ),
        "another salt on one replica": other_facts(
            "salt-or-model-changed",
            {"salt": "x", "replica": "n1"},
            {"salt": "y", "replica": "n1"},
        ),
        "another salt, nothing reported": other_facts(
            "salt-or-model-changed", {"salt": "x"}, {"salt": "y"}, reported=False
        ),
    },
)

REPLICA = variants_of(
    "other-replica",
    {
        f"{first} then {later}, unit {unit}": other_facts(
            "other-replica", {"replica": first, **more}, {"replica": later, **more}, unit=unit
        )
        for first, later, unit, more in (
            ("10.0.0.3:8000", "10.0.0.4:8000", 16, {}),
            ("10.0.0.3:8000", "10.0.0.3:8001", 16, {}),
            ("gpu-node-1", "gpu-node-2", 16, {}),
            ("gpu-node-1", "gpu-node-2", 32, {"salt": "t"}),
            ("vllm-0", "vllm-1", 16, {"model": "qwen3-8b"}),
            ("vllm-0", "vllm-7", 64, {}),
            ("http://a.example:9000", "http://b.example:9000", 16, {}),
            ("us-east-1a", "us-east-1b", 16, {}),
            ("0", "1", 16, {}),
            ("eu", "us", 128, {"salt": "t", "model": "m"}),
        )
    },
)

IN_FLIGHT = variants_of(
    "in-flight",
    {
        "at once": by_blocks.in_flight(16, (0.0, 0.0), 6.0),
        "10 ms later": by_blocks.in_flight(16, (0.0, 0.01), 3.0),
        "a second later": by_blocks.in_flight(16, (5.0, 6.0), 3.0),
        "unit 64": by_blocks.in_flight(64, (0.0, 0.2), 3.0),
        "three at once": by_blocks.in_flight(16, (0.0, 0.0, 0.0), 9.0),
        "three, one after another": by_blocks.in_flight(16, (0.0, 0.1, 0.3), 9.0),
        "half of it there": by_blocks.in_flight(16, (0.0, 0.5), 4.0, share(0.5)),
        "a little of it there": by_blocks.in_flight(32, (0.0, 0.5), 4.0, share(0.2)),
        "another session": by_blocks.in_flight_across(16, 0.0, 5.0),
        "another session, later": by_blocks.in_flight_across(32, 2.0, 5.0),
    },
)

UNIT = variants_of(
    "shorter-than-unit",
    {
        f"{unit}, {'reported' if reported else 'not reported'}": by_units.below_unit(
            unit, reported=reported
        )
        for unit in (784, 1920, 2096, 4224, 8192)
        for reported in (True, False)
    },
)

LAST = variants_of(
    "last-token",
    {
        f"unit {unit}{', a call between' * between}": by_units.last_token(unit, between=between)
        for unit in (8, 16, 32, 48, 64)
        for between in (False, True)
    },
)

DRAFT = variants_of(
    "draft-drop",
    {
        f"unit {unit}, {'reported' if reported else 'not reported'}": by_units.draft(
            unit, reported=reported
        )
        for unit in (8, 16, 32, 64, 128)
        for reported in (True, False)
    },
)

FIRST = [
    Variant("first-call", f"behind {num} others, {number}", by_blocks.first_of_all(num))
    for num in (0, 1, 2, 3)
    for number in (1, 2, 3)
]

MINIMUM = variants_of(
    "below-minimum",
    {
        f"{name}, {number}": by_provider.below_minimum(name)
        for name in (
            "anthropic/claude-sonnet-4-6",
            "anthropic/claude-haiku-4-5",
            "anthropic/claude-opus-4-8+1h",
            "openai/gpt-5.4+in_memory",
            "openai/gpt-5.5",
        )
        for number in (1, 2)
    },
)

EXPIRED = variants_of(
    "ttl-expired",
    {
        f"{name}, {gap_s:.0f} s": by_provider.expired(name, gap_s)
        for name, gap_s in (
            ("anthropic/claude-sonnet-4-6", 330.0),
            ("anthropic/claude-sonnet-4-6", 1_800.0),
            ("anthropic/claude-opus-4-8", 400.0),
            ("anthropic/claude-opus-4-8+1h", 3_700.0),
            ("anthropic/claude-sonnet-4-6+1h", 20_000.0),
            ("anthropic/claude-haiku-4-5", 86_400.0),
            ("openai/gpt-5.4+in_memory", 900.0),
            ("openai/gpt-5.4+in_memory", 5_000.0),
            ("openai/gpt-5.5", 180_000.0),
            ("openai/gpt-5.5", 400_000.0),
        )
    },
)

LOOKBACK = variants_of(
    "lookback-exceeded",
    {
        f"{rounds} rounds of {width}{', system marked' * head}": by_provider.lookback(
            "anthropic/claude-sonnet-4-6", rounds, width, mark_head=head
        )
        for rounds, width, head in (
            *((12, 1, False), (14, 2, False), (20, 1, False), (30, 1, False), (11, 3, False)),
            *((12, 1, True), (15, 2, True), (25, 1, True), (40, 1, False), (1, 24, False)),
        )
    },
)

MOVED = variants_of(
    "breakpoint-moved",
    {
        f"{name}, {first} then {later}": by_provider.mark_moved(name, first, later)
        for name in ("anthropic/claude-sonnet-4-6", "anthropic/claude-opus-4-8+1h")
        for first, later in (
            *(((-2,), (0,)), ((-2,), (1,)), ((-3,), (1,)), ((2,), (0,)), ((-2, -3), (0, 1))),
        )
    },
)

SILENT = variants_of(
    "not-reported",
    {
        f"{name}, {'both' if both else 'later'}": by_provider.not_reported(facts, before_too=both)
        for name, facts in {
            "plain": {},
            "one model": {"model": "qwen3-8b"},
            "one replica": {"replica": "vllm-0"},
            "one salt": {"salt": "t"},
            "a provider": {"provider": "vllm", "model": "m"},
        }.items()
        for both in (False, True)
    },
)

VARIANTS = [
    *(*EVICTION, *SALT, *REPLICA, *IN_FLIGHT, *UNIT, *LAST, *DRAFT, *FIRST),
    *(*MINIMUM, *EXPIRED, *LOOKBACK, *MOVED, *SILENT),
]
