"""A call on a GPU of one's own: the formulas by hand, and the packaged figures."""

from dataclasses import replace
from decimal import Decimal
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.prices.own_gpu import TimeModel, packaged_gpus, parse_gpus
from duramen.layout.errors import PriceError

SMALL = TimeModel(
    overhead_s=0.5,
    flops_per_s=1000.0,
    compute_efficiency=0.5,
    bytes_per_s=100.0,
    bandwidth_efficiency=0.25,
    num_params=10,
    num_layers=2,
    hidden_size=3,
    weight_bytes=20,
    kv_bytes_per_token=4,
    usd_per_hour=Decimal("3.60"),
)


def test_prefill_by_hand():
    """3 tokens behind 5: 2 x 10 x 3 = 60 linear; pairs 6 + 7 + 8 = 21, times 4 x 2 x 3 = 504."""
    assert SMALL.prefill_s(3, 5) == 0.5 + (60 + 504) / 500


def test_decode_by_hand():
    """2 steps at 7 and 8 tokens of context: 2 x 20 bytes of weights, 15 x 4 of KV."""
    assert SMALL.decode_s(2, 7) == (40 + 60) / 25


def test_nothing_takes_the_overhead_only():
    assert SMALL.prefill_s(0, 100) == 0.5
    assert SMALL.decode_s(0, 100) == 0


def test_cost():
    assert SMALL.cost(10.0) == Decimal("0.01")
    for seconds in (-1.0, float("nan"), float("inf")):
        with pytest.raises(PriceError, match="cannot be priced"):
            SMALL.cost(seconds)


@given(cached=st.integers(0, 40), new=st.integers(0, 40))
def test_a_prompt_in_two_parts_takes_as_long_as_in_one(cached, new):
    model = replace(SMALL, overhead_s=0.0)
    parts = model.prefill_s(cached) + model.prefill_s(new, cached)
    assert parts == pytest.approx(model.prefill_s(cached + new), abs=1e-12)


@given(context=st.integers(0, 40), steps=st.integers(0, 40))
def test_decode_step_by_step(context, steps):
    one_by_one = sum(SMALL.decode_s(1, context + step) for step in range(steps))
    assert SMALL.decode_s(steps, context) == pytest.approx(one_by_one)


@pytest.mark.parametrize(
    "wrong",
    [
        {"flops_per_s": 0.0},
        {"bytes_per_s": float("inf")},
        {"compute_efficiency": 1.01},
        {"bandwidth_efficiency": float("nan")},
        {"num_params": 0},
        {"overhead_s": -0.1},
        {"usd_per_hour": Decimal(-1)},
    ],
)
def test_a_figure_that_makes_no_sense(wrong):
    with pytest.raises(PriceError, match=next(iter(wrong))):
        replace(SMALL, **wrong)


def test_own_hardware_that_costs_nothing_is_allowed():
    assert replace(SMALL, usd_per_hour=Decimal(0)).cost(3600.0) == 0


def test_the_packaged_gpus():
    gpus = packaged_gpus()
    h100 = gpus["h100-sxm/llama-3.1-8b-bf16@2026-11-09"]
    assert h100.usd_per_hour == Decimal("3.99")
    assert h100.kv_bytes_per_token == 2 * 32 * 8 * 128 * 2
    assert h100.weight_bytes == 2 * h100.num_params
    assert h100.assumed == ("compute_efficiency", "bandwidth_efficiency", "overhead_s")
    l4 = gpus["l4/llama-3.1-8b-bf16@2026-11-09"]
    assert l4.prefill_s(30_000) > h100.prefill_s(30_000) > h100.prefill_s(3_000, 27_000)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"3.99"', "3.99", r"gpus\.h100-sxm: Expected `str`, got `float`"),
        ('"3.99"', '"free"', r"gpus\.h100-sxm\.usd_per_hour: 'free' is no price"),
        ("989.4e+12", "-1.0", r"gpus\.h100-sxm: flops_per_s is -1\.0"),
        ("[l4_sheet, gcp_l4]", "[rumour]", r"gpus\.l4: its sources are unknown rumour"),
        ("num_layers: 32", "num_layers: many", r"models\.llama-3\.1-8b-bf16: Expected `int`"),
        ("compute_efficiency: 0.5", "compute_efficiency: 5.0", "no device does more than its peak"),
        ("overhead_s: 0.02", "", "missing required field `overhead_s`"),
    ],
)
def test_the_file_broken(old, new, message):
    folder = files("duramen.configs").joinpath("prices")
    text = folder.joinpath("own_gpus.yaml").read_text(encoding="utf-8")
    assert old in text
    with pytest.raises(PriceError, match=message) as raised:
        parse_gpus(text.replace(old, new, 1), "own.yaml")
    assert str(raised.value).startswith("own.yaml: ")
