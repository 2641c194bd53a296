"""Runs of KV blocks, the chains that hold them, and accounts of blocks over time.

    chain A  |-- root --|-- trunk --|-- leaf --|-- reply --|    each piece is a run: blocks in a
    chain B  |-- root --|-- leaf --|                            row that the same chains hold

Whoever holds a run holds every run before it, so what a prompt has in common with others is found
run by run, and a block that comes or goes changes the numbers of one run. Times are seconds on the
caller's clock, which must not go back.
"""

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter

from duramen.layout.blocks import BlockHash


class KvZone(StrEnum):
    """What a block is to those that hold it; the last two are held by nobody."""

    ROOT = "root"
    TRUNK = "trunk"
    LEAF = "leaf"
    REPLY = "reply"
    DEAD = "dead"
    UNATTRIBUTED = "unattributed"


HELD_ZONES = (KvZone.ROOT, KvZone.TRUNK, KvZone.LEAF, KvZone.REPLY)
_LEAST_SHARE = 1e-6  # of a block

Ends = tuple[int, int, int]  # of root, trunk and leaf, in blocks


@dataclass(slots=True, eq=False)
class Account:
    """A number of blocks, and its integral over time."""

    num_blocks: float = 0.0
    _block_seconds: float = 0.0
    _since_s: float = 0.0

    def change(self, num_blocks: float, now_s: float) -> None:
        self._block_seconds += self.num_blocks * (now_s - self._since_s)
        self._since_s = now_s
        self.num_blocks += num_blocks
        if self.num_blocks < _LEAST_SHARE:  # what rounding has left of nothing
            self.num_blocks = 0.0

    def block_seconds(self, now_s: float) -> float:
        return self._block_seconds + self.num_blocks * (now_s - self._since_s)


@dataclass(slots=True, eq=False)
class Session:
    """`accounts`: its tenant's. `block_seconds`: of holds that have ended. `chains`: of its calls
    that run, and of its newest call, which is the last one."""

    accounts: Mapping[KvZone, Account]
    block_seconds: dict[KvZone, float] = field(
        default_factory=lambda: dict.fromkeys(HELD_ZONES, 0.0)
    )
    chains: "list[Chain]" = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Hold:
    """A chain's on a run. `joined_at`: what each holder had got from the run by then."""

    run: "Run"
    zone: KvZone
    joined_at: float

    @property
    def start(self) -> int:
        return self.run.start


@dataclass(slots=True, eq=False)
class Chain:
    """The blocks of a call: its prompt, and what is stored behind it.

    `ends`: of its prompt. `holds`: by the start of their runs; of replies there may be several side
    by side. `own`: blocks that nobody else holds. `short`: the first of its runs that lost its end.
    `idle_since_s`: None while the call runs; `own_when_idle`: the block-seconds of `own` then.
    """

    session: Session
    ends: Ends = (0, 0, 0)
    holds: list[Hold] = field(default_factory=list)
    own: Account = field(default_factory=Account)
    short: "Run | None" = None
    idle_since_s: float | None = None
    own_when_idle: float = 0.0

    def hold(self, run: "Run", zone: KvZone, now_s: float) -> None:
        hold = Hold(run, zone, run.per_hold(now_s))
        run.join(self, hold, now_s)
        if not self.holds or self.holds[-1].start <= run.start:
            self.holds.append(hold)
        else:
            insort(self.holds, hold, key=attrgetter("start"))

    def leave_last(self, now_s: float) -> "Run":
        """Let go of the last run, which is dead if nobody else holds it."""
        hold = self.holds.pop()
        self.session.block_seconds[hold.zone] += hold.run.leave(self, now_s)
        return hold.run

    def is_kept(self, blocks: Sequence[BlockHash], ends: Ends) -> bool:
        """Whether its last run, and so all, are what a prompt of `blocks` begins with, each in one
        zone of it. Replies side by side are not."""
        last = self.holds[-1].run
        if self.short is not None and self.short.start < last.start:
            return False
        if len(self.holds) > 1 and self.holds[-2].start >= self.ends[2]:
            return False
        most = len(blocks)
        if ends[0] != self.ends[0] or ends[1] < self.ends[1]:
            most = min(ends[0], self.ends[0])
        return (
            last.start < last.end <= most
            and blocks[last.end - 1] == last.hashes[-1]
            and zone_at(last.start, ends) is zone_at(last.end - 1, ends)
        )

    def go_on(self, ends: Ends, now_s: float) -> None:
        """Keep all that is held, for a prompt with other ends."""
        self.ends, self.short = ends, None
        if self.holds:
            last = self.holds[-1].run
            last.tips.pop(self, None)
            last.unaware[self] = None
        for hold in reversed(self.holds):
            zone = zone_at(hold.start, ends)
            if hold.zone is zone:
                return
            hold.run.change(self, zone, now_s)


def zone_at(block: int, ends: Ends) -> KvZone:
    """Of a prompt's block."""
    if block < ends[0]:
        return KvZone.ROOT
    return KvZone.TRUNK if block < ends[1] else KvZone.LEAF


