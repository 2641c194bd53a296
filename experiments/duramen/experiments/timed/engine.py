"""Runs calls through the scheduler on a clock of its own: every step takes what a model says.

The loop is vLLM's (0.32: v1/engine/core.py). What has arrived is queued, a batch is made, and its
tokens come out when its step ends. With async scheduling the next batch is made while a step runs,
so two are in flight. A call that the end of a step sets off comes too late for the batch that is
made right then.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count

from duramen.experiments.timed.arrivals import Arrivals, Sending
from duramen.experiments.timed.call import TimedCall
from duramen.layout.errors import LayoutError
from duramen.serving.kv.batching.batch import Batch
from duramen.serving.kv.batching.request import Request
from duramen.serving.kv.batching.rules import Rules
from duramen.serving.kv.batching.scheduler import BatchScheduler
from duramen.serving.kv.step_time import StepTime

StepBudget = Callable[[BatchScheduler, float], int]  # the most tokens of the next step, at a time


@dataclass
class Timeline:
    """What came of each call, in the order of arrival, and when each step was made and ended."""

    served: list[tuple[TimedCall, Request]] = field(default_factory=list)
    made_s: list[float] = field(default_factory=list)
    ended_s: list[float] = field(default_factory=list)


class TimedEngine:
    """One engine, started empty. `step_budget`: see BatchScheduler.schedule; None leaves the rules'
    own. `call_fixed_s`: from a call's arrival until it is queued."""

    def __init__(
        self,
        rules: Rules,
        step_time: StepTime,
        step_budget: StepBudget | None = None,
        *,
        call_fixed_s: float = 0.0,
    ) -> None:
        self.scheduler = BatchScheduler(rules)
        self._step_time = step_time
        self._step_budget = step_budget
        self._call_fixed_s = call_fixed_s
        self._depth = 2 if rules.async_scheduling else 1
        self._in_flight: deque[tuple[Batch, float]] = deque()  # with the end of its step
        self._now_s = self._free_s = 0.0
        self._timeline = Timeline()
        self._calls: dict[Request, TimedCall] = {}
        self._due: list[tuple[float, int, TimedCall]] = []
        self._order = count()

    def run(self, arrivals: Arrivals) -> Timeline:
        """Until all calls have been answered. Raises LayoutError for a call that the pool could
        never hold."""
        self._due = [self._entry(sending) for sending in arrivals.first()]
        heapify(self._due)
        while self._due or self._in_flight or self.scheduler.num_unfinished:
            if not self._in_flight and not self.scheduler.num_unfinished:
                self._now_s = max(self._now_s, self._due[0][0] + self._call_fixed_s)
                self._queue_arrived()
            if self.scheduler.num_unfinished:
                self._launch()
                if len(self._in_flight) < self._depth:
                    continue
            answered = self._land()
            self._queue_arrived()
            for call in answered:
                for sending in arrivals.answered(call, self._now_s):
                    heappush(self._due, self._entry(sending))
        return self._timeline

    def _entry(self, sending: Sending) -> tuple[float, int, TimedCall]:
        time_s, call = sending
        return time_s, next(self._order), call

    def _queue_arrived(self) -> None:
        while self._due and self._due[0][0] + self._call_fixed_s <= self._now_s:
            time_s, _, call = heappop(self._due)
            request = self._request(call, time_s)
            self._calls[request] = call
            self._timeline.served.append((call, request))
            self.scheduler.add(request)

    def _request(self, call: TimedCall, arrival_s: float) -> Request:
        if not self.scheduler.rules.can_hold(call.num_prompt + call.num_outputs):
            raise LayoutError(
                f"session {call.session}, call {call.index}: {call.num_prompt} tokens and "
                f"{call.num_outputs} outputs are more than the cache holds: enlarge it"
            )
        return Request(
            len(self._timeline.served),
            call.keys,
            call.num_prompt,
            call.num_outputs,
            call.max_outputs,
            arrival_s,
            call.priority,
        )

    def _launch(self) -> None:
        budget = self._step_budget and self._step_budget(self.scheduler, self._now_s)
        batch = self.scheduler.schedule(budget)
        has_changed = batch.requests or batch.preempted
        assert has_changed or self._in_flight, "what waits can be scheduled when nothing runs"
        if batch.requests:
            starts_s = max(self._now_s, self._free_s)
            self._free_s = starts_s + self._step_time.seconds(batch.step)
            self._timeline.made_s.append(self._now_s)
            self._timeline.ended_s.append(self._free_s)
        self._in_flight.append((batch, self._free_s))

    def _land(self) -> list[TimedCall]:
        """Wait for the oldest step in flight. Returns the calls that it has answered."""
        batch, ended_s = self._in_flight.popleft()
        self._now_s = max(self._now_s, ended_s)
        return [self._calls.pop(request) for request in self.scheduler.update(batch)]
