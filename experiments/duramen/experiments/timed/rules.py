"""The scheduler's rules of an engine whose step times a profile has."""

from typing import Any

from duramen.layout.errors import DuramenError
from duramen.serving.kv.batching.rules import Policy, Rules
from duramen.serving.timing_profile import Flag, TimingProfile

NEEDED: dict[str, type] = {
    "max_num_batched_tokens": int,
    "max_num_seqs": int,
    "async_scheduling": bool,
}
OPTIONAL: dict[str, type] = {
    "long_prefill_token_threshold": int,
    "scheduler_reserve_full_isl": bool,
    "watermark": float,
}


def rules_of(profile: TimingProfile, block_size: int, num_blocks: int | None) -> Rules:
    """As the profile's flags say; a flag that it lacks has vLLM's default. `num_blocks`: see Rules.

    Raises DuramenError for a flag whose default depends on the machine, and for odd values.
    """
    for name in NEEDED:
        if name not in profile.flags:
            raise DuramenError(f"the timing profile's flags lack {name}: say what the engine had")
    given: dict[str, Any] = {
        name: _checked(name, profile.flags[name], to)
        for name, to in (NEEDED | OPTIONAL).items()
        if name in profile.flags
    }
    policy = profile.flags.get("scheduling_policy", Policy.FCFS.value)
    if policy not in [each.value for each in Policy]:
        raise DuramenError(f"the timing profile's scheduling_policy is unknown: {policy!r}")
    return Rules(block_size, num_blocks, policy=Policy(policy), **given)


def _checked(name: str, value: Flag, to: type) -> Flag:
    fits = type(value) is to or (to is float and type(value) is int)
    if not fits:
        raise DuramenError(f"the timing profile's {name} must be {to.__name__}, not {value!r}")
    return value
