"""Each rule of each provider's prompt cache: hand-worked cases, exactly, and slow obvious twins."""

from dataclasses import replace
from decimal import Decimal
from functools import cache
from hashlib import blake2b
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duramen.experiments.prices.call import PricedCall, Usage
from duramen.experiments.prices.money import Prices, Tariff, Tier
from duramen.experiments.prices.prefix_tree import PrefixTree
from duramen.experiments.prices.provider_cache import ProviderCache
from duramen.experiments.prices.rules import CacheRules
from duramen.layout.blocks import block_hashes
from duramen.layout.errors import PriceError

# a price list like Anthropic's at $1: writes 1.25x and 2x, reads 0.1x
DOLLAR = Tariff(
    "test/dollar",
    Prices(
        input=Decimal(1),
        output=Decimal(5),
        cached_read=Decimal("0.1"),
        write_5m=Decimal("1.25"),
        write_1h=Decimal(2),
    ),
)
MARKED = CacheRules("breakpoints", 1024, 300.0, lookback_positions=20, write="write_5m")
GRANULAR = CacheRules("automatic", 1024, 300.0, granularity_tokens=128)
UNITS = CacheRules("units", 64, 7200.0)


@cache
def tokens(block):
    """Token ids of a block (name, length): other names share none."""
    name, length = block
    return [int.from_bytes(blake2b(f"{name} {i}".encode()).digest()[:3]) for i in range(length)]


def call(blocks, time_s=0.0, output=0, **fields):
    """A call whose prompt is these blocks, each (name, length)."""
    ids = [token_id for block in blocks for token_id in tokens(block)]
    ends = list(accumulate(length for _, length in blocks))
    end_keys = [blake2b(repr(ids[:end]).encode(), digest_size=16).digest() for end in ends]
    keys = list(block_hashes(ids, 16))
    return PricedCall(time_s, len(ids), output, keys, ends, end_keys, **fields)


