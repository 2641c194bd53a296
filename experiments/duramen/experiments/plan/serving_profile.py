"""The pick as a profile that `duramen serve --profile FILE` reads."""

import re
from pathlib import Path
from typing import Any

import yaml

from duramen.experiments.plan.trial import Trial
from duramen.serving.fit import GIB
from duramen.serving.kv.footprint import KvDtype
from duramen.serving.profile_file import profile_names
from duramen.serving.timing_profile import TimingProfile

RUNNING_PER_SEQUENCE = 2  # vLLM then always has a waiting call to choose from


def base_of(profile: TimingProfile) -> str | None:
    """The serving profile of ours for the device that was timed; None if there is none."""
    if profile.engine.startswith("vllm-cpu"):
        return "cpu"
    names = [name for name in profile_names() if name != "cpu"]
    return next((n for n in names if re.search(rf"\b{n}\b", profile.device, re.IGNORECASE)), None)


def serving_profile(
    pick: Trial, why: str, timing: TimingProfile, timing_file: Path, memory_bytes: int | None
) -> str:
    """YAML. `memory_bytes`: for the cache, None leaves it to the base profile or to vLLM, as parts
    of a GiB do."""
    setting = pick.setting
    fields: dict[str, Any] = {"note": f"duramen plan: {why}"}
    if (base := base_of(timing)) is not None:
        fields["based_on"] = base
    engine: dict[str, Any] = {
        "block_size": setting.block_size,
        "max_num_seqs": setting.max_num_seqs,
        "max_num_batched_tokens": setting.max_num_batched_tokens,
        "long_prefill_token_threshold": setting.long_prefill_token_threshold,
    }
    if memory_bytes is not None and memory_bytes % GIB == 0:
        engine["kv_cache_gib"] = memory_bytes // GIB
    num_ranks = timing.flags.get("tensor_parallel_size")
    if num_ranks is not None:
        engine["tensor_parallel_size"] = num_ranks
    if setting.kv_dtype is not KvDtype.AUTO:
        engine["extra_args"] = ["--kv-cache-dtype", setting.kv_dtype.value]
    fields["engine"] = engine
    most_running = RUNNING_PER_SEQUENCE * setting.max_num_seqs
    fields["limits"] = {"max_running": most_running, "tenant_max_running": most_running}
    if setting.itl_target_ms is not None:
        fields["itl"] = {
            "target_ms": setting.itl_target_ms,
            "timing": str(timing_file.resolve()),
        }
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=100)
