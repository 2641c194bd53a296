"""The time to first token in FLOPs and bytes, from fitted steps and a device's published peaks."""

from dataclasses import dataclass

from duramen.experiments.prices.own_gpu import packaged_gpus
from duramen.serving.kv.arch import Architecture
from duramen.serving.kv.step_time import LinearStepTime
from duramen.serving.kv.work import Ttft, attended_pairs, prefill_work

GPUS = {  # as the driver names them, and as prices/own_gpus.yaml does
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H200": "h200-sxm",
    "NVIDIA L4": "l4",
}
NUM_TOKENS = 4_096  # of the prompt whose work is divided by its tokens and pairs


@dataclass(frozen=True)
class Peaks:
    """Dense, of one GPU."""

    flops_per_s: float
    bytes_per_s: float

    def of(self, num_gpus: int) -> "Peaks":
        return Peaks(num_gpus * self.flops_per_s, num_gpus * self.bytes_per_s)


def peaks_of(device: str) -> Peaks | None:
    """Of `device` as the driver names it; None where they are not known."""
    gpu = GPUS.get(device)
    for name, model in packaged_gpus().items():
        if name.partition("/")[0] == gpu:
            return Peaks(model.flops_per_s, model.bytes_per_s)
    return None


def ttft_of(
    step: LinearStepTime, call_fixed_s: float, arch: Architecture, peaks: Peaks
) -> Ttft | None:
    """None where a price per token or pair is 0, or beyond the peak: then the model does not hold;
    and where nobody knows what the weights take.

    What a step takes beyond reading the weights counts as fixed.
    """
    work = prefill_work(arch, NUM_TOKENS)
    if work.weight_bytes is None or not step.per_token_s or not step.per_pair_s:
        return None
    linear = work.linear_flops / NUM_TOKENS / (step.per_token_s * peaks.flops_per_s)
    pairs = attended_pairs(NUM_TOKENS, 0)
    attention = work.attention_flops / pairs / (step.per_pair_s * peaks.flops_per_s)
    if max(linear, attention) > 1:
        return None
    step_s = step.fixed_s + step.per_sequence_s
    rest_s = max(step_s - work.weight_bytes / peaks.bytes_per_s, 0.0)
    return Ttft(call_fixed_s + rest_s, peaks.flops_per_s, linear, attention, peaks.bytes_per_s)
