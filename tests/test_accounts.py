"""What a replay adds up, and the form of its result."""

import json
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from replay_cases import RECORDED, STABLE, fake_engine, growing, replay, said

from duramen.experiments.accounts import Accounts, percentiles
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.target import LiveTarget, ModelTarget, Outcome
from duramen.experiments.trajectory import Session
from duramen.layout.zones import Prompt, Span, Zone
from duramen.serving.vllm.protocol import Sampling


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return load_model(smollm2, None)


def test_the_form_of_the_result(model: Model) -> None:
    target = LiveTarget(fake_engine(model), Sampling(24, 1.0, 3), serial=True, salt="")
    found = replay(model, [growing("a", 3)], target, RECORDED, live_replies=True).as_json()
    assert list(found) == [
        "num_sessions",
        "num_calls",
        "num_skipped",
        "prompt_tokens",
        "cached_tokens",
        "uncached_tokens",
        "min_uncached_tokens",
        "hit_rate",
        "bounds",
        "prediction_mismatches",
        "breaks",
        "deviations",
        "num_deviating_tokens",
        "notes",
        "ttft_s",
        "itl_s",
        "makespan_s",
        "engine_ttft_s",
        "engine_queue_s",
        "engine_prefill_s",
        "open_loop",
    ]
    assert list(found["bounds"]) == ["content", "token", "unit", "predicted", "delivered"]
    assert [list(b) for b in found["breaks"]] == [
        ["session", "call", "token", "lost_tokens", "source"]
    ] * 2
    assert list(found["ttft_s"]) == list(found["itl_s"]) == ["p50", "p95", "p99"]
    assert found["cached_tokens"] == found["bounds"]["delivered"]
    assert found["cached_tokens"] + found["uncached_tokens"] == found["prompt_tokens"]
    assert found["min_uncached_tokens"] == found["prompt_tokens"] - found["bounds"]["content"]
    assert found["hit_rate"] == found["cached_tokens"] / found["prompt_tokens"]
    json.dumps(found)


def spans(*lengths: int) -> tuple[Span, ...]:
    ends = list(accumulate(lengths, initial=0))
    return tuple(
        Span(start, end, Zone.LEAF, f"part {number}", bytes([number]))
        for number, (start, end) in enumerate(pairwise(ends))
    )


@pytest.mark.parametrize(
    ("second", "has_reply", "expected"),
    [
        ([1, 2, 3, 4, 5], True, []),
        ([1, 2, 3, 4], True, [(4, "end")]),  # it stops before the reply's last token
        ([1, 2, 3, 4, 9], True, [(4, "part 1")]),
        ([1, 2, 3, 9, 9], False, []),
        ([1, 2, 9, 9, 9], False, [(2, "part 0")]),
        ([9, 2, 3, 4, 5], True, [(0, "part 0")]),
    ],
)
def test_where_a_prompt_breaks(
    second: list[int], has_reply: bool, expected: list[tuple[int, str]]
) -> None:
    """After [1, 2, 3], to which [4, 5] was sampled."""
    sums, session = Accounts(unit_tokens=1), Session("s", ())
    first = Prompt([1, 2, 3], spans(3))
    bounds = sums.sending(session, 0, first, has_reply=False)
    sums.finished(session, first, bounds, Outcome([4, 5], said("x"), 0, 0), b"reply")
    prompt = Prompt(second, spans(3, len(second) - 3))
    sums.sending(session, 1, prompt, has_reply=has_reply)
    assert [(found.token, found.source) for found in sums.breaks] == expected


def test_what_nobody_measured_is_null(model: Model) -> None:
    found = replay(model, [growing("a", 2)], ModelTarget(None, 16, None), STABLE).as_json()
    nothing = {"p50": None, "p95": None, "p99": None}
    assert (found["ttft_s"], found["itl_s"], found["makespan_s"]) == (nothing, nothing, None)
    empty = replay(model, [Session("s", ())], ModelTarget(None, 16, None), STABLE).as_json()
    assert (empty["num_sessions"], empty["num_calls"], empty["hit_rate"]) == (1, 0, None)


def test_an_engine_without_events_predicts_nothing(model: Model) -> None:
    engine = fake_engine(model)
    engine._publish = lambda *_: None  # type: ignore[method-assign]
    engine.mirror = None
    target = LiveTarget(engine, Sampling(4), serial=True, salt="salt")
    sums = replay(model, [growing("a", 3)], target, STABLE)
    found = sums.as_json()
    assert found["bounds"]["predicted"] is None
    assert sums.num_mispredicted is None
    assert found["prediction_mismatches"] is None
    assert found["bounds"]["delivered"] > 0


def test_percentiles_are_the_nearest_rank() -> None:
    assert percentiles([3.0]) == {"p50": 3.0, "p95": 3.0, "p99": 3.0}
    hundred = [float(value) for value in range(100, 0, -1)]
    assert percentiles(hundred) == {"p50": 50.0, "p95": 95.0, "p99": 99.0}
    assert percentiles([1.0, 2.0, 3.0])["p50"] == 2.0
