"""vLLM's scheduler with a target for the time between tokens: `--scheduler-cls` names it.

Before each step it lowers `max_num_scheduled_tokens` to what kv/prefill_budget.py chooses; vLLM
does the rest. Requests that decode are moved before those that are prefilled, since vLLM serves
running requests in the order of their admission, and an early long prompt would take the tokens of
later decodes. What images cost is not predicted.
"""

import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from duramen.layout.errors import EngineError
from duramen.serving.kv.prefill_budget import Budget, Prefill, PrefillBudget
from duramen.serving.kv.step_time import LinearStepTime, Step
from duramen.serving.vllm.itl_report import ItlReport, ReportFile
from duramen.serving.vllm.itl_target import REPORT, ItlTarget
from duramen.serving.vllm.version import check_scheduler_version, installed_build


@dataclass(frozen=True, slots=True)
class _Planned:
    """A step in flight."""

    made_s: float
    budget: Budget
    step: Step

    @property
    def is_mixed(self) -> bool:
        """What may be mixed is not where no block is free for a prefill."""
        return self.budget.is_mixed and self.step.num_prefills > 0


class ItlScheduler(AsyncScheduler):  # type: ignore[misc]
    """What it is told: see itl_target.py.

    Raises EngineError for a version of vLLM or a set-up that this was not tried with, DuramenError
    for a timing profile that cannot be read.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_scheduler_version(installed_build()[1])
        target = ItlTarget.from_environment(os.environ)
        self._step_time: LinearStepTime = target.load_timing().step
        super().__init__(*args, **kwargs)
        if self.parallel_config.pipeline_parallel_size > 1:
            raise EngineError("a target between tokens needs --pipeline-parallel-size 1")
        self._most_tokens: int = self.max_num_scheduled_tokens
        self._budget = PrefillBudget(
            self._step_time,
            target.target_s,
            self._most_tokens,
            tokens_per_decode=1 + self.num_spec_tokens,
            **self._least_chunk(),
        )
        self._planned: deque[_Planned] = deque()
        self._last_end_s = 0.0
        self._report = ItlReport()
        path = os.environ.get(REPORT)
        self._report_file = ReportFile(Path(path)) if path else None

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        made_s = time.monotonic()
        budget = self._choose()
        self.max_num_scheduled_tokens = budget.num_tokens
        try:
            output = super().schedule(*args, **kwargs)
        finally:
            self.max_num_scheduled_tokens = self._most_tokens
        step = self._step(output.num_scheduled_tokens)
        self._planned.append(_Planned(made_s, budget, step))
        return output

    def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
        outputs = super().update_from_output(*args, **kwargs)
        planned, now_s = self._planned.popleft(), time.monotonic()
        # a step that was made while another one ran began when that one ended
        began_s = max(planned.made_s, self._last_end_s)
        self._last_end_s = now_s
        if planned.is_mixed:
            self._observe(planned, now_s - began_s)
        return outputs

    def shutdown(self) -> None:
        super().shutdown()
        if self._report_file is not None:
            self._report_file.close()

    def _least_chunk(self) -> dict[str, int]:
        """Hybrid models cut chunks at whole blocks: less than one would never get on."""
        if not self.need_mamba_block_aligned_split:
            return {}
        return {"floor_tokens": self.block_size}

    def _choose(self) -> Budget:
        self.running.sort(key=lambda request: request.is_prefill_chunk)  # stable
        decodes = [each.num_computed_tokens for each in self.running if not each.is_prefill_chunk]
        return self._budget.choose(decodes, self._prefills(len(decodes)), time.time())

    def _prefills(self, num_decodes: int) -> Iterator[Prefill]:
        """In the order in which vLLM serves them. What of a waiting one is cached is not known
        before its admission: its tokens are priced as if they came last."""
        for each in self.running[num_decodes:]:
            num_left = each.num_tokens - each.num_computed_tokens
            yield Prefill(num_left, each.num_computed_tokens, each.arrival_time)
        num_seats = max(self.max_num_active_reqs - len(self.running), 0)
        for each in islice(chain(self.kv_holding_waiting, self.waiting), num_seats):
            num_left = each.num_tokens - each.num_computed_tokens
            yield Prefill(num_left, each.num_tokens, each.arrival_time)

    def _step(self, num_scheduled: dict[str, int]) -> Step:
        """What vLLM scheduled; its requests count those tokens as computed already."""
        contexts = [
            self.requests[request_id].num_computed_tokens - num_new
            for request_id, num_new in num_scheduled.items()
        ]
        return Step([*num_scheduled.values()], contexts)

    def _observe(self, planned: _Planned, measured_s: float) -> None:
        predicted_s = self._step_time.seconds(planned.step)
        self._budget.observe(predicted_s, measured_s)
        report = self._report
        report.num_steps += 1
        report.num_floor += planned.budget.is_floor
        report.num_over += measured_s > self._budget.target_s
        report.budget_tokens += planned.budget.num_tokens
        report.computed_tokens += planned.step.num_new_tokens
        report.predicted_s += predicted_s
        report.measured_s += measured_s
        report.ratio = self._budget.ratio.usual_most
        if self._report_file is not None:
            self._report_file.write(report)
