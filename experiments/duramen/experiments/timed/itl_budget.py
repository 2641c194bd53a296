"""The target between tokens in the simulator: the choice that our scheduler makes in vLLM
(serving/vllm/scheduler.py), over the simulator's own queue."""

from collections.abc import Iterator

from duramen.experiments.timed.engine import StepBudget
from duramen.serving.kv.batching.request import Request
from duramen.serving.kv.batching.scheduler import BatchScheduler
from duramen.serving.kv.prefill_budget import Prefill, PrefillBudget
from duramen.serving.kv.step_time import LinearStepTime


def itl_budget(step_time: LinearStepTime, target_s: float, max_tokens: int) -> StepBudget:
    """For TimedEngine, whose steps take what `step_time` says: nothing of the target is kept for
    deviations. Moves requests that decode before those that are prefilled. Of those that wait it
    sees the first alone, so that at most one is admitted beside decodes in a step."""
    budget = PrefillBudget(step_time, target_s, max_tokens)
    budget.ratio.deviation = 0.0

    def choose(scheduler: BatchScheduler, now_s: float) -> int:
        scheduler.running.sort(key=_is_prefill)
        decodes = [each.num_computed for each in scheduler.running if not _is_prefill(each)]
        prefills = _prefills(scheduler, len(decodes))
        return budget.choose(decodes, prefills, now_s).num_tokens

    return choose


def _is_prefill(request: Request) -> bool:
    """More is missing than the output that was sampled last."""
    return request.num_computed < request.num_tokens + request.num_pending - 1


def _prefills(scheduler: BatchScheduler, num_decodes: int) -> Iterator[Prefill]:
    for each in scheduler.running[num_decodes:]:
        num_left = each.num_tokens - each.num_computed
        yield Prefill(num_left, each.num_computed, each.arrival_s)
    if scheduler.waiting and len(scheduler.running) < scheduler.rules.max_num_seqs:
        first = scheduler.waiting.first()
        yield Prefill(first.num_tokens, first.num_tokens, first.arrival_s)