@dataclass(slots=True, eq=False)
class Run:
    """Blocks in a row, from the `start`-th of their prompts on, that the same chains hold.

    `without_holds`: the account of its blocks while nobody does. `num_blocks`: copies that are
    resident. `tips`: chains whose prompt ends with its last block. `num_replies`: holders to whom
    it is a reply. `unaware`: holders that are to be told if it loses its end.
    """

    start: int
    hashes: list[BlockHash]
    without_holds: Account
    num_blocks: int = 0
    holds: dict[Chain, Hold] = field(default_factory=dict)
    tips: dict[Chain, None] = field(default_factory=dict)
    num_replies: int = 0
    unaware: dict[Chain, None] = field(default_factory=dict)
    _num_holds: dict[Account, int] = field(default_factory=dict)
    _parts: list[tuple[Account, float]] = field(default_factory=list)  # of each block
    _per_hold: float = 0.0
    _since_s: float = 0.0

    def __post_init__(self) -> None:
        self._parts = [(self.without_holds, 1.0)]

    @property
    def end(self) -> int:
        return self.start + len(self.hashes)

    def per_hold(self, now_s: float) -> float:
        """Block-seconds that fell to each holder so far."""
        if not self.num_blocks or not self.holds:
            return self._per_hold
        return self._per_hold + self.num_blocks / len(self.holds) * (now_s - self._since_s)

    def add(self, num_blocks: int, now_s: float) -> None:
        """So many copies more are resident, or less."""
        self._settle(now_s)
        self.num_blocks += num_blocks
        for account, part in self._parts:
            account.change(num_blocks * part, now_s)

    def join(self, chain: Chain, hold: Hold, now_s: float) -> None:
        self._settle(now_s)
        self.holds[chain] = hold
        self.unaware[chain] = None
        self._count(chain, hold.zone, 1)
        self._divide(now_s)

    def leave(self, chain: Chain, now_s: float) -> float:
        """Returns the block-seconds that fell to the chain."""
        self._settle(now_s)
        hold = self.holds.pop(chain)
        self.tips.pop(chain, None)
        self.unaware.pop(chain, None)
        self._count(chain, hold.zone, -1)
        self.without_holds = chain.session.accounts[KvZone.DEAD]
        self._divide(now_s)
        return self._per_hold - hold.joined_at

    def change(self, chain: Chain, zone: KvZone, now_s: float) -> None:
        """The chain holds it in another zone."""
        self._settle(now_s)
        hold = self.holds[chain]
        chain.session.block_seconds[hold.zone] += self._per_hold - hold.joined_at
        self._count(chain, hold.zone, -1)
        self._count(chain, zone, 1)
        hold.zone, hold.joined_at = zone, self._per_hold
        self._divide(now_s)

    def holders_behind(self, block: BlockHash) -> list[Chain]:
        """Who holds what is stored behind a block of this run and was in no prompt: a reply."""
        found = dict(self.tips) if self.hashes[-1] == block else {}
        if self.num_replies:
            found |= {c: None for c, hold in self.holds.items() if hold.zone is KvZone.REPLY}
        return list(found)

    def cut(self, num_hashes: int, now_s: float) -> "Run":
        """Keep the first `num_hashes`. The others are a run of their own, with the same holders and
        none of the resident copies yet."""
        rest = Run(self.start + num_hashes, self.hashes[num_hashes:], self.without_holds)
        del self.hashes[num_hashes:]
        rest.tips, self.tips = self.tips, {}
        for chain, hold in self.holds.items():
            chain.hold(rest, hold.zone, now_s)
        return rest

    def lose_end(self) -> None:
        """Its last block is gone, and with it the way to what its holders hold behind it."""
        self.hashes.pop()
        self.tips.clear()
        for chain in self.unaware:
            if chain.short is None or self.start < chain.short.start:
                chain.short = self
        self.unaware.clear()

    def _settle(self, now_s: float) -> None:
        self._per_hold = self.per_hold(now_s)
        self._since_s = now_s

    def _count(self, chain: Chain, zone: KvZone, num: int) -> None:
        if zone is KvZone.REPLY:
            self.num_replies += num
        account = chain.session.accounts[zone]
        left = self._num_holds.get(account, 0) + num
        if left:
            self._num_holds[account] = left
        else:
            del self._num_holds[account]

    def _divide(self, now_s: float) -> None:
        """Give the blocks to whom they belong now."""
        before, num_holds = self._parts, len(self.holds)
        self._parts = [(account, num / num_holds) for account, num in self._num_holds.items()]
        if not num_holds:
            self._parts.append((self.without_holds, 1.0))
        elif num_holds == 1:
            self._parts.append((next(iter(self.holds)).own, 1.0))
        if self.num_blocks:
            for account, part in before:
                account.change(-self.num_blocks * part, now_s)
            for account, part in self._parts:
                account.change(self.num_blocks * part, now_s)
