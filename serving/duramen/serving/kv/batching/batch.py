"""What one step computes, and for whom."""

from dataclasses import dataclass, field

from duramen.serving.kv.batching.request import Request
from duramen.serving.kv.step_time import Step


@dataclass(slots=True)
class Batch:
    """What one step computes: requests in the order of scheduling, and in parallel lists how much
    of each. `sampling`: those that it gives a token.

    `number` counts the steps that compute anything, from 0; an empty batch has the number of the
    next one that does.
    """

    number: int
    requests: list[Request] = field(default_factory=list)
    new_tokens: list[int] = field(default_factory=list)
    context_tokens: list[int] = field(default_factory=list)
    sampling: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)

    @property
    def step(self) -> Step:
        return Step(self.new_tokens, self.context_tokens)

    def remove(self, request: Request) -> int:
        """The tokens that it would have had, 0 where it is not in the batch."""
        if request not in self.requests:
            return 0
        place = self.requests.index(request)
        del self.requests[place], self.context_tokens[place]
        if request in self.sampling:
            self.sampling.remove(request)
        return self.new_tokens.pop(place)
