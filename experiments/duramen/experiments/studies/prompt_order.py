"""Two examples worked through: what the order of a prompt is worth in tokens and in dollars.

The tokens come out of the block cache (serving/kv/cache.py, infinite, unit 16) over made-up token
ids; the dollars are $3 per million input tokens, and a tenth of that for cached ones.

*Order.* 20 calls of 32,768 tokens: a root of 4,096 that never changes, a trunk of 24,576 that is
rewritten on 2 of the calls, a leaf of 4,096 that is new on each. Root, trunk, leaf in this order,
against the same with a clock in front.

*Repetition.* 20 turns over the same 30,000 tokens, the first 4,096 of which are warm from the task
before. Each turn asks something behind them; the question costs the same with and without a cache
and is left out. Were a turn to end with the 30,000th token, the engine would compute the last block
of 16 again each time (`repetition(question_tokens=0)`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from duramen.layout.blocks import block_hashes
from duramen.serving.kv.cache import BlockCache

UNIT = 16
INPUT_USD_PER_MTOK = Decimal(3)
CACHED_USD_PER_MTOK = Decimal("0.3")

NUM_CALLS = 20
ROOT_TOKENS, TRUNK_TOKENS, LEAF_TOKENS = 4_096, 24_576, 4_096
REWRITTEN_ON = (7, 14)  # calls on which the trunk changes; which ones, and not in a row, is free

REPEATED_TOKENS = 30_000
TASKS_A_MONTH = 100_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """Prompt tokens of all calls of one arm, and those of them that the cache had."""

    num_tokens: int
    num_cached_tokens: int

    @property
    def num_uncached_tokens(self) -> int:
        return self.num_tokens - self.num_cached_tokens

    @property
    def cost(self) -> Decimal:
        """USD, exactly."""
        uncached = self.num_uncached_tokens * INPUT_USD_PER_MTOK
        return (uncached + self.num_cached_tokens * CACHED_USD_PER_MTOK).scaleb(-6)


@dataclass(frozen=True, slots=True)
class Comparison:
    before: Outcome
    after: Outcome

    @property
    def times_cheaper(self) -> Decimal:
        return self.before.cost / self.after.cost

    @property
    def times_fewer_uncached(self) -> Decimal:
        return Decimal(self.before.num_uncached_tokens) / self.after.num_uncached_tokens

    @property
    def saved(self) -> Decimal:
        """USD, exactly."""
        return self.before.cost - self.after.cost


def order() -> Comparison:
    """A clock in front, and root, trunk, leaf."""
    ids = _Ids()
    root, trunk = ids.take(ROOT_TOKENS), ids.take(TRUNK_TOKENS)
    stable, clocked = [], []
    for number in range(NUM_CALLS):
        if number in REWRITTEN_ON:
            trunk = ids.take(TRUNK_TOKENS)
        prompt = [*root, *trunk, *ids.take(LEAF_TOKENS)]
        stable.append(prompt)
        clocked.append([*ids.take(1), *prompt[1:]])  # the time takes a token's place: same length
    return Comparison(_serve(clocked), _serve(stable))


def repetition(question_tokens: int = UNIT) -> Comparison:
    """No cache at all, and one that is warm with the root. Counts the 30,000 tokens only."""
    ids = _Ids()
    repeated = ids.take(REPEATED_TOKENS)
    cache = BlockCache(None, UNIT)
    task_before = [*repeated[:ROOT_TOKENS], *ids.take(LEAF_TOKENS)]
    cache.serve(list(block_hashes(task_before, UNIT)), len(task_before))
    prompts = [[*repeated, *ids.take(question_tokens)] for _ in range(NUM_CALLS)]
    num_tokens = NUM_CALLS * REPEATED_TOKENS
    cached = _serve(prompts, cache).num_cached_tokens
    return Comparison(Outcome(num_tokens, 0), Outcome(num_tokens, cached))


class _Ids:
    """Token ids that were never taken before."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, num_tokens: int) -> range:
        taken = range(self._next, self._next + num_tokens)
        self._next = taken.stop
        return taken


def _serve(prompts: Sequence[Sequence[int]], cache: BlockCache | None = None) -> Outcome:
    cache = cache or BlockCache(None, UNIT)
    num_cached = 0
    for prompt in prompts:
        hit_tokens = cache.serve(list(block_hashes(prompt, UNIT)), len(prompt))
        assert hit_tokens is not None  # an infinite cache holds every request
        num_cached += hit_tokens
    return Outcome(sum(map(len, prompts)), num_cached)
