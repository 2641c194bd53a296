"""Providers' prompt caches, simulated: what each call reads, writes and pays for in full.

Times are those of the calls alone: a call's entries are there for the next one, however soon. In
truth an entry can be read only once the reply has begun, and providers route and evict as they
like: the result is what the published rules allow, not what they guarantee.
"""

from collections.abc import Hashable
from typing import Protocol

from duramen.experiments.prices.call import KEY_TOKENS, PricedCall, Usage
from duramen.experiments.prices.prefix_tree import PrefixTree
from duramen.experiments.prices.rules import CacheRules
from duramen.layout.errors import PriceError

_PRUNE_EVERY = 1024  # calls


class _Cache(Protocol):
    def serve(self, call: PricedCall) -> Usage: ...


class ProviderCache:
    """One simulated cache: one per layout and set of rules. Models with equal rules share it.

    `serve` raises PriceError where a call is sent before the one before it, or where it sets more
    breakpoints than the provider takes.
    """

    def __init__(self, rules: CacheRules) -> None:
        self.rules = rules
        self._time_s = float("-inf")
        self._cache: _Cache
        if rules.kind == "automatic":
            self._cache = _Automatic(rules)
        elif rules.kind == "breakpoints":
            self._cache = _Breakpoints(rules)
        elif rules.kind == "units":
            self._cache = _Units(rules)
        else:
            self._cache = _None(rules)

    def serve(self, call: PricedCall) -> Usage:
        if call.time_s < self._time_s:
            raise PriceError(f"a call at {call.time_s} s comes after one at {self._time_s} s")
        self._time_s = call.time_s
        return self._cache.serve(call)


class _None:
    def __init__(self, rules: CacheRules) -> None:
        self._rules = rules

    def serve(self, call: PricedCall) -> Usage:
        return self._rules.usage(call.num_tokens, 0, 0, call.output_tokens)


class _Automatic:
    """Whole granules of a common prefix. The prompt's last token is always computed."""

    def __init__(self, rules: CacheRules) -> None:
        self._rules = rules
        self._granules = PrefixTree(rules.ttl_s, refreshed=rules.refreshed)

    def serve(self, call: PricedCall) -> Usage:
        rules, granularity = self._rules, self._rules.granularity_tokens
        if call.num_tokens < rules.min_tokens:
            return rules.usage(call.num_tokens, 0, 0, call.output_tokens)
        step = granularity // KEY_TOKENS
        granules = call.keys[step - 1 :: step]
        run = self._granules.use(granules, call.time_s)
        hit = min(run, (call.num_tokens - 1) // granularity) * granularity
        hit = hit if hit >= rules.min_tokens else 0
        return rules.usage(call.num_tokens, hit, len(granules) * granularity, call.output_tokens)


class _Entries:
    """Whole prefixes by key, with the time from which their life counts."""

    def __init__(self, rules: CacheRules) -> None:
        self._rules = rules
        self._since_s: dict[bytes, float] = {}
        self._num_calls = 0

    def alive(self, key: bytes, now_s: float) -> bool:
        since_s = self._since_s.get(key)
        return since_s is not None and now_s - since_s <= self._rules.ttl_s

    def keep(self, call: PricedCall, position: int) -> None:
        """Write the prefix up to this position, or use it where it is alive; not if too short."""
        key = call.end_keys[position]
        if call.ends[position] < self._rules.min_tokens:
            return
        if self._rules.refreshed or not self.alive(key, call.time_s):
            self._since_s[key] = call.time_s

    def prune(self, now_s: float) -> None:
        self._num_calls += 1
        if self._num_calls % _PRUNE_EVERY == 0:
            self._since_s = {k: s for k, s in self._since_s.items() if self.alive(k, now_s)}


class _Breakpoints:
    def __init__(self, rules: CacheRules) -> None:
        self._rules = rules
        self._entries = _Entries(rules)
        self._previous: dict[Hashable, int] = {}  # the last position of a session's last call

    def serve(self, call: PricedCall) -> Usage:
        self._entries.prune(call.time_s)
        marks = self._marks(call)
        hit = self._hit(call, marks)
        for position in marks if hit is None else [*marks, hit]:
            self._entries.keep(call, position)
        hit_tokens = 0 if hit is None else call.ends[hit]
        last = call.ends[marks[-1]] if marks else 0
        cached_end = last if last >= self._rules.min_tokens else 0
        return self._rules.usage(call.num_tokens, hit_tokens, cached_end, call.output_tokens)

    def _marks(self, call: PricedCall) -> list[int]:
        last = len(call.ends) - 1
        previous = self._previous.get(call.session)
        if call.session is not None:
            self._previous[call.session] = last
        if call.marks is not None:
            marks = set(call.marks)
        else:
            marks = {0, last}
            if previous is not None and previous < last:
                marks.add(previous)
        if len(marks) > self._rules.max_breakpoints:
            limit = self._rules.max_breakpoints
            raise PriceError(f"{len(marks)} breakpoints in a call; the provider takes {limit}")
        return sorted(marks)

    def _hit(self, call: PricedCall, marks: list[int]) -> int | None:
        """The longest prefix that is alive, looking back from each mark, the last mark first."""
        for mark in reversed(marks):
            back = self._rules.lookback_positions
            stop = -1 if back is None else max(mark - back, -1)
            for position in range(mark, stop, -1):
                if self._entries.alive(call.end_keys[position], call.time_s):
                    return position
        return None


class _Units:
    """Entries at prompt ends, and where a prompt was seen to part from an earlier one."""

    def __init__(self, rules: CacheRules) -> None:
        self._rules = rules
        self._entries = _Entries(rules)
        self._seen = PrefixTree(rules.ttl_s)

    def serve(self, call: PricedCall) -> Usage:
        self._entries.prune(call.time_s)
        last = len(call.ends) - 1
        hit = next((p for p in range(last, -1, -1) if self._alive(call, p)), None)
        num_seen = self._seen.use(call.end_keys, call.time_s)
        kept = {last}
        if hit is not None:
            kept.add(hit)
        if num_seen:
            kept.add(num_seen - 1)
        for position in kept:
            self._entries.keep(call, position)
        hit_tokens = 0 if hit is None else call.ends[hit]
        return self._rules.usage(call.num_tokens, hit_tokens, call.num_tokens, call.output_tokens)

    def _alive(self, call: PricedCall, position: int) -> bool:
        return self._entries.alive(call.end_keys[position], call.time_s)
