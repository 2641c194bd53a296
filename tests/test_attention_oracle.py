"""The attention oracle against its definition in loops, torch's own attention, and itself:
in chunks, in parts, in pages, absorbed."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from duramen.kernels.attention_oracle import (
    Attended,
    KeyValues,
    Latents,
    Rules,
    Scheduled,
    UpProjection,
    attend,
    attend_mla,
    attend_mla_absorbed,
    attend_paged,
    gather_pages,
    merge,
    with_sinks,
)

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(scope="module", params=DEVICES)
def device(request: pytest.FixtureRequest) -> Any:
    return request.param


@dataclass(frozen=True)
class Case:
    """One sequence, all of whose tokens ask, in float64."""

    query: Any
    kv: KeyValues
    rules: Rules
    sinks: Any
    random: Random

    @property
    def num_tokens(self) -> int:
        return len(self.query)

    @property
    def whole(self) -> Attended:
        return attend(self.query, self.kv.positions, self.kv, self.rules)

    def to(self, device: str) -> "Case":
        kv = KeyValues(self.kv.keys.to(device), self.kv.values.to(device))
        return replace(self, query=self.query.to(device), kv=kv, sinks=self.sinks.to(device))


def optional(low: int, high: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(low, high)


rules_of_all_kinds = st.builds(
    Rules,
    scale=st.sampled_from([None, 0.3]),
    window=optional(1, 12),
    chunk=optional(1, 12),
    soft_cap=st.sampled_from([None, 2.0]),
)


@st.composite
def cases(draw: Any, rules: st.SearchStrategy[Rules] = rules_of_all_kinds) -> Case:
    num_tokens = draw(st.integers(1, 20))
    num_kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    head_dim, v_head_dim = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    seed = draw(st.integers(0, 2**16))
    normal = normals(seed)
    return Case(
        query=normal(num_tokens, num_kv_heads * group, head_dim),
        kv=KeyValues(
            normal(num_tokens, num_kv_heads, head_dim), normal(num_tokens, num_kv_heads, v_head_dim)
        ),
        rules=draw(rules),
        sinks=normal(num_kv_heads * group),
        random=Random(seed),
    )


def normals(seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


def assert_equal(found: Attended, expected: Attended) -> None:
    torch.testing.assert_close(found.output, expected.output)
    torch.testing.assert_close(found.lse, expected.lse)


def by_definition(case: Case, position: int, head: int) -> tuple[list[float], float]:
    """Output and lse of one query and head, with its sink, in plain Python."""
    rules, num_heads, head_dim = case.rules, *case.query.shape[1:]
    kv_head = head * case.kv.keys.shape[1] // num_heads
    begin = max(0, position - rules.window + 1) if rules.window else 0
    begin = max(begin, position - position % rules.chunk) if rules.chunk else begin
    scale = rules.scale or 1 / math.sqrt(head_dim)
    query = case.query[position, head].tolist()
    keys = case.kv.keys[begin : position + 1, kv_head].tolist()
    values = case.kv.values[begin : position + 1, kv_head].tolist()
    scores = [scale * dot(query, key) for key in keys]
    if cap := rules.soft_cap:
        scores = [cap * math.tanh(score / cap) for score in scores]
    total = sum(map(math.exp, scores)) + math.exp(case.sinks[head].item())
    weights = [math.exp(score) / total for score in scores]
    return [dot(weights, column) for column in zip(*values, strict=True)], math.log(total)


def dot(a: Any, b: Any) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


@given(case=cases())
def test_it_is_the_definition(device, case):
    found = with_sinks(case.to(device).whole, case.sinks.to(device))
    position = case.random.randrange(case.num_tokens)
    head = case.random.randrange(case.query.shape[1])
    output, lse = by_definition(case, position, head)
    assert found.output[position, head].tolist() == pytest.approx(output, abs=1e-12)
    assert found.lse[position, head].item() == pytest.approx(lse, abs=1e-12)


@given(
    case=cases(st.builds(Rules, scale=st.just(0.3), window=optional(1, 9), chunk=optional(1, 9)))
)
def test_it_is_torch_s_attention(device, case):
    """A sink is there a key of its own: score 0, its logit added, value 0."""
    case = case.to(device)
    group = case.query.shape[1] // case.kv.keys.shape[1]
    query = case.query.transpose(0, 1)
    keys, values = (
        torch.nn.functional.pad(each.transpose(0, 1), (0, 0, 0, 1)).repeat_interleave(group, 0)
        for each in (case.kv.keys, case.kv.values)
    )
    seen = case.rules.sees(case.kv.positions, case.kv.positions)
    bias = torch.zeros_like(seen, dtype=torch.float64).masked_fill(~seen, -torch.inf)
    sinks = case.sinks[:, None, None].expand(-1, case.num_tokens, 1)
    bias = torch.cat([bias.expand(len(sinks), -1, -1), sinks], dim=-1)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, keys, values, attn_mask=bias, scale=case.rules.scale
    )
    found = with_sinks(case.whole, case.sinks).output
    torch.testing.assert_close(found, expected.transpose(0, 1))


@given(case=cases(st.just(Rules())))
def test_without_rules_it_is_torch_s_causal_gqa(device, case):
    case = case.to(device)
    query, keys, values = (
        each.transpose(0, 1) for each in (case.query, case.kv.keys, case.kv.values)
    )
    expected = torch.nn.functional.scaled_dot_product_attention(
        query[None], keys[None], values[None], is_causal=True, enable_gqa=True
    )
    torch.testing.assert_close(case.whole.output, expected[0].transpose(0, 1))


@settings(max_examples=40)
@given(case=cases())
def test_a_prefill_in_two_chunks_is_the_whole_at_every_split(device, case):
    case = case.to(device)
    for split in range(1, case.num_tokens):
        first, then = case.kv.positions.tensor_split([split])
        chunks = [
            attend(case.query[:split], first, case.kv.part(0, split), case.rules),
            attend(case.query[split:], then, case.kv, case.rules),
        ]
        assert_equal(joined(chunks), case.whole)


def joined(rows: list[Attended]) -> Attended:
    return Attended(torch.cat([r.output for r in rows]), torch.cat([r.lse for r in rows]))


class Pages:
    """A cache of one sequence in shuffled blocks, each token written on its own."""

    def __init__(self, block_size: int, num_tokens: int, random: Random, device: str) -> None:
        self.block_size = block_size
        self.num_blocks = -(-num_tokens // block_size) + 3
        order = random.sample(range(self.num_blocks), self.num_blocks)
        self.block_table = torch.tensor(order, device=device)

    def empty(self, rows: Any) -> Any:
        """What was never written is nan, and would show."""
        return rows.new_full((self.num_blocks, self.block_size, *rows.shape[1:]), torch.nan)

    def write(self, cache: Any, rows: Any, start: int) -> None:
        for position, row in enumerate(rows, start):
            block = self.block_table[position // self.block_size]
            cache[block, position % self.block_size] = row


@given(case=cases(), block_size=st.integers(1, 8), most=st.integers(1, 6))
def test_a_paged_prefill_in_chunks_is_the_whole(device, case, block_size, most):
    case = case.to(device)
    pages = Pages(block_size, case.num_tokens, case.random, device)
    keys, values = pages.empty(case.kv.keys), pages.empty(case.kv.values)
    steps, begin = [], 0
    while begin < case.num_tokens:
        end = min(case.num_tokens, begin + case.random.randint(1, most))
        pages.write(keys, case.kv.keys[begin:end], begin)
        pages.write(values, case.kv.values[begin:end], begin)
        batch = [Scheduled(pages.block_table, end - begin, end)]
        steps.append(attend_paged(case.query[begin:end], keys, values, batch, case.rules))
        begin = end
    assert_equal(joined(steps), case.whole)


@settings(max_examples=40)
@given(case=cases(), block_size=st.integers(1, 4), data=st.data())
def test_a_paged_batch_is_its_sequences_one_by_one(device, case, block_size, data):
    """Prefixes of one text in the same pages, each with some newest tokens that ask."""
    case = case.to(device)
    pages = Pages(block_size, case.num_tokens, case.random, device)
    keys, values = pages.empty(case.kv.keys), pages.empty(case.kv.values)
    pages.write(keys, case.kv.keys, 0)
    pages.write(values, case.kv.values, 0)
    lengths = data.draw(st.lists(st.integers(1, case.num_tokens), min_size=1, max_size=4))
    batch = [
        Scheduled(pages.block_table, data.draw(st.integers(1, length)), length)
        for length in lengths
    ]
    asked = [slice(each.num_tokens - each.num_new, each.num_tokens) for each in batch]
    query = torch.cat([case.query[rows] for rows in asked])
    expected = joined([Attended(case.whole.output[r], case.whole.lse[r]) for r in asked])
    assert_equal(attend_paged(query, keys, values, batch, case.rules), expected)


@settings(max_examples=40)
@given(case=cases(), data=st.data())
def test_parts_merge_to_the_whole_in_any_order(device, case, data):
    case = case.to(device)
    cuts = data.draw(st.lists(st.integers(0, case.num_tokens), max_size=5))
    bounds = sorted([0, *cuts, case.num_tokens])  # equal cuts: a part without keys
    parts = [
        attend(case.query, case.kv.positions, case.kv.part(begin, end), case.rules)
        for begin, end in pairwise(bounds)
    ]
    shuffled = data.draw(st.permutations(parts))
    assert_equal(merge(shuffled), case.whole)
    middle = data.draw(st.integers(0, len(shuffled)))
    halves = [merge(half) for half in (shuffled[:middle], shuffled[middle:]) if half]
    assert_equal(merge(halves), case.whole)


@settings(max_examples=40)
@given(case=cases(), num_sequences=st.integers(1, 3), data=st.data())
def test_a_shared_prefix_is_attended_to_once_for_all(device, case, num_sequences, data):
    """Cascade: the queries of all sequences over the prefix in one go, each over its own suffix."""
    case = case.to(device)
    num_shared = data.draw(st.integers(0, case.num_tokens - 1))
    own = case.kv.positions[num_shared:]
    normal = normals(case.random.randrange(2**16))
    suffixes = [
        KeyValues(
            normal(len(own), *case.kv.keys.shape[1:]).to(device),
            normal(len(own), *case.kv.values.shape[1:]).to(device),
            num_shared,
        )
        for _ in range(num_sequences)
    ]
    queries = [case.query[num_shared:] * (1 + i) for i in range(num_sequences)]
    prefix = case.kv.part(0, num_shared)
    shared = attend(torch.cat(queries), own.repeat(num_sequences), prefix, case.rules)
    alone = joined(
        [attend(q, own, kv, case.rules) for q, kv in zip(queries, suffixes, strict=True)]
    )
    expected = [
        attend(q, own, concatenated(prefix, kv), case.rules)
        for q, kv in zip(queries, suffixes, strict=True)
    ]
    assert_equal(merge([shared, alone]), joined(expected))
    sinks = case.sinks
    torch.testing.assert_close(
        with_sinks(merge([shared, alone]), sinks).output,
        joined([with_sinks(each, sinks) for each in expected]).output,
    )


def concatenated(first: KeyValues, then: KeyValues) -> KeyValues:
    return KeyValues(torch.cat([first.keys, then.keys]), torch.cat([first.values, then.values]))


@given(case=cases())
def test_a_window_or_chunk_of_at_least_the_length_is_none(device, case):
    case = case.to(device)
    full = replace(case.rules, window=None, chunk=None)
    expected = replace(case, rules=full).whole
    for rules in (replace(full, window=case.num_tokens), replace(full, chunk=case.num_tokens)):
        assert_equal(replace(case, rules=rules).whole, expected)


@given(case=cases(st.just(Rules())))
def test_a_window_of_one_is_the_token_s_own_value(device, case):
    case = replace(case.to(device), rules=Rules(window=1))
    group = case.query.shape[1] // case.kv.keys.shape[1]
    torch.testing.assert_close(case.whole.output, case.kv.values.repeat_interleave(group, dim=1))


@given(case=cases())
def test_chunks_are_attended_to_as_if_alone(device, case):
    case = case.to(device)
    chunk = case.random.randint(1, case.num_tokens)
    rules = replace(case.rules, chunk=chunk)
    alone = []
    for begin in range(0, case.num_tokens, chunk):
        part = case.kv.part(begin, min(begin + chunk, case.num_tokens))
        query = case.query[begin : begin + chunk]
        moved = replace(part, start=0)
        alone.append(attend(query, moved.positions, moved, replace(rules, chunk=None)))
    assert_equal(replace(case, rules=rules).whole, joined(alone))


def test_a_query_that_sees_nothing_counts_for_nothing():
    normal = normals(0)
    kv = KeyValues(normal(4, 1, 2), normal(4, 1, 3))
    nothing = attend(normal(2, 2, 2), torch.tensor([20, 30]), kv, Rules(window=5))
    assert nothing.output.tolist() == [[[0.0] * 3] * 2] * 2
    assert nothing.lse.tolist() == [[-math.inf] * 2] * 2
    seen = attend(normal(2, 2, 2), torch.tensor([4, 5]), kv)
    assert_equal(merge([nothing, seen, nothing]), seen)
    assert_equal(merge([nothing, nothing]), nothing)
    assert with_sinks(nothing, torch.tensor([1.0, 2.0])).lse.tolist() == [[1.0, 2.0]] * 2


@dataclass(frozen=True)
class MlaCase:
    query: Any
    latents: Latents
    up: UpProjection
    rules: Rules

    def attended(self, form: Any, begin: int = 0, end: int | None = None) -> Attended:
        """All queries over the latents [begin, end)."""
        positions = torch.arange(len(self.query), device=self.query.device)
        latents = Latents(self.latents.rows[begin:end], begin)
        return form(self.query, positions, latents, self.up, self.rules)


@st.composite
def mla_cases(draw: Any) -> MlaCase:
    small = st.integers(1, 6)
    num_tokens, num_heads = draw(st.integers(1, 16)), draw(small)
    rank, nope, rope, v_head_dim = draw(small), draw(small), draw(small), draw(small)
    normal = normals(draw(st.integers(0, 2**16)))
    weight = normal(num_heads * (nope + v_head_dim), rank)
    return MlaCase(
        query=normal(num_tokens, num_heads, nope + rope),
        latents=Latents(normal(num_tokens, rank + rope)),
        up=UpProjection.from_kv_b_proj(weight, num_heads, nope),
        rules=draw(rules_of_all_kinds),
    )


@given(case=mla_cases())
def test_absorbed_mla_is_naive_mla(case):
    assert_equal(case.attended(attend_mla_absorbed), case.attended(attend_mla))


forms = st.sampled_from([attend_mla, attend_mla_absorbed])


@given(case=mla_cases(), first=forms, then=forms, data=st.data())
def test_mla_merges_naive_and_absorbed_parts(case, first, then, data):
    cut = data.draw(st.integers(0, len(case.query)))
    parts = [case.attended(first, 0, cut), case.attended(then, cut)]
    assert_equal(merge(parts), case.attended(attend_mla))


@given(case=mla_cases(), block_size=st.integers(1, 5), random=st.randoms())
def test_latents_are_paged_too(case, block_size, random):
    num_tokens = len(case.query)
    pages = Pages(block_size, num_tokens, random, "cpu")
    cache = pages.empty(case.latents.rows)
    pages.write(cache, case.latents.rows, 0)
    gathered = Latents(gather_pages(cache, pages.block_table, num_tokens))
    found = replace(case, latents=gathered).attended(attend_mla_absorbed)
    assert_equal(found, case.attended(attend_mla))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("form", [attend_mla, attend_mla_absorbed])
def test_sums_run_in_float32_at_least(dtype, form):
    """What the same rounded values give in float64, to float32's accuracy."""
    normal = normals(1)
    rounded = [normal(*shape).to(dtype) for shape in ((9, 4, 12), (9, 20), (4 * 16, 16))]
    found, exact = (
        MlaCase(query, Latents(rows), UpProjection.from_kv_b_proj(weight, 4, 8), Rules()).attended(
            form
        )
        for query, rows, weight in (rounded, [each.double() for each in rounded])
    )
    assert found.output.dtype == torch.float32
    torch.testing.assert_close(found.output.double(), exact.output, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Rules(window=0), "window must be above 0, not 0"),
        (lambda: Rules(soft_cap=-1.0), "soft_cap must be above 0, not -1.0"),
        (
            lambda: KeyValues(torch.zeros(3, 2, 4), torch.zeros(3, 1, 4)),
            r"keys and values are of other tokens or heads: \[3, 2, 4\] and \[3, 1, 4\]",
        ),
        (
            lambda: attend(
                torch.zeros(1, 3, 4),
                torch.zeros(1),
                KeyValues(torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)),
            ),
            r"queries and keys do not fit: \[1, 3, 4\] and \[1, 2, 4\]",
        ),
        (
            lambda: gather_pages(torch.zeros(9, 4, 1), torch.tensor([1, 2]), 9),
            "9 tokens need 3 blocks of 4, the block table has 2",
        ),
        (
            lambda: attend_paged(
                torch.zeros(3, 1, 1),
                torch.zeros(1, 4, 1, 1),
                torch.zeros(1, 4, 1, 1),
                [Scheduled(torch.tensor([0]), 2, 4)],
            ),
            "3 queries, but the batch has 2 new tokens",
        ),
    ],
)
def test_what_does_not_fit_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        wrong()
