"""vLLM's continuous batching, exact: which requests a step computes, and how much of each.

Running requests come first, in the order they were admitted, then waiting ones while tokens, seats
and blocks last. A running request that finds no block preempts another: its blocks are freed, and
it starts again from what of them is still cached. (vLLM 0.32: v1/core/sched/scheduler.py,
async_scheduler.py, v1/core/kv_cache_manager.py)

Covers text models with one full-attention group. Not covered: speculative decoding, structured
output, LoRA, KV connectors, pipeline parallelism, aborts, chunked prefill turned off.
"""

from itertools import islice

from duramen.serving.kv.batching.batch import Batch
from duramen.serving.kv.batching.request import Request
from duramen.serving.kv.batching.rules import Policy, Rules
from duramen.serving.kv.batching.waiting import WaitingQueue
from duramen.serving.kv.pool import BlockPool


class BatchScheduler:
    """One engine's queue and cache. `schedule` makes a batch, `update` brings its tokens in; with
    `async_scheduling` one more batch is made before that, so a stop comes a step too late.

    Raises LayoutError where `rules` leave no block to hand out.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.running: list[Request] = []
        self.waiting = WaitingQueue(rules.policy)
        self._pool = BlockPool(rules.num_blocks, record_events=False)
        self._num_steps = 0
        self._is_async = rules.async_scheduling

    @property
    def num_unfinished(self) -> int:
        return len(self.running) + len(self.waiting)

    @property
    def num_free_blocks(self) -> int:
        """See BlockPool.num_free."""
        return self._pool.num_free

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def schedule(self, max_tokens: int | None = None) -> Batch:
        """The next batch; empty where nothing can be computed now. `max_tokens`: of this step,
        where that is less than the rules allow."""
        limit = self.rules.max_num_batched_tokens
        budget = limit if max_tokens is None else min(max_tokens, limit)
        # a lone request starves nobody
        threshold = self.rules.long_prefill_token_threshold if self.num_unfinished > 1 else 0
        batch = Batch(self._num_steps)
        budget = self._schedule_running(batch, budget, threshold)
        if not batch.preempted:
            self._schedule_waiting(batch, budget, threshold)
        self._num_steps += bool(batch.requests)
        return batch

    def update(self, batch: Batch) -> list[Request]:
        """The step has ended. Returns the requests that have finished with it."""
        finished: list[Request] = []
        number, before = batch.number, batch.number - 1
        for request in batch.sampling:
            if not request.num_left:  # it had stopped when the step was still running
                continue
            request.num_left -= 1
            if request.last_step == before:
                request.last_step = number
            else:
                request.begin_run(number)
            if self._is_async and request.is_running:
                request.num_pending -= 1
                self._store(request, request.num_computed - request.num_pending)
            if not request.num_left:
                finished.append(request)
        for request in finished:
            self._finish(request)
        return finished

    def check_integrity(self) -> None:
        """Assert that every block is either held by a running request or free."""
        self._pool.check_integrity(block for each in self.running for block in each.blocks)

    def _schedule_running(self, batch: Batch, budget: int, threshold: int) -> int:
        """Returns the tokens that are left."""
        place = 0
        while place < len(self.running) and budget > 0:
            request = self.running[place]
            if request.num_computed < request.quiet_end:
                num_quiet = self._put_quiet(batch, place, budget)
                place += num_quiet
                budget -= num_quiet
                continue
            num_new = _cut(self._num_missing(request), threshold, budget)
            if not num_new:
                place += 1
                continue
            while not self._grow(request, num_new):
                victim = self._victim()
                victim_place = self.running.index(victim)
                del self.running[victim_place]
                place -= victim_place < place
                budget += batch.remove(victim)
                self._preempt(victim)
                batch.preempted.append(victim)
                if victim is request:
                    return budget
            self._put(batch, request, num_new)
            budget -= num_new
            place += 1
        return budget

    def _put_quiet(self, batch: Batch, place: int, budget: int) -> int:
        """One token for each quiet request from `place` on, up to the first that is not. Returns
        how many there are."""
        requests, contexts, is_async = [], [], self._is_async
        for request in islice(self.running, place, place + budget):
            num_computed = request.num_computed
            if num_computed >= request.quiet_end:
                break
            requests.append(request)
            contexts.append(num_computed)
            request.num_computed = num_computed + 1
            request.num_pending += is_async
        batch.requests += requests
        batch.sampling += requests
        batch.context_tokens += contexts
        batch.new_tokens += [1] * len(requests)
        return len(requests)

    def _put(self, batch: Batch, request: Request, num_new: int) -> None:
        """In the batch. What is scheduled counts as computed, and as sampled, from now on."""
        batch.requests.append(request)
        batch.new_tokens.append(num_new)
        batch.context_tokens.append(request.num_computed)
        request.num_computed += num_new
        if request.num_computed == request.num_tokens + request.num_pending:
            batch.sampling.append(request)
            request.num_pending += self._is_async
            room = len(request.blocks) * self.rules.block_size
            request.quiet_end = min(room, request.most_tokens) - 1

    def _num_missing(self, request: Request) -> int:
        """Tokens that it could have computed now; 0 where its end is on the way."""
        num_pending, num_computed = request.num_pending, request.num_computed
        if num_pending and num_computed + 2 - num_pending >= request.most_tokens:
            return 0
        return request.num_tokens + num_pending - num_computed

    def _schedule_waiting(self, batch: Batch, budget: int, threshold: int) -> None:
        waiting, max_num_seqs = self.waiting, self.rules.max_num_seqs
        while budget > 0 and waiting and len(self.running) < max_num_seqs:
            request = waiting.first()
            num_new = self._admit(request, budget, threshold)
            if not num_new:
                return
            waiting.pop()
            self.running.append(request)
            if request.first_step is None:
                request.first_step = batch.number
            self._put(batch, request, num_new)
            budget -= num_new

    def _admit(self, request: Request, budget: int, threshold: int) -> int:
        """Give it its cached prefix and blocks for its first chunk. Returns the chunk's tokens, 0
        where the free blocks do not suffice; then nothing changed."""
        rules, pool, num_tokens = self.rules, self._pool, request.num_tokens
        num_eligible = (num_tokens - 1) // rules.block_size  # the last token is always computed
        hits = pool.leading_run(islice(request.keys, num_eligible))
        num_cached = len(hits) * rules.block_size
        num_new = _cut(num_tokens - num_cached, threshold, budget)
        num_reserved = num_tokens if rules.scheduler_reserve_full_isl else num_cached + num_new
        num_spare = rules.watermark_blocks if self.running else 0
        num_missing = self._num_blocks(num_reserved) - len(hits) + num_spare
        if not pool.can_take(num_missing, beside=hits):
            return 0
        pool.hold(hits)
        request.blocks, request.num_stored = hits, len(hits)
        request.num_computed = num_cached
        request.is_running = True
        if request.cached_tokens is None:
            request.cached_tokens = num_cached
        has_room = self._grow(request, num_new)
        assert has_room, "the first chunk is a part of what was reserved"
        return num_new

    def _grow(self, request: Request, num_new: int) -> bool:
        """Blocks for `num_new` more tokens; those that become full can be hit from now on, before
        they are computed. False where the free blocks do not suffice; then nothing changed."""
        num_computed = request.num_computed + num_new
        num_missing = self._num_blocks(num_computed) - len(request.blocks)
        if num_missing > 0:
            if not self._pool.can_take(num_missing):
                return False
            request.blocks += self._pool.take(num_missing)
        self._store(request, min(num_computed, request.num_tokens))
        return True

    def _store(self, request: Request, num_tokens: int) -> None:
        start, end = request.num_stored, num_tokens // self.rules.block_size
        if start < end:
            keys = request.keys
            parent = keys[start - 1] if start else None
            self._pool.store(request.blocks[start:end], keys[start:end], parent)
            request.num_stored = end

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.rules.block_size)

    def _victim(self) -> Request:
        if self.rules.policy is Policy.PRIORITY:
            return max(self.running, key=lambda request: request.urgency)
        return self.running[-1]

    def _preempt(self, request: Request) -> None:
        self._release(request)
        request.num_computed = request.num_pending = 0
        request.num_preemptions += 1
        self.waiting.prepend(request)

    def _release(self, request: Request) -> None:
        self._pool.release(reversed(request.blocks))
        request.blocks, request.num_stored, request.quiet_end = [], 0, 0
        request.is_running = False

    def _finish(self, request: Request) -> None:
        if request.is_running:
            self.running.remove(request)
            self._release(request)
        else:
            self.waiting.remove(request)


def _cut(num_tokens: int, threshold: int, budget: int) -> int:
    """What a step computes of them. A threshold of 0 cuts nothing."""
    return min(num_tokens, budget, threshold or budget)
