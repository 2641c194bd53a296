"""The flags that decide how a vLLM server batches, as it says itself.

`/server_info` is there with VLLM_SERVER_DEV_MODE=1 alone (vLLM 0.32: entrypoints/serve/dev).
"""

from collections.abc import Mapping
from typing import Any

from duramen.layout.errors import RequestError
from duramen.serving.timing_profile import Flag
from duramen.serving.vllm.http import EngineHttp

PATH = "/server_info?config_format=json"
NAMES = {  # in vLLM's configuration, and of the flag that sets it
    "scheduler_config": {
        "max_num_batched_tokens": "max_num_batched_tokens",
        "max_num_seqs": "max_num_seqs",
        "long_prefill_token_threshold": "long_prefill_token_threshold",
        "policy": "scheduling_policy",
        "async_scheduling": "async_scheduling",
        "scheduler_reserve_full_isl": "scheduler_reserve_full_isl",
        "watermark": "watermark",
    },
    "cache_config": {"cache_dtype": "kv_cache_dtype"},
    "parallel_config": {"tensor_parallel_size": "tensor_parallel_size"},
}


async def read_flags(http: EngineHttp) -> dict[str, Flag]:
    """By the flags' names; empty where the server does not say. Raises EngineError."""
    try:
        said = await http.get_json(PATH)
    except RequestError:
        return {}
    config: Mapping[str, Any] = said["vllm_config"]
    return {
        flag: config[part][name]
        for part, names in NAMES.items()
        for name, flag in names.items()
        if isinstance(config.get(part, {}).get(name), Flag)
    }
