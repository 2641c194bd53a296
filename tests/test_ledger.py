"""Who holds which KV bytes for how long: against a plain model, and by hand."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import hypothesis.strategies as st
import pytest
from hypothesis import given

from duramen.layout.blocks import BlockHash, block_hashes
from duramen.layout.zones import Zone
from duramen.serving.kv.cache import BlockCache
from duramen.serving.kv.held import HELD_ZONES, Chain, KvZone
from duramen.serving.kv.ledger import Held, Ledger, Owner
from duramen.serving.kv.pool import Cleared, Removed, Stored
from duramen.serving.kv.step_time import LinearStepTime

ROOT, TRUNK, LEAF, REPLY, DEAD, UNATTRIBUTED = KvZone
BLOCK_BYTES = 10
NOBODY = Owner("", UNATTRIBUTED)

Zones = tuple[int, int, int]


def named(*names: str) -> list[BlockHash]:
    """Blocks with readable names; of one chain each, as the tests use them."""
    return [BlockHash(name.encode()) for name in names]


def zone_tokens(zones: Zones) -> dict[Zone, int]:
    return dict(zip(Zone, zones, strict=True))


def held_now(ledger: Ledger, now_s: float) -> dict[Owner, Held]:
    """Without those that never had anything."""
    return {owner: held for owner, held in ledger.held(now_s).items() if held.byte_seconds}


class Shop:
    """A ledger with blocks of one token, and a clock."""

    def __init__(self) -> None:
        self.ledger = Ledger(1, BLOCK_BYTES)
        self.now_s = 0.0

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def sent(self, session: str, names: str, zones: Zones, tenant: str = "t") -> Chain:
        blocks = named(*names)
        return self.ledger.sent(session, tenant, blocks, zone_tokens(zones), self.now_s)

    def store(self, names: str, parent: str | None = None) -> None:
        for name in names:
            before = named(parent)[0] if parent else None
            self.ledger.store(named(name)[0], before, self.now_s)
            parent = name

    def remove(self, names: str) -> None:
        for block in named(*names):
            self.ledger.remove(block, self.now_s)

    def block_seconds(self, tenant: str = "t") -> dict[KvZone, float]:
        found = held_now(self.ledger, self.now_s)
        mine = {owner.zone: held for owner, held in found.items() if owner.tenant == tenant}
        return {zone: held.byte_seconds / BLOCK_BYTES for zone, held in mine.items()}

    def of(self, session: str) -> dict[KvZone, float]:
        found = self.ledger.held_by(session, self.now_s)
        return {z: h.byte_seconds / BLOCK_BYTES for z, h in found.items() if h.byte_seconds}


def test_a_call_holds_its_prompt_and_what_is_stored_behind_it() -> None:
    shop = Shop()
    shop.sent("s", "abcd", (2, 1, 1))
    shop.wait(5)  # nothing is resident yet
    shop.store("abcd")
    shop.wait(3)
    shop.store("e", parent="d")
    shop.store("f", parent="e")
    shop.wait(1)
    assert shop.of("s") == {ROOT: 8, TRUNK: 4, LEAF: 4, REPLY: 2}
    assert shop.block_seconds() == shop.of("s")


def test_what_was_new_is_trunk_in_the_next_call() -> None:
    shop = Shop()
    shop.ledger.ended(shop.sent("s", "abc", (1, 0, 2)), 0)
    shop.store("abcd")
    shop.wait(1)
    shop.sent("s", "abcde", (1, 3, 1))
    shop.store("e", parent="d")
    shop.wait(1)
    assert shop.of("s") == {ROOT: 2, LEAF: 2 + 1, REPLY: 1, TRUNK: 3}


def test_a_block_belongs_to_the_zone_of_its_last_token() -> None:
    ledger = Ledger(4, BLOCK_BYTES)
    ledger.sent("s", "t", named(*"abcd"), {Zone.ROOT: 6, Zone.TRUNK: 2, Zone.LEAF: 9}, 0)
    for block in named(*"abcd"):
        ledger.store(block, None, 0)
    held = ledger.held_by("s", 0)
    assert {zone: each.num_bytes for zone, each in held.items()} == {
        ROOT: BLOCK_BYTES,
        TRUNK: BLOCK_BYTES,  # four tokens, two of them root
        LEAF: 2 * BLOCK_BYTES,
        REPLY: 0,
    }


def test_shared_blocks_are_split_from_moment_to_moment() -> None:
    shop = Shop()
    shop.sent("one", "abx", (2, 0, 1), "t")
    shop.store("abx")
    shop.wait(4)
    shop.sent("two", "aby", (1, 0, 2), "u")  # for this one b is leaf
    shop.store("y", parent="b")
    shop.wait(2)
    shop.ledger.leave("one", shop.now_s)
    shop.wait(1)
    assert shop.block_seconds("t") == {ROOT: 8 + 2, LEAF: 6, DEAD: 1}
    assert shop.block_seconds("u") == {ROOT: 1 + 1, LEAF: 1 + 2 + 2}
    assert shop.of("one") == {}


def test_an_edited_branch_is_dead_until_a_call_comes_back_to_it() -> None:
    shop = Shop()
    first = shop.sent("s", "abc", (1, 0, 2))
    shop.store("abcd")
    shop.ledger.ended(first, 0)
    edit = shop.sent("s", "ax", (1, 0, 1))
    shop.store("x", parent="a")
    shop.wait(1)
    assert shop.block_seconds() == {ROOT: 1, LEAF: 1, DEAD: 3}
    shop.ledger.ended(edit, shop.now_s)
    shop.sent("s", "abcde", (1, 3, 1))
    shop.wait(1)
    assert shop.block_seconds() == {ROOT: 2, LEAF: 1, TRUNK: 3, DEAD: 3 + 1}


def test_calls_that_run_at_once_keep_their_own_chains() -> None:
    shop = Shop()
    first = shop.sent("s", "ab", (1, 0, 1))
    second = shop.sent("s", "ac", (1, 0, 1))
    shop.store("ab")
    shop.store("c", parent="a")
    shop.wait(1)
    assert shop.block_seconds() == {ROOT: 1, LEAF: 2}
    shop.ledger.ended(first, shop.now_s)  # the newest one stays
    shop.ledger.ended(second, shop.now_s)
    shop.wait(1)
    assert shop.block_seconds() == {ROOT: 2, LEAF: 2 + 1, DEAD: 1}


def test_replies_side_by_side() -> None:
    """n = 2: the reply that is gone on with is trunk, the other is dead."""
    shop = Shop()
    shop.ledger.ended(shop.sent("s", "a", (1, 0, 0)), 0)
    shop.store("ax")
    shop.store("y", parent="x")
    shop.store("z", parent="x")  # the same first block, then another one
    shop.wait(1)
    assert shop.of("s") == {ROOT: 1, REPLY: 3}
    shop.sent("s", "axzb", (1, 2, 1))
    shop.wait(1)
    assert shop.of("s") == {ROOT: 2, REPLY: 3, TRUNK: 2}
    assert shop.block_seconds()[DEAD] == 1


def test_what_no_call_asked_for_is_unattributed_until_one_does() -> None:
    shop = Shop()
    shop.store("abz")
    shop.wait(2)
    shop.sent("s", "abc", (2, 0, 1))
    shop.wait(1)
    assert shop.block_seconds("") == {UNATTRIBUTED: 6 + 1}
    assert shop.of("s") == {ROOT: 2}


def test_copies_count_and_leave_one_by_one() -> None:
    shop = Shop()
    shop.sent("s", "a", (1, 0, 0))
    shop.store("aa")
    shop.wait(1)
    shop.remove("a")
    shop.wait(1)
    shop.remove("a")
    shop.wait(1)
    assert shop.of("s") == {ROOT: 2 + 1}


def test_a_block_that_came_back_for_another_is_held_again_from_the_next_call_on() -> None:
    shop = Shop()
    shop.ledger.ended(shop.sent("s", "ab", (2, 0, 0)), 0)
    shop.store("ab")
    shop.remove("ba")
    other = shop.sent("other", "ab", (2, 0, 0))
    shop.store("ab")
    shop.wait(1)
    assert (shop.of("s"), shop.of("other")) == ({}, {ROOT: 2})
    shop.sent("s", "abc", (2, 0, 1))
    shop.ledger.ended(other, shop.now_s)
    shop.wait(1)
    assert (shop.of("s"), shop.of("other")) == ({ROOT: 1}, {ROOT: 2 + 1})


def test_a_reply_belongs_to_the_calls_that_still_end_where_it_begins() -> None:
    shop = Shop()
    shop.ledger.ended(shop.sent("s", "ab", (2, 0, 0)), 0)
    shop.store("ab")
    shop.sent("other", "ab", (2, 0, 0))
    shop.sent("s", "abc", (2, 0, 1))
    shop.store("x", parent="b")
    shop.wait(1)
    assert shop.of("s") == {ROOT: 1}
    assert shop.of("other") == {ROOT: 1, REPLY: 1}


def test_behind_a_prompt_that_lost_its_end_nothing_is_its_reply() -> None:
    shop = Shop()
    shop.sent("s", "ab", (2, 0, 0))
    shop.store("ab")
    shop.remove("b")
    shop.store("x", parent="a")
    shop.wait(1)
    assert shop.of("s") == {ROOT: 1}
    assert shop.block_seconds("") == {UNATTRIBUTED: 1}


def test_a_prefix_that_left_while_its_call_waited_is_held_again_from_the_next_call_on() -> None:
    shop = Shop()
    shop.store("ab")
    for before, meanwhile in ("", "ba"), ("cb", "a"):
        shop.remove(before)
        call = shop.sent("s", "abc", (2, 0, 1))
        shop.remove(meanwhile)
        shop.store("abc")
        shop.ledger.ended(call, shop.now_s)
        assert shop.ledger.held_by("s", shop.now_s)[ROOT].num_bytes < 2 * BLOCK_BYTES
        shop.ledger.ended(shop.sent("s", "abc", (2, 0, 1)), shop.now_s)
        assert shop.ledger.held_by("s", shop.now_s)[ROOT].num_bytes == 2 * BLOCK_BYTES


def test_totals_stay_when_all_is_gone_and_nothing_else_does() -> None:
    shop = Shop()
    for i in range(3):
        chain = shop.sent(f"s{i}", "abc", (1, 1, 1))
        shop.store("abcd")
        shop.wait(1)
        shop.ledger.clear(shop.now_s)
        shop.ledger.leave(f"s{i}", shop.now_s)
        shop.ledger.ended(chain, shop.now_s)  # later than its session: nothing to do
    shop.wait(1)
    assert shop.block_seconds() == {ROOT: 3, TRUNK: 3, LEAF: 3, REPLY: 3}
    ledger = shop.ledger
    assert (ledger._run_of, ledger._num_copies, ledger._sessions) == ({}, {}, {})
    assert not ledger._nobody.holds


def test_warmth_compares_what_only_this_session_holds() -> None:
    shop = Shop()
    step_time = LinearStepTime(1, 2, 0, 0, 0)
    other = shop.sent("other", "a", (1, 0, 0))
    shop.ledger.ended(other, 0)
    chain = shop.sent("s", "abc", (1, 0, 2))
    shop.store("abc")
    shop.wait(3)
    assert shop.ledger.warmth("s", shop.now_s) is None  # it runs
    shop.ledger.ended(chain, shop.now_s)
    shop.wait(7)
    warmth = shop.ledger.warmth("s", shop.now_s)
    assert warmth is not None
    assert (warmth.idle_s, warmth.own_bytes, warmth.idle_byte_seconds) == (7, 20, 7 * 20)
    assert warmth.prefill_s(step_time) == 1 + 2 * 2  # b and c; a stays for the other one
    assert warmth.idle_cost_s(pool_bytes=40) == 3.5
    assert warmth.break_even_s(step_time, pool_bytes=40) == 10
    idle = shop.ledger.warmth("other", shop.now_s)
    assert idle is not None
    assert (idle.own_bytes, idle.prefill_s(step_time), idle.break_even_s(step_time, 40)) == (
        0,
        0,
        None,
    )
    assert shop.ledger.warmth("nobody", shop.now_s) is None


@dataclass(eq=False)
class PlainChain:
    session: int
    tip: BlockHash | None = None
    is_running: bool = True
    ended_s: float = 0.0


@dataclass
class Plain:
    """The same, block by block: everything is looked at again whenever time passes."""

    copies: Counter[BlockHash] = field(default_factory=Counter)
    holders: dict[BlockHash, dict[PlainChain, KvZone]] = field(default_factory=dict)
    held_before: dict[BlockHash, str] = field(default_factory=dict)  # by whose tenant
    chains: dict[int, list[PlainChain]] = field(default_factory=dict)
    seconds: Counter[Owner] = field(default_factory=Counter)
    own_seconds: Counter[tuple[int, KvZone]] = field(default_factory=Counter)

    def wait(self, seconds: float) -> None:
        for block, num_copies in self.copies.items():
            share = num_copies * seconds
            holders = self.holders.get(block, {})
            for chain, zone in holders.items():
                self.seconds[Owner(tenant_of(chain.session), zone)] += share / len(holders)
                self.own_seconds[chain.session, zone] += share / len(holders)
            if not holders:
                tenant = self.held_before.get(block)
                self.seconds[Owner(tenant, DEAD) if tenant else NOBODY] += share

    def store(self, block: BlockHash, parent: BlockHash | None) -> None:
        if block not in self.copies and not self.holders.get(block):
            behind = self.holders.get(parent, {}) if parent else {}
            found = [c for c, zone in behind.items() if zone is REPLY or c.tip == parent]
            self.holders[block] = dict.fromkeys(found, REPLY)
        self.copies[block] += 1

    def remove(self, block: BlockHash) -> None:
        self.copies[block] -= 1
        if not self.copies[block]:
            del self.copies[block]
            for chain in self.holders.pop(block, {}):
                chain.tip = None if chain.tip == block else chain.tip
            self.held_before.pop(block, None)

    def sent(self, session: int, blocks: Sequence[BlockHash], ends: Zones) -> PlainChain:
        chains = self.chains.setdefault(session, [])
        if not chains or chains[-1].is_running:
            chains.append(PlainChain(session))
        chain = chains[-1]
        self.let_go(chain)
        chain.is_running = True
        for i, block in enumerate(blocks):
            self.holders.setdefault(block, {})[chain] = HELD_ZONES[sum(i >= end for end in ends)]
        chain.tip = blocks[-1] if blocks else None
        return chain

    def ended(self, chain: PlainChain) -> None:
        chain.is_running = False
        chains = self.chains.get(chain.session, [])
        if chain in chains[:-1]:
            chains.remove(chain)
            self.let_go(chain)

    def leave(self, session: int) -> None:
        for chain in self.chains.pop(session, []):
            self.let_go(chain)
        for zone in HELD_ZONES:
            self.own_seconds.pop((session, zone), None)

    def let_go(self, chain: PlainChain) -> None:
        chain.tip = None
        for block, holders in self.holders.items():
            if holders.pop(chain, None) and not holders and block in self.copies:
                self.held_before[block] = tenant_of(chain.session)


def tenant_of(session: int) -> str:
    return "tu"[session % 2]


@dataclass
class Running:
    request_id: int
    token_ids: list[int]  # with those that are still to be sampled
    num_computed: int
    chain: Chain
    plain: PlainChain

    @property
    def keys(self) -> list[BlockHash]:
        return list(block_hashes(self.token_ids, 2))


class Both:
    """The ledger and the plain model behind one block cache, in blocks of two tokens."""

    def __init__(self, num_blocks: int) -> None:
        self.cache = BlockCache(num_blocks, 2, record_events=True)
        self.ledger, self.plain = Ledger(2, BLOCK_BYTES), Plain()
        self.now_s = 0.0
        self.request_ids = count()
        self.running: list[Running] = []
        self.past: dict[int, list[int]] = {}  # of each session: its newest prompt and reply

    def send(self, session: int, kept: int, new: list[int], sampled: list[int], root: int) -> None:
        """Go on with so many of the session's tokens."""
        past = self.past.get(session, [])[:kept]
        prompt = [*past, *new]
        root = min(root, len(prompt))
        trunk = max(len(past), root)
        ends = (root // 2, trunk // 2, len(prompt) // 2)
        zones = (root, trunk - root, len(prompt) - trunk)
        blocks = list(block_hashes(prompt, 2))
        tenant = tenant_of(session)
        chain = self.ledger.sent(session, tenant, blocks, zone_tokens(zones), self.now_s)
        plain = self.plain.sent(session, blocks, ends)
        self.past[session] = [*prompt, *sampled]
        run = Running(next(self.request_ids), self.past[session], len(prompt), chain, plain)
        if self.cache.allocate(run.request_id, run.keys, len(prompt)) is None:
            self.end(run)
        else:
            self.running.append(run)

    def decode(self, run: Running) -> None:
        if run.num_computed + 1 < len(run.token_ids) and self.cache.append(
            run.request_id, run.keys, run.num_computed + 1
        ):
            run.num_computed += 1
        else:
            self.running.remove(run)
            self.cache.free(run.request_id)
            self.end(run)

    def end(self, run: Running) -> None:
        self.ledger.ended(run.chain, self.now_s)
        self.plain.ended(run.plain)

    def leave(self, session: int) -> None:
        self.ledger.leave(session, self.now_s)
        self.plain.leave(session)

    def publish(self) -> None:
        for event in self.cache.take_events():
            match event:
                case Stored(keys, parent):
                    for key in keys:
                        self.store(key, parent)
                        parent = key
                case Removed(key):
                    self.ledger.remove(key, self.now_s)
                    self.plain.remove(key)
                case Cleared():
                    self.ledger.clear(self.now_s)
                    for key in list(self.plain.copies.elements()):
                        self.plain.remove(key)

    def store(self, key: BlockHash, parent: BlockHash | None) -> None:
        self.ledger.store(key, parent, self.now_s)
        self.plain.store(key, parent)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.plain.wait(seconds)

    def compare(self) -> None:
        held = held_now(self.ledger, self.now_s)
        expected = {o: s * BLOCK_BYTES for o, s in self.plain.seconds.items() if s}
        assert {o: h.byte_seconds for o, h in held.items()} == pytest.approx(expected)
        total = sum(held.num_bytes for held in self.ledger.held(self.now_s).values())
        assert total == pytest.approx(self.plain.copies.total() * BLOCK_BYTES)
        for session in self.plain.chains:
            mine = self.ledger.held_by(session, self.now_s)
            for zone in HELD_ZONES:
                seconds = self.plain.own_seconds[session, zone]
                assert mine[zone].byte_seconds == pytest.approx(seconds * BLOCK_BYTES)


tokens = st.lists(st.integers(0, 1), min_size=1, max_size=8)
kept = st.one_of(st.just(99), st.just(99), st.integers(0, 24))  # most calls only add
sends = st.tuples(st.integers(0, 3), kept, tokens, tokens, st.sampled_from([0, 3, 4]))
decodes = st.integers(0, 9)
steps = st.one_of(sends, decodes, decodes, decodes, st.sampled_from(["leave", "reset"]))


@given(
    st.lists(st.tuples(steps, st.sampled_from([0.0, 0.5, 1.0, 3.0])), max_size=80),
    st.integers(6, 24),
)
def test_it_is_the_plain_model(
    happens: list[tuple[tuple[int, int, list[int], list[int], int] | int | str, float]],
    num_blocks: int,
) -> None:
    """Calls of several sessions at once on a small pool: a number lets one of them sample."""
    both = Both(num_blocks)
    for step, seconds in happens:
        match step:
            case int() if both.running:
                both.decode(both.running[step % len(both.running)])
            case "leave":
                both.leave(int(seconds))
            case "reset":
                both.cache.reset()
            case (session, kept, new, sampled, root):
                both.send(session, kept, new, sampled, root)
        both.publish()
        both.wait(seconds)
        both.compare()


names = st.sampled_from(named(*"abcdef"))


@given(
    st.lists(
        st.tuples(st.sampled_from(["store", "remove", "send", "leave"]), names, st.integers(0, 6)),
        max_size=40,
    )
)
def test_nothing_is_lost_whatever_an_engine_says(
    happens: list[tuple[str, BlockHash, int]],
) -> None:
    """Blocks of one chain come and leave in any order, with or without the one before."""
    ledger, chain, copies = Ledger(1, BLOCK_BYTES), named(*"abcdef"), Counter[BlockHash]()
    byte_seconds = 0
    for now_s, (what, block, number) in enumerate(happens):
        if what == "store":
            place = chain.index(block)
            ledger.store(block, chain[place - 1] if place and number else None, now_s)
            copies[block] += 1
        elif what == "remove" and copies[block]:
            ledger.remove(block, now_s)
            copies[block] -= 1
        elif what == "send":
            sent = ledger.sent(number % 3, "t", chain[:number], {Zone.LEAF: number}, now_s)
            ledger.ended(sent, now_s)
        elif what == "leave":
            ledger.leave(number % 3, now_s)
        byte_seconds += copies.total() * BLOCK_BYTES
        held = ledger.held(now_s + 1).values()
        assert sum(each.num_bytes for each in held) == pytest.approx(copies.total() * BLOCK_BYTES)
        assert sum(each.byte_seconds for each in held) == pytest.approx(byte_seconds)
