"""Blocks that were lost although the prompt went on with what was there: told from evidence."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.layout.blocks import reusable_tokens
from duramen.serving.kv.block_causes import Evidence, Pair, block_loss

WHOLE = Evidence(num_tokens=100, known=80, computed=79, unit_tokens=16, predicted=64, delivered=64)


def cause(evidence: Evidence) -> tuple[str, int] | None:
    loss = block_loss(evidence)
    return None if loss is None else (loss.cause, loss.lost_tokens)


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (WHOLE, None),
        (replace(WHOLE, delivered=None), None),
        (replace(WHOLE, predicted=None, delivered=None), None),
        (replace(WHOLE, delivered=96), None),  # another session stored more
        (replace(WHOLE, salt=Pair("a", "b")), None),  # nothing was lost all the same
        (replace(WHOLE, delivered=0, salt=Pair("a", "b")), ("salt-or-model-changed", 64)),
        (replace(WHOLE, delivered=0, model=Pair("m", "n")), ("salt-or-model-changed", 64)),
        (replace(WHOLE, delivered=0, model=Pair(None, "n")), ("eviction", 64)),
        (replace(WHOLE, delivered=0, replica=Pair("r1", "r2")), ("other-replica", 64)),
        (replace(WHOLE, delivered=0, ahead_s=-0.5), ("in-flight", 64)),
        (replace(WHOLE, delivered=0, ahead_s=0.0), ("eviction", 64)),
        (replace(WHOLE, delivered=48, drops_unit=True), ("draft-drop", 16)),
        (replace(WHOLE, delivered=48), ("eviction", 16)),
        (replace(WHOLE, delivered=32, drops_unit=True), ("eviction", 32)),
        (replace(WHOLE, draft=True, delivered=48), ("draft-drop", 16)),
        (replace(WHOLE, draft=True, delivered=16), ("eviction", 32)),
        (replace(WHOLE, delivered=None, predicted=16), ("eviction", 48)),
        (replace(WHOLE, unit_tokens=128, delivered=0, predicted=0), ("shorter-than-unit", 0)),
        (replace(WHOLE, num_tokens=80, computed=80), ("last-token", 16)),
        (replace(WHOLE, num_tokens=81, computed=80, known=80, delivered=80, predicted=80), None),
        (replace(WHOLE, known=0, computed=0, delivered=0, predicted=0), None),
    ],
)
def test_what_fits_the_evidence(evidence: Evidence, expected: tuple[str, int] | None) -> None:
    assert cause(evidence) == expected


def test_an_eviction_that_was_seen_is_surer_than_one_that_is_left_over() -> None:
    lost = replace(WHOLE, delivered=32)
    confidences = [
        loss.confidence
        for evidence in (
            lost,
            replace(lost, num_removed=3),
            replace(lost, num_removed=3, predicted=32),
        )
        if (loss := block_loss(evidence)) is not None
    ]
    assert confidences == [0.6, 0.9, 1.0]


@given(
    st.integers(1, 300), st.integers(0, 300), st.integers(1, 40), st.booleans(), st.integers(0, 300)
)
def test_losses_are_what_is_missing(
    num_tokens: int, known: int, unit: int, draft: bool, delivered: int
) -> None:
    known = min(known, num_tokens)
    evidence = Evidence(num_tokens, known, known, unit, draft, delivered=delivered)
    attainable = reusable_tokens(known, num_tokens, unit, draft=draft)
    loss = block_loss(evidence)
    if 0 < known < unit:
        assert cause(evidence) == ("shorter-than-unit", 0)
    elif delivered < attainable:
        assert loss is not None
        assert (loss.cause, loss.lost_tokens) == ("eviction", attainable - delivered)
    else:
        assert loss is None or loss.cause in ("draft-drop", "last-token")
        assert loss is None or loss.lost_tokens == unit
