"""Made-up traffic, times and sweeps that are small enough to simulate all of."""

from datetime import date
from itertools import count
from random import Random
from typing import Any

from duramen.experiments.plan.kv_pool import KvPool
from duramen.experiments.plan.setting import Setting, Space
from duramen.experiments.plan.traffic import PoissonTraffic
from duramen.experiments.plan.trial import Trials
from duramen.experiments.timed.call import TimedCall
from duramen.experiments.timed.slo import Slo
from duramen.serving.kv.footprint import KvDtype
from duramen.serving.kv.step_time import LinearStepTime
from duramen.serving.timing_profile import Origin, TimingProfile

BLOCK = 16
PRESENT = Setting(2048, 0, 64, BLOCK)
SLO = Slo(ttft_s=2.0, itl_s=0.4)


def profile(**changes: Any) -> TimingProfile:
    """A small CPU's steps: 20 ms, and 1 ms for each new token."""
    fields: dict[str, Any] = {
        "device": "two cores",
        "model": "tiny",
        "engine": "vllm 0.32",
        "date": date(2026, 12, 1),
        "origin": Origin.CALIBRATED,
        "step": LinearStepTime(0.02, 1e-3, 1e-8, 1e-7, 2e-3),
        "flags": {
            "max_num_batched_tokens": 2048,
            "max_num_seqs": 64,
            "async_scheduling": False,
            "block_size": BLOCK,
        },
    }
    return TimingProfile(**fields | changes)


def space(**axes: tuple[Any, ...]) -> Space:
    small: dict[str, tuple[Any, ...]] = {
        "max_num_batched_tokens": (64, 128, 256, 512, 1024, 2048),
        "long_prefill_token_threshold": (128, 512, 0),
        "max_num_seqs": (4, 16, 64),
        "block_size": (BLOCK, 2 * BLOCK),
        "kv_dtype": (KvDtype.AUTO,),
        "itl_target_ms": (None,),
    }
    return Space(small | axes, PRESENT)


def sessions(num_sessions: int, seed: int = 1) -> list[list[TimedCall]]:
    """Agents of four calls: each has all that was said before and some more."""
    draw, fresh = Random(seed), count()
    return [_session(f"s{number}", draw, fresh) for number in range(num_sessions)]


def _session(name: str, draw: Random, fresh: "count[int]") -> list[TimedCall]:
    keys: list[int] = []
    num_tokens, calls = 0, []
    for index in range(4):
        num_prompt = num_tokens + draw.randint(40, 1200)
        num_outputs = draw.randint(10, 60)
        num_tokens = num_prompt + num_outputs
        keys = [*keys, *(next(fresh) for _ in range(num_tokens // BLOCK - len(keys)))]
        calls.append(TimedCall(name, index, keys, num_prompt, num_outputs, num_outputs + 1))
    return calls


def trials(slo: Slo = SLO, pool: KvPool | None = None, **changes: Any) -> Trials:
    return Trials(profile(**changes), pool or KvPool(kv_tokens=40_000), slo, BLOCK)


def poisson(num_sessions: int = 12, rate_per_s: float = 0.25, seed: int = 1) -> PoissonTraffic:
    return PoissonTraffic(sessions(num_sessions, seed), rate_per_s)
