"""The injection bench: its parts, and a slice of each half that holds what the bench must hold.

`scripts/bench injection` runs all of it, over the recorded data beside the repository.
"""

from collections import Counter
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import pytest

from duramen.experiments.injection.cases import Variant, parted
from duramen.experiments.injection.halves import half
from duramen.experiments.injection.lab import Lab
from duramen.experiments.injection.oracle import first_difference, part_of
from duramen.experiments.injection.report import MIN_RIGHT, Report
from duramen.experiments.injection.scenes import (
    HalfName,
    half_of,
    only_appends,
    real_sessions,
    scenes,
    untouched,
)
from duramen.experiments.injection.score import (
    FalseBreak,
    Unfit,
    Verdict,
    false_breaks,
    judged,
    make,
)
from duramen.experiments.injection.values import Stamp
from duramen.experiments.trajectory import Call, Session
from duramen.layout.diagnose.causes import Cause

HALVES: tuple[HalfName, ...] = get_args(HalfName)
EVERY = 5  # of the variants, one in so many is asked about here


@pytest.fixture(scope="module")
def demo() -> list[Session]:
    return real_sessions(None)


def _stamps(values: Any) -> list[Stamp]:
    return [*values.CLOCKS.values(), *values.IDS.values(), *values.COUNTERS.values()]


def _lab(name: HalfName, smollm2: Path) -> Lab:
    return Lab(smollm2, half(name).own)


def _key(variant: Variant) -> tuple[str, str]:
    return str(variant.cause), variant.name


@pytest.mark.parametrize("name", HALVES)
def test_each_cause_has_ten_variants_in_each_half(name: HalfName) -> None:
    nums = Counter(variant.cause for variant in half(name).variants)
    wanted = set(get_args(Cause)) - {"unknown"}
    few = {cause: nums[cause] for cause in wanted if nums[cause] < 10}
    assert few == {}
    assert len(wanted) >= 33
    assert len({_key(variant) for variant in half(name).variants}) == nums.total()


@pytest.mark.parametrize(("name", "other"), list(combinations(HALVES, 2)))
def test_halves_share_neither_wordings_nor_templates_nor_sessions(
    name: HalfName, other: HalfName, demo: list[Session]
) -> None:
    assert not set(half(name).own.values()) & set(half(other).own.values())
    modules = [import_module(f"duramen.experiments.injection.{n}.values") for n in (name, other)]
    lines = [{stamp.line for stamp in _stamps(module)} for module in modules]
    assert all(lines)
    assert not lines[0] & lines[1]
    ids = [{session.session_id for session in half_of(demo, n)} for n in (name, other)]
    assert all(ids)
    assert not ids[0] & ids[1]


@pytest.mark.parametrize("name", HALVES)
def test_untouched_scenes_part_nowhere_and_every_variant_changes_one(
    name: HalfName, smollm2: Path, demo: list[Session]
) -> None:
    lab = _lab(name, smollm2)
    found = list(scenes(demo))
    for scene in found:
        assert part_of(lab, parted(scene, scene.before, scene.after, None)) is None
    unfit = [
        _key(variant)
        for variant in half(name).variants
        if not variant.published and make(variant, found, lab, 0) is None
    ]
    assert unfit == []


def test_a_case_is_the_same_each_time(smollm2: Path, demo: list[Session]) -> None:
    found = list(scenes(demo))
    labs = [_lab("develop", smollm2) for _ in range(2)]
    for variant in [v for v in half("develop").variants if not v.published][::40]:
        one, other = (make(variant, found, lab, 3) for lab in labs)
        assert one is not None
        assert other is not None
        assert one[0] == other[0]


@pytest.mark.parametrize("name", ["develop", "opened"])
def test_a_slice_of_each_half_that_is_developed_on_is_named_right(
    name: HalfName, smollm2: Path, demo: list[Session]
) -> None:
    variants = [variant for variant in half(name).variants if not variant.published]
    made = list(judged(variants[2::EVERY], list(scenes(demo)), _lab(name, smollm2), [11]))
    verdicts = [each for each in made if isinstance(each, Verdict)]
    num, found = false_breaks(half_of(demo, name), _lab(name, smollm2), 20)
    report = Report(name, verdicts, [e for e in made if isinstance(e, Unfit)], num, found, 0.0)
    assert report.misses() == [], report.confusions()
    assert len(verdicts) > 60
    assert num >= 10


def test_the_half_that_is_only_scored_on(smollm2: Path, demo: list[Session]) -> None:
    """All variants, by totals alone: what was not named right stays unread."""
    variants = [variant for variant in half("held_out").variants if not variant.published]
    made = list(judged(variants, list(scenes(demo)), _lab("held_out", smollm2), [11]))
    verdicts = [each for each in made if isinstance(each, Verdict)]
    report = Report("held_out", verdicts, [], 0, [], 0.0)
    assert len(verdicts) > 400
    assert report.rate("right") >= MIN_RIGHT
    assert report.num_inexact == 0


def test_what_only_appends_is_told_by_comparing_messages() -> None:
    first: dict[str, str] = {"role": "user", "content": "a"}
    reply = {"role": "assistant", "content": "b"}
    more = {"role": "user", "content": "c"}
    before = Call((first,), reply)
    session = Session("s", ())
    assert only_appends(session, before, Call((first, reply, more), None))
    assert not only_appends(session, before, Call((first, reply), None))
    assert not only_appends(session, before, Call((more, reply, more), None))
    assert not only_appends(session, before, Call((first, more, more), None))
    assert not only_appends(session, before, Call((first, reply, more), None, tools=({},)))
    edited = Call(({"role": "user", "content": "A"}, reply, more), None)
    calls = (before, Call((first, reply, more), reply), edited)
    assert [appending for _, appending in untouched([Session("s", calls)])] == [[1]]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [([], [], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 5, 3], 1), ([1], [1, 2], 1), ([9], [1], 0)],
)
def test_first_difference(a: list[int], b: list[int], expected: int) -> None:
    assert first_difference(a, b) == expected


def _verdict(cause: Cause, said: str | None, exact: bool | None = True) -> Verdict:
    return Verdict(cause, "v", frozenset([cause]), said, exact, "", "s")


def test_a_report_counts_right_unknown_silent_and_wrong() -> None:
    verdicts = [
        _verdict("clock", "clock"),
        _verdict("clock", "unknown"),
        _verdict("counter", None, exact=False),
        _verdict("counter", "clock", exact=None),
    ]
    report = Report("develop", verdicts, [], 10, [FalseBreak("s", 1, "clock", "")], 1.0)
    assert [report.rate(w) for w in ("right", "unknown", "silent", "wrong")] == [0.25] * 4
    assert report.wrong_rate == 0.5
    assert (report.num_inexact, report.num_with_token) == (1, 3)
    assert report.misses() == [
        "right in 25.0% of cases, 98% are wanted",
        "wrong in 50.00% of cases, at most 0.5%",
        "first token not exact in 1 of 3",
        "1 false breaks in 10",
        "clock not right 1 times",
        "counter not right 2 times",
    ]
    causes = report.as_json()["causes"]
    assert causes["counter"] == {
        "cases": 2,
        "right": 0,
        "unknown": 0,
        "silent": 1,
        "wrong": 1,
        "said_instead": {"None": 1, "clock": 1},
    }
