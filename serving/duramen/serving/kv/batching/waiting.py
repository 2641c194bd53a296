"""The requests that wait for admission, in the order of a policy."""

from heapq import heapify, heappop, heappush

from duramen.serving.kv.batching.request import Request
from duramen.serving.kv.batching.rules import Policy

Rank = tuple[int, float, int]


class WaitingQueue:
    """First come first served, where a preempted request goes before all others; or by priority,
    then arrival, where it goes back to its place. (vLLM 0.32: v1/core/sched/request_queue.py)"""

    def __init__(self, policy: Policy) -> None:
        self._by_priority = policy is Policy.PRIORITY
        self._heap: list[tuple[Rank, Request]] = []
        self._num_appended = self._num_prepended = 0

    def __len__(self) -> int:
        return len(self._heap)

    def append(self, request: Request) -> None:
        self._num_appended += 1
        self._push(request, self._num_appended)

    def prepend(self, request: Request) -> None:
        self._num_prepended += 1
        self._push(request, -self._num_prepended)

    def first(self) -> Request:
        return self._heap[0][1]

    def pop(self) -> Request:
        return heappop(self._heap)[1]

    def remove(self, request: Request) -> None:
        self._heap = [entry for entry in self._heap if entry[1] is not request]
        heapify(self._heap)

    def _push(self, request: Request, place: int) -> None:
        heappush(self._heap, (request.urgency if self._by_priority else (0, 0.0, place), request))
