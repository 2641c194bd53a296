"""Arms, keys and prefixes against the exact caches and naive twins, over random calls."""

from itertools import takewhile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.study.arms import Arm, ArmCache, arms_of
from duramen.experiments.study.keys import KeyChain, common_ids
from duramen.experiments.study.prefixes import Prefixes
from duramen.layout.blocks import block_hashes
from duramen.layout.errors import LayoutError
from duramen.serving.kv.cache import BlockCache
from duramen.serving.kv.radix import RadixCache

IDS = st.lists(st.integers(0, 2), max_size=14)


@st.composite
def calls(draw):
    """(session, prompt, reply): prompts go on from an earlier call, in part, or are new."""
    made, history = [], [[]]
    for _ in range(draw(st.integers(1, 8))):
        before = draw(st.sampled_from(history))
        kept = draw(st.integers(0, len(before)))
        prompt = [*before[:kept], *draw(IDS), draw(st.integers(0, 2))]
        reply = draw(IDS)
        history += [prompt, [*prompt, *reply]]
        made.append((draw(st.sampled_from("ab")), prompt, reply))
    return made


def array(ids):
    return np.array(ids, np.uint32)


def naive_lcp(prompt, sequences):
    return max((len([*takewhile(bool, map(int.__eq__, prompt, s))]) for s in sequences), default=0)


@given(calls())
def test_prefixes_are_those_of_all_that_was_sent_computed_or_sampled(made):
    prefixes, computed, sent = Prefixes(), [], []
    for _, prompt, reply in made:
        assert prefixes.lcp(array(prompt)) == (naive_lcp(prompt, computed), naive_lcp(prompt, sent))
        prefixes.add(array([*prompt, *reply[:-1]]), reply[-1] if reply else None)
        computed.append([*prompt, *reply[:-1]])
        sent.append([*prompt, *reply])


@given(calls(), st.integers(1, 5))
def test_keys_are_those_of_the_whole_sequence(made, unit):
    chain = KeyChain(unit)
    for session, prompt, _ in made:
        assert chain.keys(session, array(prompt)) == [*block_hashes(prompt, unit)]


@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)))
def test_common_ids(a, b):
    assert common_ids(array(a), array(b)) == naive_lcp(a, [b])


@given(calls(), st.integers(1, 4), st.booleans())
def test_an_infinite_pool_delivers_what_the_cache_model_does(made, unit, draft):
    arm, cache, prefixes = (
        ArmCache(Arm(unit, draft)),
        BlockCache(None, unit, draft=draft),
        Prefixes(),
    )
    tree, radix = RadixCache(None, unit), ArmCache(Arm(unit, radix=True))
    for session, prompt, reply in made:
        computed = [*prompt, *reply[:-1]]
        lcp = prefixes.lcp(array(prompt))
        keys = [*block_hashes(computed, unit)]
        expected = cache.serve(keys, len(prompt), len(computed) - len(prompt))
        assert arm.serve(session, array(prompt), array(computed), lcp) == expected
        assert radix.serve(session, array(prompt), array(computed), lcp) == tree.serve(
            prompt, reply
        )
        prefixes.add(array(computed), reply[-1] if reply else None)


@given(calls(), st.integers(1, 4), st.integers(4, 40))
def test_a_finite_pool_is_the_exact_cache_model(made, unit, kv_tokens):
    arm = ArmCache(Arm(unit, kv_tokens=kv_tokens))
    cache = BlockCache(kv_tokens // unit + 1, unit)
    radix = ArmCache(Arm(unit, radix=True, kv_tokens=kv_tokens))
    tree = RadixCache(kv_tokens // unit * unit, unit)
    prefixes = Prefixes()
    for session, prompt, reply in made:
        computed = [*prompt, *reply[:-1]]
        keys = [*block_hashes(computed, unit)]
        lcp = prefixes.lcp(array(prompt))
        expected = cache.serve(keys, len(prompt), len(computed) - len(prompt))
        assert arm.serve(session, array(prompt), array(computed), lcp) == expected
        assert radix.serve(session, array(prompt), array(computed), lcp) == tree.serve(
            prompt, reply
        )
        prefixes.add(array(computed), None)


def test_the_arms_of_a_study():
    arms = arms_of([16, 528], [None, 20_000], draft=True, radix=True)
    assert [arm.label for arm in arms] == [
        "unit 16",
        "unit 528",
        "unit 16, draft",
        "radix page 1",
        "unit 16, pool 20000",
        "radix page 1, pool 20000",
    ]
    assert [arm.label for arm in arms_of([32], [], draft=False, radix=False)] == ["unit 32"]


@pytest.mark.parametrize(
    "arm", [{"unit": 0}, {"radix": True, "draft": True}, {"unit": 16, "kv_tokens": 15}]
)
def test_arms_that_make_no_sense(arm):
    with pytest.raises(LayoutError):
        Arm(**arm)