@cache
def made(blocks):
    """As `call`, with keys made from names alone: for prompts too long to write out."""
    ends = list(accumulate(length for _, length in blocks))
    end_keys = [
        blake2b(repr(blocks[: n + 1]).encode(), digest_size=16).digest() for n in range(len(ends))
    ]
    keys = []
    for number in range(ends[-1] // 16):
        whole = [n for n, end in enumerate(ends) if end < (number + 1) * 16]
        keys.append(
            blake2b(repr((blocks[: len(whole) + 1], number)).encode(), digest_size=16).digest()
        )
    return PricedCall(0.0, ends[-1], 0, keys, ends, end_keys)


def serve(rules, *calls):
    provider = ProviderCache(rules)
    return [provider.serve(one) for one in calls]


# Automatic: the leading run of granules


def test_a_hit_is_whole_granules_from_the_minimum_on():
    first = call([("a", 2006)])
    again = call([("a", 1990), ("b", 16)])
    cold, warm = serve(GRANULAR, first, again)
    assert cold == Usage(uncached=2006)
    assert warm == Usage(uncached=2006 - 1920, cached_read=1920)


@pytest.mark.parametrize(
    ("common", "hit"),
    [(1023, 0), (1024, 1024), (1151, 1024), (1152, 1152)],  # below, at, between two granules, next
)
def test_the_common_prefix_must_reach_the_minimum(common, hit):
    usages = serve(GRANULAR, call([("a", 3000)]), call([("a", common), ("b", 2000)]))
    assert usages[1] == Usage(uncached=common + 2000 - hit, cached_read=hit)


def test_a_prompt_below_the_minimum_is_not_cached():
    short = call([("a", 1023)])
    assert serve(GRANULAR, short, short) == [Usage(uncached=1023)] * 2
    long = call([("a", 1023), ("b", 1000)])
    assert serve(GRANULAR, short, long)[1].cached_read == 0


def test_the_last_token_is_always_computed():
    prompt = call([("a", 2048)])
    assert serve(GRANULAR, prompt, prompt)[1] == Usage(uncached=128, cached_read=1920)


@pytest.mark.parametrize(("age_s", "hit"), [(299.0, 1920), (300.0, 1920), (300.5, 0)])
def test_an_entry_lapses_after_its_life(age_s, hit):
    usages = serve(GRANULAR, call([("a", 2000)]), call([("a", 2000)], time_s=age_s))
    assert usages[1].cached_read == hit


@pytest.mark.parametrize(("refreshed", "hit"), [(True, 1920), (False, 0)])
def test_use_starts_the_life_anew_where_it_does(refreshed, hit):
    times = (0.0, 200.0, 400.0)
    prompts = [call([("a", 2000)], time_s=time_s) for time_s in times]
    usages = serve(replace(GRANULAR, refreshed=refreshed), *prompts)
    assert [usage.cached_read for usage in usages] == [0, 1920, hit]


def test_only_what_was_used_stays():
    shorter = [call([("a", 1280)], time_s=time_s) for time_s in (200.0, 400.0)]
    whole = call([("a", 2560)], time_s=450.0)
    usages = serve(GRANULAR, call([("a", 2560)]), *shorter, whole)
    assert usages[3].cached_read == 1280


def test_a_change_in_front_loses_everything():
    usages = serve(
        GRANULAR, call([("clock 1", 16), ("a", 4000)]), call([("clock 2", 16), ("a", 4000)])
    )
    assert usages[1].cached_read == 0


# Breakpoints


def test_what_lies_behind_the_hit_is_written():
    first = call([("root", 2000), ("u1", 100)], output=7)
    second = call([("root", 2000), ("u1", 100), ("a1", 50), ("u2", 30)])
    cold, warm = serve(MARKED, first, second)
    assert cold == Usage(write_5m=2100, output=7)
    assert warm == Usage(cached_read=2100, write_5m=80)


def test_tokens_behind_the_last_breakpoint_are_plain_input():
    first = call([("root", 2000), ("u1", 100)], marks=[0])
    second = call([("root", 2000), ("u2", 70)], marks=[0])
    assert serve(MARKED, first, second) == [
        Usage(uncached=100, write_5m=2000),
        Usage(uncached=70, cached_read=2000),
    ]


def test_without_breakpoints_nothing_is_cached():
    bare = call([("root", 2000)], marks=[])
    assert serve(MARKED, bare, bare) == [Usage(uncached=2000)] * 2


def test_the_root_hits_where_the_rest_changed():
    usages = serve(MARKED, call([("root", 2000), ("x", 500)]), call([("root", 2000), ("y", 600)]))
    assert usages[1] == Usage(cached_read=2000, write_5m=600)


def test_below_the_minimum_there_is_no_premium():
    short = call([("root", 900), ("u", 123)])
    assert serve(MARKED, short, short) == [Usage(uncached=1023)] * 2


def test_the_minimum_counts_from_the_start_of_the_prompt():
    """The root alone is too short to be an entry; with what follows it is long enough."""
    usages = serve(MARKED, call([("root", 900), ("x", 124)]), call([("root", 900), ("y", 124)]))
    assert usages == [Usage(write_5m=1024)] * 2


def grown(num_blocks, time_s=0.0, **fields):
    return call([("root", 1024), *((f"m{n}", 16) for n in range(num_blocks - 1))], time_s, **fields)


@pytest.mark.parametrize(
    ("added", "hit"),
    [(19, 1184), (20, 0)],  # the mark itself is the first of the 20 positions
)
def test_looking_back(added, hit):
    first = grown(11, marks=[10])
    second = grown(11 + added, marks=[10 + added])
    usages = serve(MARKED, first, second)
    assert usages[1] == Usage(cached_read=hit, write_5m=second.num_tokens - hit)


def test_looking_back_too_far_falls_to_the_marked_root():
    usages = serve(MARKED, grown(11), grown(11 + 21))
    assert usages[1].cached_read == 1024


def test_a_session_marks_where_its_last_call_ended():
    usages = serve(MARKED, grown(11, session="s"), grown(11 + 40, session="s"))
    assert usages[1].cached_read == 1184
    apart = serve(MARKED, grown(11, session="s"), grown(11 + 40, session="t"))
    assert apart[1].cached_read == 1024


def test_without_a_limit_any_entry_is_found():
    rules = replace(MARKED, lookback_positions=None)
    assert serve(rules, grown(11), grown(11 + 200))[1].cached_read == 1184


def test_a_prefix_that_was_never_marked_is_not_there():
    """GPT-5.6 and later: no falling back to the longest unmarked prefix."""
    rules = replace(MARKED, lookback_positions=None)
    first = call([("root", 2000), ("stable", 3000), ("x", 100)])
    second = call([("root", 2000), ("stable", 3000), ("y", 100)])
    assert serve(rules, first, second)[1].cached_read == 2000
    marked = [replace(one, marks=[1, 2]) for one in (first, second)]
    assert serve(rules, *marked)[1].cached_read == 5000


@pytest.mark.parametrize(("age_s", "hit"), [(299.0, 2000), (300.0, 2000), (300.5, 0)])
def test_a_marked_entry_lapses(age_s, hit):
    usages = serve(MARKED, call([("a", 2000)]), call([("a", 2000)], time_s=age_s))
    assert usages[1] == Usage(cached_read=hit, write_5m=2000 - hit)


@pytest.mark.parametrize(("refreshed", "hit"), [(True, 2000), (False, 0)])
def test_reading_starts_a_marked_entrys_life_anew(refreshed, hit):
    prompts = [call([("a", 2000)], time_s=time_s) for time_s in (0.0, 200.0, 400.0)]
    usages = serve(replace(MARKED, refreshed=refreshed), *prompts)
    assert [usage.cached_read for usage in usages] == [0, 2000, hit]


@pytest.mark.parametrize("rules", [MARKED, replace(UNITS, ttl_s=300.0)])
def test_reading_what_is_not_marked_any_more_starts_its_life_anew(rules):
    longer = [[("a", 2000), (name, 100)] for name in "bc"]
    prompts = [call([("a", 2000)]), call(longer[0], 200.0, marks=[1]), call(longer[1], 400.0)]
    assert [usage.cached_read for usage in serve(rules, *prompts)] == [0, 2000, 2000]


def test_five_breakpoints_are_refused():
    with pytest.raises(PriceError, match="5 breakpoints in a call; the provider takes 4"):
        serve(MARKED, call([("a", 300)] * 6, marks=[0, 1, 2, 3, 4]))


# Units: DeepSeek's two published examples


def test_a_longer_conversation_hits_the_whole_prompt_before():
    usages = serve(UNITS, call([("a", 100), ("b", 60)]), call([("a", 100), ("b", 60), ("c", 40)]))
    assert usages[1] == Usage(uncached=40, cached_read=160)


def test_a_common_prefix_hits_from_the_third_prompt_on():
    usages = serve(UNITS, *(call([("a", 100), (name, 60)]) for name in "bcd"))
    assert [usage.cached_read for usage in usages] == [0, 0, 100]


def test_a_unit_below_the_minimum_is_none():
    usages = serve(UNITS, *(call([("a", 63), (name, 60)]) for name in "bcd"))
    assert [usage.cached_read for usage in usages] == [0, 0, 0]


def test_a_unit_that_hits_starts_its_life_anew():
    """Also where the prompts have more in common than the unit: there a longer one is written."""
    a, b = ("a", 100), ("b", 60)
    later = [
        ([a], 0.0),
        ([a, b, ("x", 9)], 5000.0),
        ([a, b, ("y", 9)], 11_000.0),
        ([a, ("z", 9)], 17_000.0),
    ]
    usages = serve(UNITS, *(call(blocks, time_s) for blocks, time_s in later))
    assert [usage.cached_read for usage in usages] == [0, 100, 100, 100]


# No cache, and what every kind has in common


def test_no_cache():
    prompt = call([("a", 5000)], output=3)
    assert serve(CacheRules("none"), prompt, prompt) == [Usage(uncached=5000, output=3)] * 2


def test_calls_must_be_in_order_of_time():
    with pytest.raises(PriceError, match=r"a call at 4\.0 s comes after one at 5\.0 s"):
        serve(GRANULAR, call([("a", 20)], time_s=5.0), call([("a", 20)], time_s=4.0))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"time_s": float("nan")}, "finite"),
        ({"num_tokens": 0}, "0 prompt"),
        ({"output_tokens": -1}, "-1 output"),
        ({"keys": []}, "0 keys do not cover 40"),
        ({"end_keys": []}, "have 0 keys"),
        ({"ends": [10, 30]}, "do not ascend to the prompt's 40"),
        ({"ends": [50, 40]}, "do not ascend"),
        ({"ends": [-1, 40]}, "do not ascend"),
        ({"marks": [2]}, "not among 2 blocks"),
        ({"marks": [-1]}, "not among 2 blocks"),
    ],
)
def test_a_call_that_makes_no_sense(wrong, message):
    with pytest.raises(PriceError, match=message):
        replace(call([("a", 10), ("b", 30)]), **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttl_s": 0.0},
        {"ttl_s": float("nan")},
        {"granularity_tokens": 100},
        {"granularity_tokens": 0},
        {"min_tokens": -1},
        {"lookback_positions": 0},
        {"max_breakpoints": 0},
    ],
)
def test_rules_that_make_no_sense(wrong):
    with pytest.raises(PriceError, match=next(iter(wrong))):
        replace(MARKED, **wrong)


