"""Device profiles: with which flags vLLM is started, what the device has, and the gateway's limits.

A profile is a YAML file (configs/profiles; profile_file.py reads it). What it leaves out is vLLM's
own choice, or the default in gateway/settings.py.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from duramen.kernels.device import Gpu, find_gpus
from duramen.layout.errors import DuramenError, EngineError
from duramen.serving.gateway.settings import Settings
from duramen.serving.vllm.itl_target import ItlTarget
from duramen.serving.vllm.launch import VllmConfig
from duramen.serving.vllm.version import Build, installed_build

SET_BY_US = (  # what the gateway relies on, or decides by itself
    "--model",
    "--host",
    "--port",
    "--api-key",
    "--served-model-name",
    "--chat-template",
    "--kv-events-config",
    "--enable-log-requests",
    "--enable-prefix-caching",
    "--enable-prompt-tokens-details",
)
HAS_A_KEY = {
    "-tp": "engine.tensor_parallel_size",
    "--tool-call-parser": "engine.tool_parser",
    "--enable-auto-tool-choice": "engine.tool_parser",
    "--kv-cache-memory-bytes": "engine.kv_cache_gib",
    "--scheduling-policy": "limits.scheduling",
}


@dataclass(frozen=True)
class EngineFlags:
    """vLLM's flags by their own names. None: vLLM's choice.

    `max_model_len` is the most: a model with a shorter context keeps its own. `kv_cache_gib` goes
    before `gpu_memory_utilization`. How vLLM orders its queue is `limits.scheduling`, as here.
    Raises DuramenError for values that vLLM would refuse together.
    """

    block_size: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    long_prefill_token_threshold: int | None = None
    enable_chunked_prefill: bool | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_gib: int | None = None
    tensor_parallel_size: int = 1
    tool_parser: str | None = "hermes"
    reasoning_parser: str | None = None
    extra_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        budget = self.max_num_batched_tokens
        if budget is not None and self.max_num_seqs is not None and self.max_num_seqs > budget:
            raise DuramenError(
                f"engine.max_num_seqs {self.max_num_seqs} is above "
                f"engine.max_num_batched_tokens {budget}: a step could not serve them all"
            )
        threshold = self.long_prefill_token_threshold
        if budget is not None and threshold is not None and threshold >= budget:
            raise DuramenError(
                f"engine.long_prefill_token_threshold {threshold} must stay below "
                f"engine.max_num_batched_tokens {budget}, or it leaves no room for short calls"
            )
        for flag in self.extra_flags:
            _check_extra(flag)

    @property
    def extra_flags(self) -> list[str]:
        """The names of the flags in `extra_args`, as vLLM's help spells them."""
        names = [part.partition("=")[0] for part in self.extra_args if part.startswith("-")]
        return [name.replace("_", "-") for name in names]


@dataclass(frozen=True)
class Device:
    """One GPU. `memory_gib` is used where the GPU cannot be asked; `overhead_gib`: what the driver,
    activations and CUDA graphs take beside weights and KV cache, an estimate."""

    name: str
    memory_gib: float
    overhead_gib: float
    bandwidth_gb_per_s: float


@dataclass(frozen=True)
class Profile:
    """`device` None: a CPU. `note`: what its user should know, one line. `itl` None: vLLM's own
    scheduler, with no target between tokens.

    Raises DuramenError where `itl` and another scheduler are asked for.
    """

    name: str
    note: str = ""
    engine: EngineFlags = field(default_factory=EngineFlags)
    device: Device | None = None
    settings: Settings = field(default_factory=Settings)
    itl: ItlTarget | None = None

    def __post_init__(self) -> None:
        if self.itl is not None and "--scheduler-cls" in self.engine.extra_flags:
            raise DuramenError("a target between tokens and --scheduler-cls exclude each other")


def _check_extra(flag: str) -> None:
    plain = flag.replace("--no-", "--", 1)
    keys = {f"--{key.name.replace('_', '-')}": f"engine.{key.name}" for key in fields(EngineFlags)}
    if key := (keys | HAS_A_KEY).get(plain):
        raise DuramenError(f"engine.extra_args: {flag} has a key of its own here, {key}")
    if plain in SET_BY_US:
        raise DuramenError(f"engine.extra_args: {flag} is not yours to set, Duramen relies on it")


def default_profile(gpus: Sequence[Gpu] | None, build: Build | None) -> tuple[str, str]:
    """Name of the profile for this machine, and why: what to say of the choice.

    `gpus` as `find_gpus` gives them; `build`: the vLLM that is installed, None if there is none.
    """
    if build == "cpu":
        return "cpu", "vLLM's CPU build is installed"
    if gpus is None:
        return "cpu", "the GPUs cannot be seen: pip install nvidia-ml-py"
    if not gpus:
        return "cpu", "no NVIDIA GPU here"
    for name in ("h200", "h100", "l4"):
        if re.search(rf"\b{name}\b", gpus[0].name, re.IGNORECASE):
            return name, f"this machine has {gpus[0].name}"
    return "cpu", f"there is none for {gpus[0].name}: write one and name it with --profile FILE"


def profile_here() -> tuple[str, str]:
    """`default_profile` of this machine."""
    try:
        build: Build | None = installed_build()[0]
    except EngineError:
        build = None
    return default_profile(find_gpus(), build)


def check_build(profile: Profile, build: Build) -> None:
    """Raise DuramenError where a GPU's profile would be used with vLLM's CPU build: its share of
    the device's memory would be one of the machine's."""
    if profile.device is not None and build == "cpu":
        raise DuramenError(
            f"profile {profile.name} is for {profile.device.name}, but vLLM's CPU build is "
            "installed: take --profile cpu, or pip install '.[vllm]' in a checkout on a GPU machine"
        )


def vllm_config(
    profile: Profile,
    model_dir: Path,
    *,
    max_model_len: int | None,
    chat_template: Path | None = None,
    model_name: str | None = None,
) -> VllmConfig:
    """How to start vLLM. `max_model_len`: what the model and the profile leave (fit.py)."""
    engine = profile.engine
    threshold = engine.long_prefill_token_threshold
    if threshold is not None and max_model_len is not None:
        threshold = min(threshold, max_model_len)  # vLLM refuses more
    return VllmConfig(
        model_dir,
        block_size=engine.block_size,
        max_model_len=max_model_len,
        kv_cache_gib=engine.kv_cache_gib,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        long_prefill_token_threshold=threshold,
        enable_chunked_prefill=engine.enable_chunked_prefill,
        scheduling_policy=profile.settings.limits.scheduling,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        tensor_parallel_size=engine.tensor_parallel_size,
        chat_template=chat_template,
        tool_parser=engine.tool_parser,
        reasoning_parser=engine.reasoning_parser,
        model_name=model_name,
        itl=profile.itl,
        # a line per request would fill the disk of a server that runs for months
        extra_args=("--uvicorn-log-level", "warning", *engine.extra_args),
    )
