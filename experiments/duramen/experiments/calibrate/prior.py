"""Timing profiles that nobody measured: a device's published peaks at assumed shares of them.

A step's weights and matrix products are added up, though a GPU does both at a time: for steps of a
few hundred tokens, where neither hides the other, that is up to twice too much.
"""

from datetime import date

from duramen.experiments.calibrate.ttft import GPUS, NUM_TOKENS
from duramen.experiments.prices.own_gpu import TimeModel, packaged_gpus
from duramen.experiments.studies.example_models import llama_3_8b
from duramen.serving.kv.arch import Architecture
from duramen.serving.kv.footprint import Footprint
from duramen.serving.kv.step_time import LinearStepTime
from duramen.serving.kv.work import Ttft, attended_pairs, prefill_work
from duramen.serving.profile_file import load_profile
from duramen.serving.timing_profile import Flag, Origin, TimingProfile

MODEL = "Llama-3-8B"
PROFILES = {"h100-sxm": "h100", "h200-sxm": "h200", "l4": "l4"}  # whose flags are taken
NOTE = (
    "not measured: from data sheets, at assumed shares of the peaks; configs/prices/own_gpus.yaml "
    "has both with their sources"
)


def priors() -> dict[str, TimingProfile]:
    """By file name, without its ending: an 8B model with grouped queries on each known GPU."""
    models = {name.partition("/")[0]: (name, model) for name, model in packaged_gpus().items()}
    devices = {gpu: device for device, gpu in GPUS.items()}
    return {
        f"{gpu}-{MODEL.lower()}": prior(
            devices[gpu],
            models[gpu][1],
            llama_3_8b(),
            date.fromisoformat(models[gpu][0].rpartition("@")[2]),
            _flags(profile),
        )
        for gpu, profile in PROFILES.items()
    }


def prior(
    device: str, gpu: TimeModel, arch: Architecture, on: date, flags: dict[str, Flag]
) -> TimingProfile:
    """For a model without windows or states."""
    flops_per_s = gpu.compute_efficiency * gpu.flops_per_s
    bytes_per_s = gpu.bandwidth_efficiency * gpu.bytes_per_s
    work = prefill_work(arch, NUM_TOKENS)
    pairs = attended_pairs(NUM_TOKENS, 0)
    assert work.weight_bytes is not None
    return TimingProfile(
        device=device,
        model=MODEL,
        engine="vllm 0.32",
        date=on,
        origin=Origin.PRIOR,
        step=LinearStepTime(
            fixed_s=work.weight_bytes / bytes_per_s,
            per_token_s=work.linear_flops / NUM_TOKENS / flops_per_s,
            per_pair_s=work.attention_flops / pairs / flops_per_s,
            per_decode_context_token_s=Footprint.of(arch).bytes_per_token / bytes_per_s,
            per_sequence_s=work.lm_head_flops / flops_per_s,
        ),
        flags=flags,
        call_fixed_s=gpu.overhead_s,
        ttft=Ttft(
            gpu.overhead_s,
            gpu.flops_per_s,
            gpu.compute_efficiency,
            gpu.compute_efficiency,
            bytes_per_s,
        ),
        conditions={"note": NOTE, "assumed": list(gpu.assumed)},
    )


def _flags(profile: str) -> dict[str, Flag]:
    engine = load_profile(profile).engine
    names = ("block_size", "max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold")
    return {name: getattr(engine, name) for name in names} | {"async_scheduling": True}
