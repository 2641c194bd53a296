"""Who holds which KV bytes for how long: byte-seconds by zone, tenant and session.

A call holds the blocks of its prompt that are resident, and what is stored behind them: its reply.
A session holds what its calls that run hold, and its newest call also while the session is idle:
what the next call is expected to begin with. A block that several hold is split equally among all
of them, from moment to moment, until it leaves the cache. It is not charged to whoever used it
last: each of them would have to compute it again, and none could free it by going, so each owes the
same, the less the more they are, and what a session owes does not depend on who called last. A
session that runs two calls at once counts twice.

A block belongs to the zone of its last token, the most volatile one, with which it stays or goes.
Blocks that calls held and nobody holds any more are dead: an edited branch, a reply that was not
gone on with, a session that left. Those that no call was seen to ask for are unattributed. So at
any time the owners' bytes add up to copies of resident blocks x bytes, and their byte-seconds to
the integral of that.

A block that comes or goes costs O(1), amortised over the calls that hold it; a call costs steps for
its new blocks and for each piece of its prompt that others share from another place on, whatever
the prompt's length. Memory goes to blocks that are resident or were sent and are to be stored yet,
and to the calls of sessions until `leave`; of what is gone only the tenants' totals stay. A block
that left and came back for somebody else is held again from the session's next call on.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from duramen.layout.blocks import BlockHash
from duramen.layout.zones import Zone
from duramen.serving.kv.attribute import common_blocks
from duramen.serving.kv.held import (
    HELD_ZONES,
    Account,
    Chain,
    Ends,
    KvZone,
    Run,
    Session,
)
from duramen.serving.kv.warmth import Warmth


class Owner(NamedTuple):
    """`tenant`: whose call held it last; "" for what is unattributed."""

    tenant: str
    zone: KvZone


@dataclass(frozen=True)
class Held:
    """`num_bytes`: now; `byte_seconds`: so far."""

    num_bytes: float
    byte_seconds: float


class Ledger:
    """Of one engine's cache. `block_bytes`: of one block in all layers."""

    def __init__(self, block_tokens: int, block_bytes: int) -> None:
        self.block_tokens = block_tokens
        self.block_bytes = block_bytes
        self._accounts: dict[str, dict[KvZone, Account]] = {}  # by tenant
        self._run_of: dict[BlockHash, Run] = {}
        self._num_copies: dict[BlockHash, int] = {}
        self._sessions: dict[Hashable, Session] = {}
        self._unattributed = Account()
        self._nobody = Run(0, [], self._unattributed)

    def store(self, block: BlockHash, parent: BlockHash | None, now_s: float) -> None:
        """A copy of `block` is resident. `parent`: the block before it, None if there is none or it
        is not known."""
        run = self._run_of.get(block)
        if run is None:
            run = self._run_of[block] = self._run_behind(parent, block, now_s)
        self._num_copies[block] = self._num_copies.get(block, 0) + 1
        run.add(1, now_s)

    def remove(self, block: BlockHash, now_s: float) -> None:
        """A copy of a resident block has left."""
        run = self._run_of[block]
        run.add(-1, now_s)
        num_left = self._num_copies.pop(block) - 1
        if num_left:
            self._num_copies[block] = num_left
            return
        del self._run_of[block]
        if run is self._nobody:
            return
        if run.hashes[-1] != block:  # engines evict from the end
            self._cut(run, run.hashes.index(block) + 1, now_s)
        run.lose_end()
        self._forget_unstored(run)

    def clear(self, now_s: float) -> None:
        """All blocks have left."""
        for block, num_copies in reversed(list(self._num_copies.items())):
            for _ in range(num_copies):
                self.remove(block, now_s)

    def sent(
        self,
        session: Hashable,
        tenant: str,
        blocks: Sequence[BlockHash],
        zone_tokens: Mapping[Zone, int],
        now_s: float,
    ) -> Chain:
        """A call goes out. What is returned is for `ended`.

        `blocks`: the full blocks of its prompt; `zone_tokens`: of the prompt, whose zones go out in
        their order.
        """
        found = self._sessions.get(session)
        if found is None:
            found = self._sessions[session] = Session(self._of(tenant))
        if not found.chains or found.chains[-1].idle_since_s is None:
            found.chains.append(Chain(found))
        chain = found.chains[-1]
        root = zone_tokens.get(Zone.ROOT, 0)
        trunk = root + zone_tokens.get(Zone.TRUNK, 0)
        ends = (root // self.block_tokens, trunk // self.block_tokens, len(blocks))
        self._move(chain, blocks, ends, now_s)
        chain.idle_since_s = None
        return chain

    def ended(self, chain: Chain, now_s: float) -> None:
        """The call has ended, however it did."""
        if chain not in chain.session.chains:  # its session has left
            return
        chain.idle_since_s = now_s
        chain.own_when_idle = chain.own.block_seconds(now_s)
        if chain is not chain.session.chains[-1]:
            chain.session.chains.remove(chain)
            self._let_go(chain, now_s)

    def leave(self, session: Hashable, now_s: float) -> None:
        """No call will go on with the session: what only it holds is dead."""
        found = self._sessions.pop(session, None)
        while found is not None and found.chains:
            self._let_go(found.chains.pop(), now_s)

    def held(self, now_s: float) -> dict[Owner, Held]:
        """By whom; tenants that have nothing now included."""
        return {
            Owner(tenant, zone): Held(
                account.num_blocks * self.block_bytes,
                account.block_seconds(now_s) * self.block_bytes,
            )
            for tenant, accounts in [
                ("", {KvZone.UNATTRIBUTED: self._unattributed}),
                *self._accounts.items(),
            ]
            for zone, account in accounts.items()
        }

    def held_by(self, session: Hashable, now_s: float) -> dict[KvZone, Held]:
        """By a session, since its first call; empty if it is not here."""
        found = self._sessions.get(session)
        if found is None:
            return {}
        blocks, seconds = dict.fromkeys(HELD_ZONES, 0.0), dict(found.block_seconds)
        for hold in (hold for chain in found.chains for hold in chain.holds):
            blocks[hold.zone] += hold.run.num_blocks / len(hold.run.holds)
            seconds[hold.zone] += hold.run.per_hold(now_s) - hold.joined_at
        return {
            zone: Held(blocks[zone] * self.block_bytes, seconds[zone] * self.block_bytes)
            for zone in HELD_ZONES
        }

    def warmth(self, session: Hashable, now_s: float) -> Warmth | None:
        """Of a session that is idle; None while it has calls, and if it is not here."""
        found = self._sessions.get(session)
        if found is None or len(found.chains) > 1:
            return None
        chain = found.chains[0]
        if chain.idle_since_s is None:
            return None
        own = shared = 0
        for run in (hold.run for hold in chain.holds):
            num_tokens = min(run.num_blocks, len(run.hashes)) * self.block_tokens
            if len(run.holds) == 1:
                own += num_tokens
            else:
                shared += num_tokens
        idle = chain.own.block_seconds(now_s) - chain.own_when_idle
        return Warmth(
            idle_s=now_s - chain.idle_since_s,
            own_bytes=chain.own.num_blocks * self.block_bytes,
            idle_byte_seconds=idle * self.block_bytes,
            own_tokens=own,
            shared_tokens=shared,
        )

    def _of(self, tenant: str) -> dict[KvZone, Account]:
        if tenant not in self._accounts:
            zones = (*HELD_ZONES, KvZone.DEAD)
            self._accounts[tenant] = {zone: Account() for zone in zones}
        return self._accounts[tenant]

    def _run_behind(self, parent: BlockHash | None, block: BlockHash, now_s: float) -> Run:
        """The run of a block that was in no prompt."""
        before = self._run_of.get(parent, self._nobody) if parent is not None else self._nobody
        if parent is None or before is self._nobody:
            return self._nobody
        holders = before.holders_behind(parent)
        if not holders:
            return self._nobody
        if before.hashes[-1] == parent and holders == list(before.holds) and not before.tips:
            before.hashes.append(block)
            return before
        start = before.start + before.hashes.index(parent) + 1
        run = Run(start, [block], self._nobody.without_holds)
        for chain in holders:
            chain.hold(run, KvZone.REPLY, now_s)
        return run

    def _move(self, chain: Chain, blocks: Sequence[BlockHash], ends: Ends, now_s: float) -> None:
        """Let the chain hold a prompt of `blocks` instead of what it held."""
        while chain.holds and not chain.is_kept(blocks, ends):
            self._leave_last(chain, now_s)
        chain.go_on(ends, now_s)
        start = chain.holds[-1].run.end if chain.holds else 0
        for zone, end in zip(HELD_ZONES, ends, strict=False):
            while start < end:
                run = self._run_at(blocks, start, end, now_s)
                chain.hold(run, zone, now_s)
                start = run.end
        if chain.holds:
            chain.holds[-1].run.tips[chain] = None

    def _run_at(self, blocks: Sequence[BlockHash], start: int, end: int, now_s: float) -> Run:
        """A run of its own for the longest part of blocks[start:end], from `start` on, that the
        same chains hold."""
        run = self._run_of.get(blocks[start], self._nobody)
        if run is self._nobody:
            return self._new_run(blocks, start, end, now_s)
        assert run.start == start, (run.start, start)
        if run.end > end or run.hashes[-1] != blocks[run.end - 1]:
            num_common = common_blocks(run.hashes, blocks[start:end])
            if num_common < len(run.hashes):
                self._cut(run, num_common, now_s)
        return run

    def _new_run(self, blocks: Sequence[BlockHash], start: int, end: int, now_s: float) -> Run:
        run = Run(start, [], self._nobody.without_holds)
        for block in blocks[start:end]:
            if self._run_of.get(block, self._nobody) is not self._nobody:
                break
            self._run_of[block] = run
            run.hashes.append(block)
        num_copies = self._copies_of(run)
        if num_copies:
            self._nobody.add(-num_copies, now_s)
            run.add(num_copies, now_s)
        return run

    def _cut(self, run: Run, num_hashes: int, now_s: float) -> None:
        rest = run.cut(num_hashes, now_s)
        for block in rest.hashes:
            self._run_of[block] = rest
        num_copies = self._copies_of(rest)
        run.add(-num_copies, now_s)
        rest.add(num_copies, now_s)
        self._forget_unstored(rest)

    def _copies_of(self, run: Run) -> int:
        return sum([self._num_copies.get(block, 0) for block in run.hashes])

    def _let_go(self, chain: Chain, now_s: float) -> None:
        while chain.holds:
            self._leave_last(chain, now_s)

    def _leave_last(self, chain: Chain, now_s: float) -> None:
        self._forget_unstored(chain.leave_last(now_s))

    def _forget_unstored(self, run: Run) -> None:
        """What nobody holds is known only as long as it is resident."""
        while not run.holds and run.hashes and run.hashes[-1] not in self._num_copies:
            del self._run_of[run.hashes.pop()]
