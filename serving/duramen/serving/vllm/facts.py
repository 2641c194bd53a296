"""What a running vLLM server says about itself, over HTTP and in its model's files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from duramen.layout.errors import EngineError, RequestError
from duramen.serving.vllm.http import EngineHttp
from duramen.serving.vllm.version import check_version


@dataclass(frozen=True)
class Facts:
    """`unit_tokens`: match unit. `dev_mode`: whether vLLM serves /reset_prefix_cache.
    `kv_dtype`: as --kv-cache-dtype has it."""

    version: str
    model: str
    max_model_len: int
    block_size: int
    unit_tokens: int
    num_kv_blocks: int | None
    dev_mode: bool
    kv_dtype: str = "auto"


async def read_facts(http: EngineHttp, model: str | None) -> Facts:
    """Ask a server about `model`, None = the first that it serves.

    Raises EngineError if it is too old, does not serve it, or does not say its block size.
    """
    version = await read_version(http)
    check_version(version)
    return await facts_of(http, model, version)


async def read_version(http: EngineHttp) -> str:
    """Whatever it is. Raises EngineError where nothing names one."""
    version = await http.get_json("/version")
    if not isinstance(version, dict) or "version" not in version:
        raise EngineError(f"{http.url}/version names no version: is it vLLM's address?")
    return str(version["version"])


async def facts_of(http: EngineHttp, model: str | None, version: str) -> Facts:
    """As read_facts, of a server of any version."""
    served = await _served_model(http, model)
    labels = await _cache_labels(http)
    block_size = _number(labels, "block_size")
    if block_size is None:
        raise EngineError(f"{http.url} does not say its block size in /metrics: is it vLLM?")
    unit = _number(labels, "prefix_match_unit") or _number(labels, "cache_hit_alignment_tokens")
    return Facts(
        version=version,
        model=served["id"],
        max_model_len=served["max_model_len"],
        block_size=block_size,
        unit_tokens=unit or block_size,
        num_kv_blocks=_number(labels, "num_gpu_blocks"),
        dev_mode=await _has_dev_mode(http),
        kv_dtype=labels.get("cache_dtype", "auto"),
    )


def eos_token_ids(model_dir: Path) -> tuple[int, ...]:
    """From generation_config.json, else config.json; empty if neither names one."""
    for name in ("generation_config.json", "config.json"):
        file = model_dir / name
        if file.is_file():
            eos = msgspec.json.decode(file.read_bytes()).get("eos_token_id")
            if eos is not None:
                return tuple(eos) if isinstance(eos, list) else (eos,)
    return ()


async def _served_model(http: EngineHttp, wanted: str | None) -> Mapping[str, Any]:
    models: list[Mapping[str, Any]] = (await http.get_json("/v1/models"))["data"]
    for model in models:
        if wanted in (None, model["id"]):
            return model
    names = ", ".join(model["id"] for model in models)
    raise EngineError(f"{http.url} does not serve {wanted!r}; it serves {names}")


async def _cache_labels(http: EngineHttp) -> dict[str, str]:
    """The labels of vLLM's cache_config_info metric; empty if it is not there."""
    metrics = (await http.get("/metrics")).decode()
    line = re.search(r"^vllm:cache_config_info\{(.*)\}", metrics, re.MULTILINE)
    return dict(re.findall(r'(\w+)="([^"]*)"', line[1])) if line else {}


def _number(labels: Mapping[str, str], name: str) -> int | None:
    value = labels.get(name, "")
    return int(value) if value.isdigit() else None


async def _has_dev_mode(http: EngineHttp) -> bool:
    try:
        await http.get("/is_sleeping")
    except RequestError:
        return False
    return True
