"""What was sent and sampled before, as a tree of token runs: which call is most like a new one.

Tokens that calls have in common are held once, and calls that only extend each other share one run:
it is cut in two where another call parts from it.
"""

from typing import NamedTuple

import numpy as np

from duramen.experiments.study.keys import common_ids
from duramen.experiments.why.rendering import NO_IDS, Ids


class Nearest(NamedTuple):
    """The call with the longest prefix in common, the newest of equals, and that prefix."""

    call: int
    lcp: int


class _Run:
    """Tokens of one edge, and what goes on behind it.

    `reached`: (tokens of the run, call) for calls that no newer one reaches as far as: ends
    descend, calls ascend. `ended`: the calls that end here, at which token of the run.
    """

    __slots__ = ("behind", "ended", "parent", "reached", "token_ids")

    def __init__(self, parent: "_Run | None", token_ids: Ids) -> None:
        self.parent = parent
        self.token_ids = token_ids
        self.behind: dict[int, _Run] = {}
        self.reached: list[tuple[int, int]] = []
        self.ended: dict[int, int] = {}

    def reach(self, end: int, call: int) -> None:
        """The newest call goes through the first `end` tokens."""
        while self.reached and self.reached[-1][0] <= end:
            self.reached.pop()
        self.reached.append((end, call))

    def newest(self, end: int) -> int:
        """The newest call that goes through the first `end` tokens."""
        return next(call for reached, call in reversed(self.reached) if reached >= end)


class Past:
    """Calls are numbered by whoever adds them, in ascending order."""

    def __init__(self) -> None:
        self._root = _Run(None, NO_IDS)
        self._run_of: dict[int, _Run] = {}

    def nearest(self, token_ids: Ids) -> Nearest | None:
        """None where no call has begun alike, or there is none."""
        path, inside, lcp = self._walk(token_ids)
        if not lcp:
            return None
        run, end = path[-1], inside or len(path[-1].token_ids)
        return Nearest(run.newest(end), lcp)

    def add(self, call: int, token_ids: Ids) -> None:
        path, inside, lcp = self._walk(token_ids)
        run, rest = path[-1], token_ids[lcp:]
        if len(rest) and inside:
            run = path[-1] = self._split(run, inside)
            inside = 0
        if len(rest) and (run.behind or run is self._root):
            leaf = _Run(run, rest.copy())
            run.behind[int(rest[0])] = leaf
            path.append(leaf)
        elif len(rest):
            run.token_ids = np.concatenate([run.token_ids, rest])
        last = path[-1]
        for each in path[:-1]:
            each.reach(len(each.token_ids), call)
        end = inside or len(last.token_ids)
        last.reach(end, call)
        last.ended[call] = end
        self._run_of[call] = last

    def token_ids(self, call: int) -> Ids:
        """All that was added for a call."""
        run = self._run_of.get(call)
        if run is None:
            return NO_IDS
        runs, above = [run.token_ids[: run.ended[call]]], run.parent
        while above is not None:
            runs.append(above.token_ids)
            above = above.parent
        return np.concatenate(runs[::-1])

    def _walk(self, token_ids: Ids) -> tuple[list[_Run], int, int]:
        """The runs in common, the number of tokens in common with the last of them if that is not
        all of it (else 0), and the number of tokens in common with all."""
        path, position = [self._root], 0
        while position < len(token_ids):
            run = path[-1].behind.get(int(token_ids[position]))
            if run is None:
                break
            path.append(run)
            num_same = common_ids(run.token_ids, token_ids[position:])
            position += num_same
            if num_same < len(run.token_ids):
                return path, num_same, position
        return path, 0, position

    def _split(self, run: _Run, num_tokens: int) -> _Run:
        """The first `num_tokens` of a run become one of their own, above it."""
        parent = run.parent
        assert parent is not None
        upper = _Run(parent, run.token_ids[:num_tokens].copy())
        parent.behind[int(upper.token_ids[0])] = upper
        run.token_ids, run.parent = run.token_ids[num_tokens:].copy(), upper
        upper.behind[int(run.token_ids[0])] = run
        for end, call in run.reached:
            upper.reach(min(end, num_tokens), call)
        run.reached = [(end - num_tokens, call) for end, call in run.reached if end > num_tokens]
        for call, end in list(run.ended.items()):
            if end <= num_tokens:
                upper.ended[call] = run.ended.pop(call)
                self._run_of[call] = upper
            else:
                run.ended[call] = end - num_tokens
        return upper