# What a write's premium is worth


@pytest.mark.parametrize(
    ("write", "reads_until_cheaper"),
    [("write_5m", 1), ("write_1h", 2)],  # 1.25 + 0.1 < 2; 2 + 0.1 > 2, but 2 + 0.2 < 3
)
def test_the_premium_is_repaid(write, reads_until_cheaper):
    rules = replace(MARKED, write=write, ttl_s=3600.0)
    prompt = made((("a", 1_000_000),))
    plain = Decimal(1)
    costs = [DOLLAR.cost(usage) for usage in serve(rules, *[prompt] * 4)]
    totals = list(accumulate(costs))
    cheaper = [total < plain * (n + 1) for n, total in enumerate(totals)]
    assert cheaper.index(True) == reads_until_cheaper
    assert all(cheaper[reads_until_cheaper:])


def test_the_premium_in_dollars():
    prompt = made((("a", 1_000_000),))
    five = [DOLLAR.cost(usage) for usage in serve(MARKED, prompt, prompt)]
    assert five == [Decimal("1.25"), Decimal("0.1")]
    hour = [
        DOLLAR.cost(usage) for usage in serve(replace(MARKED, write="write_1h"), prompt, prompt)
    ]
    assert hour == [Decimal(2), Decimal("0.1")]


def test_a_lapse_pays_the_premium_again():
    """Every 6 minutes: the short life is written each time, the long one is read."""
    prompts = [replace(made((("a", 1_000_000),)), time_s=360.0 * n) for n in range(3)]
    short = serve(MARKED, *prompts)
    long = serve(replace(MARKED, write="write_1h", ttl_s=3600.0), *prompts)
    assert sum(map(DOLLAR.cost, short)) == Decimal("3.75")
    assert sum(map(DOLLAR.cost, long)) == Decimal("2.2")


