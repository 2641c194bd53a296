"""layout.blocks: block identity, prefix matches, common prefixes, reusable tokens."""

from array import array
from collections.abc import Callable, Sequence
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.layout.blocks import (
    ROOT,
    BlockHash,
    block_hashes,
    common_prefix,
    match_prefix,
    reusable_tokens,
)
from duramen.layout.errors import LayoutError

PROMPT = [10, 11, 12, 13, 20, 21, 22, 23, 30, 31]  # two full blocks of 4 and a tail of 2

token_lists = st.lists(st.integers(0, 2), max_size=40)


def hashes(token_ids: Sequence[int], salt: str = "") -> list[BlockHash]:
    return [*block_hashes(token_ids, 4, salt)]


def test_only_full_blocks_are_hashed() -> None:
    assert [len(hashes(PROMPT[:end])) for end in (0, 3, 4, 7, 8, 10)] == [0, 0, 1, 1, 2, 2]
    assert {len(block_hash) for block_hash in hashes(PROMPT)} == {16}


def test_hashes_are_the_same_in_every_process() -> None:
    # a change of these bytes would silently orphan whatever was stored under them
    assert [block_hash.hex() for block_hash in hashes(PROMPT)] == [
        "b7915af4c07e6d648ed40b64ee4a95d4",
        "607ef01114a26a94f1b257785f1e96e1",
    ]
    assert hashes(PROMPT, salt="tenant")[0].hex() == "70720ea81094c918d5612bf337d5c253"


def test_a_hash_covers_everything_before_it() -> None:
    first, second = hashes(PROMPT)
    changed_first, changed_second = hashes([99, *PROMPT[1:]])
    assert first != changed_first
    assert second != changed_second
    assert hashes([*PROMPT[:4], 99, *PROMPT[5:]])[0] == first


def test_salts_share_no_hash() -> None:
    chains = [hashes(PROMPT, salt) for salt in ("", "a", "b")]
    assert len({block_hash for chain in chains for block_hash in chain}) == 6


def test_the_block_size_is_part_of_the_identity() -> None:
    assert not {*block_hashes([0] * 8, 4)} & {*block_hashes([0] * 8, 2)}


@given(token_lists, st.integers(0, 10))
def test_a_chain_can_be_continued(token_ids: list[int], num_hashed: int) -> None:
    whole = hashes(token_ids, "tenant")
    for index, parent in enumerate(whole[:num_hashed], start=1):
        rest = [*block_hashes(token_ids[index * 4 :], 4, parent=parent)]
        assert whole[:index] + rest == whole


def test_parent_root_is_a_fresh_start() -> None:
    assert [*block_hashes(PROMPT, 4, "tenant", parent=ROOT)] == hashes(PROMPT, "tenant")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((PROMPT, 0), "block size 0"),
        ((PROMPT, -1), "block size -1"),
        (([1, 2, -3, 4], 4), r"\[1, 2, -3, 4\]"),
        (([1, 2, 3, 2**32], 4), "4294967296"),
    ],
)
def test_senseless_blocks_are_refused(arguments: tuple[list[int], int], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        next(block_hashes(*arguments))


def test_salt_and_parent_exclude_each_other() -> None:
    with pytest.raises(LayoutError, match="either salt or parent"):
        next(block_hashes(PROMPT, 4, "tenant", parent=hashes(PROMPT)[0]))


@pytest.mark.parametrize(
    ("token_ids", "expected"),
    [
        (PROMPT, 8),  # the partial tail is never cached
        (PROMPT[:8], 4),  # full hit: the last block is recomputed for its logits
        ([*PROMPT[:6], 99, 99, 99], 4),  # diverges inside block 1
        ([99, *PROMPT[1:]], 0),  # diverges in block 0
        ([], 0),
    ],
)
def test_match_prefix(token_ids: list[int], expected: int) -> None:
    assert match_prefix(token_ids, set(hashes(PROMPT)), 4) == expected


def test_match_prefix_finds_only_its_own_salt() -> None:
    cached = set(hashes(PROMPT, "a"))
    assert [match_prefix(PROMPT, cached, 4, salt) for salt in ("a", "b", "")] == [8, 0, 0]


def common_prefix_slowly(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


@given(token_lists, token_lists, st.integers(0, 9000))
def test_common_prefix_equals_its_slow_twin(a: list[int], b: list[int], num_shared: int) -> None:
    shared = [*range(num_shared)]
    expected = num_shared + common_prefix_slowly(a, b)
    assert common_prefix(shared + a, shared + b) == expected


@pytest.mark.parametrize("kind", [list, tuple, lambda ids: array("I", ids)])
@pytest.mark.parametrize("other", [list, tuple, lambda ids: array("i", ids)])
def test_common_prefix_takes_any_sequences(
    kind: Callable[[list[int]], Sequence[int]], other: Callable[[list[int]], Sequence[int]]
) -> None:
    a, b = [*range(5000), 1, 2], [*range(5000), 1, 3]
    assert common_prefix(kind(a), other(b)) == 5001
    assert common_prefix(kind(a), other(a)) == 5002
    assert common_prefix(kind([]), other(b)) == 0


@pytest.mark.parametrize(
    ("lcp", "num_tokens", "unit", "draft", "expected"),
    [
        (100, 200, 16, False, 96),
        (100, 100, 16, False, 96),  # whole prompt known, not at a unit's end
        (96, 96, 16, False, 80),  # whole prompt known: the last token is recomputed
        (97, 97, 16, False, 96),
        (100, 200, 16, True, 80),
        (15, 200, 16, False, 0),
        (16, 200, 16, True, 0),
        (15, 200, 16, True, 0),  # nothing matched, nothing to drop
        (240, 60_000, 784, False, 0),  # a shared prefix shorter than the unit never hits
        (5, 5, 1, False, 4),
        (0, 0, 16, False, 0),
    ],
)
def test_reusable_tokens(lcp: int, num_tokens: int, unit: int, draft: bool, expected: int) -> None:
    assert reusable_tokens(lcp, num_tokens, unit, draft=draft) == expected


def test_reusable_tokens_refuses_a_unit_below_one() -> None:
    with pytest.raises(LayoutError, match="match unit 0"):
        reusable_tokens(1, 2, 0)


@given(token_lists, token_lists, st.integers(1, 6))
def test_reusable_tokens_is_what_match_prefix_finds(a: list[int], b: list[int], unit: int) -> None:
    found = match_prefix(b, set(block_hashes(a, unit)), unit)
    assert found == reusable_tokens(common_prefix(a, b), len(b), unit)
