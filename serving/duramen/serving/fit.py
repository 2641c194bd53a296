"""Does the model fit the device, and how many KV tokens are left: told before vLLM is started.

The sum is plain: memory x utilization = weights + overhead + KV cache, on each GPU. The overhead is
the profile's estimate; vLLM measures its own when it starts.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from duramen.kernels.device import Gpu, find_gpus
from duramen.layout.errors import ModelError
from duramen.layout.tokenizer_files import read_json
from duramen.serving.kv.arch import Architecture
from duramen.serving.kv.footprint import Footprint
from duramen.serving.kv.pages import lay_out
from duramen.serving.profiles import Profile
from duramen.serving.vllm.launch import CPU_KV_CACHE_GIB, default_block_size
from duramen.serving.vllm.version import Build
from duramen.serving.weights import weight_bytes

GIB = 2**30
DEFAULT_UTILIZATION = 0.92  # vLLM 0.32, config/cache.py
CONTEXT_KEYS = (  # vLLM takes the smallest, transformers_utils/model_arch_config_convertor.py
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
CHANGE_MEMORY = (
    "--quantization",
    "-q",
    "--dtype",
    "--kv-cache-dtype",
    "--cpu-offload-gb",
    "--pipeline-parallel-size",
    "-pp",
    "--decode-context-parallel-size",
    "--hf-overrides",
    "--speculative-config",
    "--num-gpu-blocks-override",
)


@dataclass(frozen=True)
class Fit:
    """`memory_bytes`: of each GPU, or of the machine; `weight_bytes` and `kv_bytes_per_token` are
    those of each GPU too. None: not known. `kv_tokens`: in sequences of `max_model_len`, which is
    what vLLM is to be started with.
    `problems`: why it will not do, each with what to change; `notes`: what else to know."""

    memory_bytes: int
    usable_bytes: int  # vLLM's share of it
    weight_bytes: int
    overhead_bytes: int
    kv_bytes_per_token: int | None
    kv_tokens: int | None
    max_model_len: int | None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def require(self) -> None:
        """Raise ModelError with all problems in one line, if there are any."""
        if self.problems:
            raise ModelError("; ".join(self.problems))

    @property
    def summary_of_weights(self) -> str:
        beside = (
            f" and about {_gib(self.overhead_bytes)} beside them" if self.overhead_bytes else ""
        )
        where = _gib(self.memory_bytes)
        if self.usable_bytes < self.memory_bytes:
            where = f"{self.usable_bytes / GIB:.1f} of {where}"
        return f"weights of {_gib(self.weight_bytes)}{beside}, in {where}"

    @property
    def summary(self) -> str:
        """One line."""
        if self.kv_tokens is None:
            return f"{self.summary_of_weights}; KV tokens: not known for this kind of attention"
        left = f"{self.summary_of_weights}; about {self.kv_tokens:,} KV tokens left"
        if self.max_model_len is None:
            return left
        whole = self.kv_tokens / self.max_model_len
        return f"{left}, {whole:.1f} whole contexts of {self.max_model_len:,}"


def check_fit(profile: Profile, model_dir: Path, gpus: Sequence[Gpu] | None = None) -> Fit:
    """`gpus`: those of the machine; None asks it. Raises ModelError where the model's files are
    not all there or it cannot be split so, TokenizerError where config.json is not to be read."""
    config = read_json(model_dir / "config.json")
    num_gpus = profile.engine.tensor_parallel_size
    gpus = (find_gpus() or ()) if gpus is None else gpus
    memory = _memory_bytes(profile, gpus)
    weights = -(-weight_bytes(model_dir) // num_gpus)
    overhead = int(profile.device.overhead_gib * GIB) if profile.device else 0
    usable = _usable_bytes(profile, memory)
    left = usable - weights - overhead
    pool = _pool_bytes(profile, left)
    footprint = _footprint(config, num_gpus)
    max_model_len = _shorter(profile.engine.max_model_len, context_tokens(config))
    fit = Fit(
        memory_bytes=memory,
        usable_bytes=usable,
        weight_bytes=weights,
        overhead_bytes=overhead,
        kv_bytes_per_token=None,
        kv_tokens=None,
        max_model_len=max_model_len,
    )
    if footprint is not None:
        kv_tokens = _pool_tokens(pool, footprint, max_model_len, profile)
        fit = replace(fit, kv_bytes_per_token=footprint.bytes_per_token, kv_tokens=kv_tokens)
    return replace(
        fit,
        problems=tuple(_problems(fit, profile, gpus, left, pool)),
        notes=tuple(_notes(fit, profile, gpus, config)),
    )


def context_tokens(config: Mapping[str, Any]) -> int | None:
    """The longest context that vLLM takes for this config.json, tokens; None if it does not say.

    Linear and dynamic RoPE scaling, which would stretch it, are left out.
    """
    text = config.get("text_config")
    config = text if isinstance(text, dict) else config
    own = config.get("model_max_length")  # goes before the others (Cohere's models)
    found = [own] if own else [config.get(key) for key in CONTEXT_KEYS]
    known = [n for n in found if isinstance(n, int) and not isinstance(n, bool) and n > 0]
    return min(known, default=None)


def _memory_bytes(profile: Profile, gpus: Sequence[Gpu]) -> int:
    """Of the smallest GPU that is used, else of the machine."""
    if profile.device is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    used = [gpu.memory_bytes for gpu in gpus[: profile.engine.tensor_parallel_size]]
    return min(used, default=int(profile.device.memory_gib * GIB))


def _usable_bytes(profile: Profile, memory: int) -> int:
    if profile.device is None or profile.engine.kv_cache_gib is not None:
        return memory
    return int(memory * (profile.engine.gpu_memory_utilization or DEFAULT_UTILIZATION))


def _pool_bytes(profile: Profile, left: int) -> int:
    gib = profile.engine.kv_cache_gib
    if gib is None and profile.device is None:
        gib = CPU_KV_CACHE_GIB
    return left if gib is None else gib * GIB


def _footprint(config: Mapping[str, Any], num_gpus: int) -> Footprint | None:
    """None where the config is not understood."""
    try:
        arch = Architecture.from_config(config)
    except ModelError:
        return None
    return Footprint.of(arch, num_gpus)


def _pool_tokens(
    pool: int, footprint: Footprint, max_model_len: int | None, profile: Profile
) -> int:
    build: Build = "cpu" if profile.device is None else "gpu"
    pages = lay_out(footprint, profile.engine.block_size or default_block_size(build))
    return pages.num_tokens(pool, max_model_len or pages.block_tokens)


def _problems(
    fit: Fit, profile: Profile, gpus: Sequence[Gpu], left: int, pool: int
) -> Iterator[str]:
    engine = profile.engine
    if gpus and len(gpus) < engine.tensor_parallel_size and profile.device is not None:
        yield (
            f"engine.tensor_parallel_size is {engine.tensor_parallel_size}, but this machine has "
            f"{len(gpus)} GPU{'s' if len(gpus) > 1 else ''}: lower it"
        )
    if _changes_memory(profile):
        return
    if left <= 0 or fit.kv_tokens == 0 or left < min(pool, GIB):
        yield f"the model does not fit: {fit.summary_of_weights}: {_more_room(profile)}"
    elif pool > left:
        yield (
            f"the KV cache does not fit: {fit.summary_of_weights} leave {_gib(left)}: set "
            f"engine.kv_cache_gib to at most {left // GIB}, not {pool // GIB}"
        )
    elif fit.kv_tokens is not None and fit.kv_tokens < (fit.max_model_len or 0):
        yield (
            f"the context of {fit.max_model_len:,} tokens does not fit: {fit.summary_of_weights} "
            f"leave {fit.kv_tokens:,} KV tokens: set engine.max_model_len to at most that, or "
            f"{_more_room(profile)}"
        )
    budget = engine.max_num_batched_tokens
    if engine.enable_chunked_prefill is False and budget and budget < (fit.max_model_len or 0):
        yield (
            f"engine.max_num_batched_tokens {budget} is below the context of {fit.max_model_len} "
            "tokens: raise it, or leave engine.enable_chunked_prefill on"
        )


def _notes(
    fit: Fit, profile: Profile, gpus: Sequence[Gpu], config: Mapping[str, Any]
) -> Iterator[str]:
    if flags := _changes_memory(profile):
        yield f"whether it fits is not checked: {', '.join(flags)} changes what is needed"
    if profile.device is None:
        return
    if not gpus:
        yield f"no GPU can be seen here: its memory is taken to be {_gib(fit.memory_bytes)}"
    if not any("expert" in key for key in config):  # those of a token are not all of the weights
        per_s = profile.device.bandwidth_gb_per_s * 1e9 / max(1, fit.weight_bytes)
        yield f"one stream decodes at most {per_s:,.0f} tokens/s: each reads all weights"


def _changes_memory(profile: Profile) -> list[str]:
    return [flag for flag in profile.engine.extra_flags if flag in CHANGE_MEMORY]


def _more_room(profile: Profile) -> str:
    if profile.device is None:
        return "take a smaller model or a larger machine"
    return "share it between GPUs (engine.tensor_parallel_size) or take a quantized model"


def _shorter(first: int | None, second: int | None) -> int | None:
    return min((n for n in (first, second) if n is not None), default=None)


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.1f} GiB"
