"""Flights: a prediction's interval and each class of mismatch, against a twin on token ids."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from duramen.layout.blocks import BlockHash, block_hashes
from duramen.serving.kv.attribute import Flight, Flights, classify, common_blocks

UNIT = 4
PROMPT = list(range(13))  # 3 blocks and a token


def hashes(token_ids: Sequence[int]) -> list[BlockHash]:
    return list(block_hashes(token_ids, UNIT))


def send(
    flights: Flights, token_ids: Sequence[int], predicted: int | None = 0, **known: Any
) -> Flight:
    known.setdefault("num_removed", 0)
    return flights.take_off(hashes(token_ids), len(token_ids), predicted, **known)


def test_alone_the_interval_is_a_point() -> None:
    flight = send(Flights(UNIT), PROMPT, 8)
    assert (flight.predicted, flight.predicted_most) == (8, 8)


@pytest.mark.parametrize(
    ("beside", "predicted", "most"),
    [
        (PROMPT, 0, 12),
        (PROMPT[:9], 0, 8),
        (PROMPT[:9], 12, 12),  # the mirror knows more than that
        ([*PROMPT[:7], 99, 99], 0, 4),  # parts inside a block
        ([99, *PROMPT], 0, 0),
        ([], 0, 0),
        (PROMPT, None, None),
    ],
)
def test_what_a_call_beside_it_can_add(
    beside: list[int], predicted: int | None, most: int | None
) -> None:
    for before in (True, False):
        flights = Flights(UNIT)
        if before:
            send(flights, beside)
        flight = send(flights, PROMPT, predicted)
        if not before:
            send(flights, beside)
        assert flight.predicted_most == most


def test_the_last_token_is_always_computed() -> None:
    flights = Flights(UNIT)
    send(flights, PROMPT)
    assert send(flights, PROMPT[:12]).predicted_most == 8


def test_the_interval_covers_calls_that_have_landed_meanwhile_not_before() -> None:
    flights = Flights(UNIT)
    early, beside = send(flights, PROMPT[:5]), send(flights, PROMPT[:9])
    flights.land(early, 0, num_removed=0)
    flight = send(flights, PROMPT)
    flights.land(beside, 0, num_removed=0)
    assert len(flights) == 1
    assert (flight.predicted_most, send(Flights(UNIT), PROMPT).predicted_most) == (8, 0)


@pytest.mark.parametrize(
    ("delivered", "expected"),
    [(4, None), (8, "in_flight_sharing"), (12, "other"), (0, "other"), (None, None)],
)
def test_inside_the_interval_and_outside(delivered: int | None, expected: str | None) -> None:
    flights = Flights(UNIT)
    flight = send(flights, PROMPT, 4)
    send(flights, PROMPT[:9])
    assert flights.land(flight, delivered, num_removed=0) == expected
    assert len(flights) == 1


def test_nothing_is_claimed_where_nothing_was_predicted() -> None:
    flights = Flights(UNIT)
    assert flights.land(send(flights, PROMPT, None), 12, num_removed=5) is None


@pytest.mark.parametrize(("company", "expected"), [(True, "evicted"), (False, "event_lag")])
def test_blocks_that_left(company: bool, expected: str) -> None:
    flights = Flights(UNIT)
    flight = send(flights, PROMPT, 12, num_removed=7)
    if company:
        send(flights, [99])
    assert flight.mismatch(8, 7) == "other"
    assert flights.land(flight, 8, num_removed=8) == expected


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_mirror_that_lags_behind_a_call_that_has_landed(is_settled: bool) -> None:
    flights = Flights(UNIT)
    first = send(flights, PROMPT[:6])
    flights.land(first, 0, num_removed=0, computed=hashes(PROMPT[:9]))  # 3 tokens were sampled
    flight = send(flights, PROMPT, 4, is_settled=is_settled)
    assert flight.mismatch(12, 0) == "other"  # more than anybody computed
    assert flights.land(flight, 8, num_removed=0) == ("other" if is_settled else "event_lag")


def test_a_call_that_is_given_up_is_in_flight_no_more() -> None:
    flights = Flights(UNIT)
    flight = send(flights, PROMPT)
    for _ in range(2):
        flights.leave(flight)
    assert len(flights) == 0
    assert send(flights, PROMPT).predicted_most == 0


def test_only_the_newest_blocks_are_remembered() -> None:
    flights = Flights(UNIT, num_remembered=4)
    flights.remember(hashes(PROMPT))
    assert send(flights, PROMPT).num_computed == 3
    for first in range(100, 110):
        flights.remember(hashes([first, *PROMPT]))
        assert len(flights._computed) + len(flights._computed_before) <= 2 * 4 + 3
    assert send(flights, PROMPT).num_computed == 0
    assert send(flights, [109, *PROMPT]).num_computed == 3


few_ids = st.lists(st.integers(0, 1), max_size=24)


@given(few_ids, few_ids)
def test_common_blocks_as_counted(a: list[int], b: list[int]) -> None:
    pairs = zip(hashes(a), hashes(b), strict=False)
    expected = next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)) // UNIT)
    assert common_blocks(hashes(a), hashes(b)) == expected


def test_64_long_prompts_take_few_looks() -> None:
    """13 at each of two prompts of 6,250 blocks, and 2 for what finished calls computed."""

    class Counted(list[BlockHash]):
        looks = 0

        def __getitem__(self, place: Any) -> Any:
            Counted.looks += 1
            return super().__getitem__(place)

    flights = Flights(16)
    block = Counted(BlockHash(number.to_bytes(16, "big")) for number in range(6250))
    for number in range(64):
        flights.take_off(Counted(block), 100_000, 99_984, num_removed=0)
        assert Counted.looks <= 26 * number + 2
        Counted.looks = 0


@dataclass(eq=False)
class PlainFlight:
    """The twin keeps every prompt, and compares tokens."""

    prompt: list[int]
    predicted: int
    num_removed: int
    computed: list[list[int]]
    beside: list[list[int]] = field(default_factory=list)

    def mismatch(self, delivered: int, num_removed: int) -> str | None:
        if delivered == self.predicted:
            return None
        most = max(
            (lcp(self.prompt[:-1], prompt) // UNIT * UNIT for prompt in self.beside), default=0
        )
        removed = num_removed > self.num_removed
        known = any(lcp(self.prompt, ids) // UNIT * UNIT >= delivered for ids in self.computed)
        return classify(
            self.predicted,
            delivered,
            shared=delivered <= most,
            evicted=removed and bool(self.beside),
            lagging=known if delivered > self.predicted else removed,
        )


def lcp(a: list[int], b: list[int]) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


steps = st.tuples(few_ids, st.integers(0, 5), st.integers(0, 5), st.integers(0, 3), st.booleans())


@given(st.lists(steps, max_size=12))
def test_flights_as_their_twin(script: list[tuple[list[int], int, int, int, bool]]) -> None:
    flights, removed = Flights(UNIT), 0
    flying: list[tuple[Flight, PlainFlight]] = []
    computed: list[list[int]] = []
    for prompt, predicted, delivered, pick, removes in script:
        if pick and flying:
            flight, plain = flying.pop(pick % len(flying))
            removed += removes
            expected = plain.mismatch(delivered * UNIT, removed)
            sampled = [*plain.prompt, *prompt]
            landed = flights.land(
                flight, delivered * UNIT, num_removed=removed, computed=hashes(sampled)
            )
            assert landed == expected
            computed.append(sampled)
        else:
            predicted = min(predicted, max(len(prompt) - 1, 0) // UNIT) * UNIT
            plain = PlainFlight(prompt, predicted, removed, [*computed])
            for _, other in flying:
                other.beside.append(prompt)
                plain.beside.append(other.prompt)
            flying.append((send(flights, prompt, predicted, num_removed=removed), plain))
    assert len(flights) == len(flying)
