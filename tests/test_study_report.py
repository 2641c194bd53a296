"""Comparisons, typical task, JSON and Parquet of a study, on numbers worked by hand."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from duramen.experiments.prices.book import Entry
from duramen.experiments.prices.money import Prices, Tariff
from duramen.experiments.prices.rules import CacheRules
from duramen.experiments.study.arms import Arm
from duramen.experiments.study.break_even import Rates
from duramen.experiments.study.compare import Spread, dollars, spread, uncached
from duramen.experiments.study.curves import (
    OWN_GPU,
    curves,
    measured_shares,
    rates_of,
    typical_task,
)
from duramen.experiments.study.report import MAX_LANES, Report
from duramen.experiments.study.results import (
    AlignmentSums,
    ArmSums,
    CallRow,
    LayoutResult,
    SessionSums,
)
from duramen.experiments.trajectory import Call, Origin, Session

ARM = Arm(16)
MODEL = "test/a"


def summed(name: str, prompt: int, cached: int, usd: str, changes: int = 0) -> SessionSums:
    return SessionSums(name, 2, prompt, 10, prompt, cached, 0, changes, 5.0, [cached], {MODEL: usd})


def result(label: str, sessions: list[SessionSums], trunk: int = 0) -> LayoutResult:
    rows = [
        CallRow(
            number,
            call,
            float(call),
            each.prompt_tokens // 2 + 20 * call,
            5,
            30,
            trunk,
            9,
            8,
            [7],
            None,
        )
        for number, each in enumerate(sessions)
        for call in range(2)
    ]
    prompt = sum(each.prompt_tokens for each in sessions)
    cached = sum(each.cached[0] for each in sessions)
    arm = ArmSums(len(rows), 0, prompt, cached, cached, {}, {})
    alignment = AlignmentSums(1, 20, 60.0) if "align" in label else None
    arms = {ARM.label: arm}
    return LayoutResult(label, False, {}, 0, {}, {}, alignment, arms, {}, sessions, rows)


STABLE = result("stable", [summed("s", 100, 60, "0.5"), summed("t", 200, 100, "0.25")])
ZONED = result(
    "zoned:k=3",
    [summed("s", 80, 60, "0.25", 1), summed("t", 300, 100, "0.5"), summed("u", 9, 1, "1")],
    trunk=40,
)


def test_a_spread_is_taken_session_by_session():
    tokens = spread(ZONED, STABLE, uncached(0))
    assert tokens.ratios == [20 / 40, 200 / 100]  # u has no match
    assert (tokens.num_cheaper, tokens.num_dearer) == (1, 1)
    assert tokens.quantile(0.5) == 1.25
    assert spread(ZONED, STABLE, dollars(MODEL)).ratios == [0.5, 2.0]
    assert spread(STABLE, result("none", []), uncached(0)).as_json()["median"] is None
    fewer = msgspec.structs.replace(STABLE.sessions[0], num_calls=1)  # a call was refused
    assert spread(result("x", [fewer]), STABLE, uncached(0)).ratios == []


@pytest.mark.parametrize(("share", "expected"), [(0, 1), (0.25, 1.5), (0.5, 2), (0.75, 3), (1, 4)])
def test_quantiles_are_interpolated(share, expected):
    assert Spread([1.0, 2.0, 4.0]).quantile(share) == expected


def test_the_typical_task_is_the_means_of_zoned():
    task = typical_task([STABLE, ZONED])
    assert task is not None
    assert (task.root, task.reply, task.k, task.num_calls) == (30, 5, 3, 2)
    assert task.trunk == 80  # 40 on average over the calls in which it grows
    assert task.said == pytest.approx(((40 + 20 - 70) + (150 + 20 - 70) + (4 + 20 - 70)) / 3)
    assert task.change_rate == 1 / 3  # of the calls behind a first one
    assert (task.behind, task.artifact) == (0.5, 0.0)  # no prefix ended inside a trunk
    assert typical_task([STABLE]) is None
    assert typical_task([STABLE, result("zoned:k=4", [summed("s", 9, 1, "1")])]) is None


def test_what_is_read_again_is_the_growth_that_is_nowhere_else():
    """Stable grows by 120 a call: 15 stay in the turn, 80 are lifted, 25 were read again."""
    sessions = [summed("s", 100, 60, "0.5", changes=1)]
    rows = [
        CallRow(0, call, float(call), 30 + 55 * call, 5, 30, 40 * call, 0, 0, [0], None)
        for call in range(2)
    ]
    zoned = msgspec.structs.replace(result("zoned", sessions), calls=rows)
    grown = [replace_row(row, prompt_tokens=30 + 120 * row.call) for row in rows]
    task = typical_task([msgspec.structs.replace(result("stable", sessions), calls=grown), zoned])
    assert task is not None
    assert (task.said, task.trunk, task.artifact, task.change_rate) == (15, 80, 25, 1)
    assert task.moves == 1


def test_what_stands_behind_a_change_is_measured():
    """Of 40 tokens behind the root of 30 the second call keeps 10."""
    rows = [replace_row(row, token=40 if row.call else 0) for row in ZONED.calls]
    task = typical_task([STABLE, msgspec.structs.replace(ZONED, calls=rows)])
    assert task is not None
    assert task.behind == 0.75


def replace_row(row: CallRow, **changes: int) -> CallRow:
    return msgspec.structs.replace(row, **changes)


def test_growth_is_taken_inside_a_session():
    """Rows come by time: those of sessions that ran beside each other alternate."""
    beside = sorted(STABLE.calls, key=lambda row: row.call)
    task = typical_task([msgspec.structs.replace(STABLE, calls=beside), ZONED])
    assert task == typical_task([STABLE, ZONED])


def test_measured_shares_are_of_all_sessions():
    zoned = msgspec.structs.replace(ZONED, usage={MODEL: {}})
    shares = measured_shares([STABLE, zoned])
    assert shares == {MODEL: 1.75 / 0.75, OWN_GPU: (389 - 161) / 140}
    assert measured_shares([STABLE]) == {}


def test_rates_are_those_of_the_cache_rules():
    prices = Prices(Decimal(3), Decimal(15), Decimal("0.3"), Decimal("3.75"))
    kinds = {
        "automatic": CacheRules("automatic", ttl_s=60.0),
        "writes": CacheRules("breakpoints", ttl_s=60.0, write="write_5m"),
    }
    entries = [Entry(name, "2026-11-30", Tariff(name, prices), kinds[name]) for name in kinds]
    entries += [
        Entry(
            "none",
            "2026-11-30",
            Tariff("none", Prices(Decimal(3), Decimal(15))),
            CacheRules("none"),
        )
    ]
    million = 10**6
    three = Decimal(3) / million
    assert rates_of(entries) == {
        "automatic": Rates(three, Decimal("0.3") / million, three),
        "writes": Rates(Decimal("3.75") / million, Decimal("0.3") / million, three, marks=True),
        "none": Rates(three, three, three),
        OWN_GPU: Rates(Decimal(1), Decimal(0), Decimal(1)),
    }


def test_curves_are_shares_of_stable():
    typical = typical_task([STABLE, ZONED])
    assert typical is not None
    even = {"even": Rates(Decimal(1), Decimal(1), Decimal(1))}
    drawn = curves(replace(typical, change_rate=0.0), even, {"even": 0.75})["prices"]["even"]
    for name, points in (("by_rate", 21), ("by_calls", 11), ("by_trunk", 8)):
        assert {len(line) for line in drawn[name].values()} == {points}
    assert drawn["by_calls"]["16"][0] == pytest.approx(1.0)  # no turn has left: both send the same
    falling = drawn["by_calls"]["1"]  # one turn and a growing trunk against everything
    assert 0.5 < falling[-1] < falling[1] < 1
    assert drawn["measured"] == 0.75
    free = {"free": Rates(Decimal(0), Decimal(0), Decimal(0))}
    assert curves(typical, free, {})["prices"]["free"]["by_rate"]["1"][0] is None


def report(results: list[LayoutResult]) -> Report:
    call = Call(({"role": "user", "content": "Hi"},), None)
    sessions = [Session("s", (call, call), origins={"time_s": Origin.ASSUMED})]
    prices = {MODEL: {"date": "2026-11-30", "caveat": None}}
    return Report({"engine": "e"}, sessions, [ARM], results, prices, {}, 100)


def test_the_json_of_a_study():
    found = report([STABLE, ZONED]).as_json()
    assert found["sessions"] == [
        {"session_id": "s", "num_calls": 2, "origins": {"time_s": "assumed"}}
    ]
    stable = found["layouts"]["stable"]
    assert stable["usd"] == {MODEL: "0.75"}
    assert stable["arms"]["unit 16"]["uncached_tokens"] == 140
    assert stable["kv_byte_seconds"] == 1000.0
    assert stable["against"][ZONED.label]["uncached_tokens"]["num_sessions"] == 2
    assert found["lanes"]["s"]["stable"] == [[50, 7, None], [70, 7, None]]


def test_lanes_are_of_a_few_sessions_of_all_sizes():
    many = result("stable", [summed(f"{n:03}", 100 + n, 1, "1") for n in range(100)])
    lanes = report([many]).as_json()["lanes"]
    assert len(lanes) == MAX_LANES
    assert {"000", "099"} <= lanes.keys()


def test_parquet_holds_every_call_and_exact_dollars(tmp_path: Path):
    report([STABLE, ZONED]).write_parquet(tmp_path / "calls", tmp_path / "costs")
    calls = pq.read_table(tmp_path / "calls").to_pylist()
    assert len(calls) == 10
    assert calls[0] == {
        "layout": "stable",
        "session_id": "s",
        "call": 0,
        "time_s": 0.0,
        "prompt_tokens": 50,
        "output_tokens": 5,
        "root_tokens": 30,
        "trunk_tokens": 0,
        "content_tokens": 9,
        "token_tokens": 8,
        "broke_at": None,
        "cached_tokens (unit 16)": 7,
    }
    costs = pq.read_table(tmp_path / "costs").to_pylist()
    assert [row["usd"] for row in costs] == [
        Decimal(x) for x in ("0.5", "0.25", "0.25", "0.5", "1")
    ]


def test_the_net_benefit_of_aligning_is_against_the_same_layout_without():
    aligned = result("zoned:k=3,align=16", [summed("s", 100, 90, "0.5")])
    layouts = report([STABLE, ZONED, aligned]).as_json()["layouts"]
    assert layouts[ZONED.label]["alignment"] is None
    assert layouts[aligned.label]["alignment"] == {
        "num_moved": 1,
        "padding_tokens": 20,
        "expected_net_tokens": 60.0,
        "unit": 16,
        "net_tokens": (389 - 161) - 10,
    }
    alone = report([aligned]).as_json()["layouts"][aligned.label]["alignment"]
    assert alone["net_tokens"] is None