# Slow twins: plain lists of what was stored, walked from the front


class Twin:
    """Stored prefixes as (token ids or keys) -> time, nothing clever."""

    def __init__(self, rules):
        self.rules = rules
        self.stored = {}  # a prefix -> the time its life counts from
        self.seen = {}
        self.previous = {}

    def alive(self, prefix, now_s, stored=None):
        since_s = (self.stored if stored is None else stored).get(prefix)
        return since_s is not None and now_s - since_s <= self.rules.ttl_s

    def keep(self, prefix, now_s):
        if self.rules.refreshed or not self.alive(prefix, now_s):
            self.stored[prefix] = now_s

    def serve(self, one):
        hit, end = getattr(self, self.rules.kind)(one)
        written = max(end - hit, 0) if self.rules.write else 0
        kinds = {self.rules.write: written} if written else {}
        uncached = one.num_tokens - hit - written
        return Usage(uncached=uncached, cached_read=hit, output=one.output_tokens, **kinds)

    def automatic(self, one):
        size = self.rules.granularity_tokens
        if one.num_tokens < self.rules.min_tokens:
            return 0, 0
        prefixes = [tuple(one.keys[: end // 16]) for end in range(size, one.num_tokens + 1, size)]
        run = 0
        while run < len(prefixes) and self.alive(prefixes[run], one.time_s):
            run += 1
        for number, prefix in enumerate(prefixes):
            if self.rules.refreshed or number >= run:
                self.stored[prefix] = one.time_s
        hit = run * size
        while hit >= one.num_tokens:
            hit -= size
        return hit if hit >= self.rules.min_tokens else 0, len(prefixes) * size

    def breakpoints(self, one):
        last = len(one.ends) - 1
        marks = {0, last} if one.marks is None else set(one.marks)
        previous = self.previous.get(one.session)
        if one.marks is None and previous is not None and previous < last:
            marks.add(previous)
        if one.session is not None:
            self.previous[one.session] = last
        reach = self.rules.lookback_positions or len(one.ends)
        near = {p for mark in marks for p in range(mark - reach + 1, mark + 1) if p >= 0}
        found = [p for p in near if self.alive(one.end_keys[p], one.time_s)]
        for position in {*marks, *([max(found)] if found else [])}:
            if one.ends[position] >= self.rules.min_tokens:
                self.keep(one.end_keys[position], one.time_s)
        end = one.ends[max(marks)] if marks else 0
        hit = one.ends[max(found)] if found else 0
        return hit, end if end >= self.rules.min_tokens else 0

    def units(self, one):
        positions = range(len(one.ends))
        found = [p for p in positions if self.alive(one.end_keys[p], one.time_s)]
        common = [p for p in positions if self.alive(one.end_keys[p], one.time_s, self.seen)]
        for position in {len(one.ends) - 1, *found[-1:], *common[-1:]}:
            if one.ends[position] >= self.rules.min_tokens:
                self.keep(one.end_keys[position], one.time_s)
        self.seen.update(dict.fromkeys(one.end_keys, one.time_s))
        return one.ends[found[-1]] if found else 0, one.num_tokens


BLOCKS = st.lists(
    st.sampled_from([("a", 16), ("b", 16), ("c", 40), ("d", 7)]), min_size=1, max_size=6
)
CALLS = st.lists(
    st.tuples(
        BLOCKS,
        st.sampled_from([0.0, 1.0, 60.0, 101.0]),  # seconds since the call before
        st.sampled_from([None, "s", "t"]),
        st.sampled_from([None, None, (), (0,)]),
    ),
    max_size=14,
)


@pytest.mark.parametrize("refreshed", [True, False])
@pytest.mark.parametrize(
    "rules",
    [
        CacheRules("automatic", 0, 100.0),
        CacheRules("automatic", 48, 100.0, granularity_tokens=32, write="write_5m"),
        CacheRules("breakpoints", 0, 100.0, lookback_positions=2, write="write_5m"),
        CacheRules("breakpoints", 32, 100.0, lookback_positions=None, write="write_30m"),
        CacheRules("units", 24, 100.0),
    ],
)
@given(plan=CALLS)
def test_it_is_as_the_slow_twin_says(rules, refreshed, plan):
    rules = replace(rules, refreshed=refreshed)
    provider, twin, now_s = ProviderCache(rules), Twin(rules), 0.0
    for blocks, gap_s, session, marks in plan:
        now_s += gap_s
        one = call(blocks, now_s, session=session, marks=marks)
        usage = provider.serve(one)
        assert usage == twin.serve(one)
        assert usage.prompt == one.num_tokens


@given(plan=CALLS)
def test_a_longer_life_never_hits_less(plan):
    short, long = CacheRules("automatic", 0, 50.0), CacheRules("automatic", 0, 100.0)
    caches, now_s = [ProviderCache(short), ProviderCache(long)], 0.0
    for blocks, gap_s, _, _ in plan:
        now_s += gap_s
        less, more = (one.serve(call(blocks, now_s)).cached_read for one in caches)
        assert less <= more


CHAINS = st.lists(
    st.tuples(st.text("ab", max_size=12), st.sampled_from([0.0, 1.0, 4.0, 11.0])), max_size=30
)


@pytest.mark.parametrize("refreshed", [True, False])
@pytest.mark.parametrize("prune_every", [1, 3, 1024])
@example(plan=[("ba", 0.0), ("bba", 8.0), ("bb", 4.0), ("bba", 0.0)])  # outlives what is before it
@given(plan=CHAINS)
def test_the_tree_is_a_table_of_prefixes(monkeypatch_module, prune_every, refreshed, plan):
    monkeypatch_module.setattr("duramen.experiments.prices.prefix_tree._PRUNE_EVERY", prune_every)
    tree, table, now_s = PrefixTree(10.0, refreshed=refreshed), {}, 0.0
    for text, gap_s in plan:
        now_s += gap_s
        prefixes = [text[: n + 1] for n in range(len(text))]
        run = 0
        while run < len(prefixes) and now_s - table.get(prefixes[run], -99.0) <= 10.0:
            run += 1
        table.update({p: now_s for n, p in enumerate(prefixes) if refreshed or n >= run})
        keys = [blake2b(prefix.encode(), digest_size=4).digest() for prefix in prefixes]
        assert tree.use(keys, now_s) == run


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


# Tiers go by each call's own length


def test_tiers_of_calls_that_share_a_cache():
    high = Prices(Decimal(2), Decimal(10), Decimal("0.2"))
    tiers = [(), (Tier(1500, high),), (Tier(1500, high, "excess"),), (Tier(2500, high),)]
    usages = serve(GRANULAR, *[call([("a", 2000)], output=1)] * 2)
    assert sum(usages, Usage()) == Usage(2080, 1920, output=2)
    dollars = [sum(map(replace(DOLLAR, tiers=tier).cost, usages)) * 10**6 for tier in tiers]
    # base: 2,080 + 192 + 10; all doubled; 2 x 500 excess tokens doubled, of which 420 are cached
    assert dollars == [2282, 4564, 2282 + 500 + 80 + 42, 2282]
