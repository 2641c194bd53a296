"""scripts/bench_plan.py without an engine: what it tells the simulator, and its verdict."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from duramen.layout.blocks import block_hashes


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "scripts")
    return import_module("bench_plan")


def test_the_simulator_shares_the_blocks_that_prompts_share(bench: Any) -> None:
    sent = bench.made_up_sessions(2)
    timed = bench.as_timed(sent, 32)
    number_of: dict[Any, Any] = {}
    for live, told in zip((c for s in sent for c in s), (c for s in timed for c in s), strict=True):
        hashes = [*block_hashes(live.token_ids, 32)]
        assert told.num_prompt == len(live.token_ids)
        assert len(told.keys) >= (told.num_prompt + told.num_outputs - 1) // 32 >= len(hashes)
        assert all(
            number_of.setdefault(key, block_hash) == block_hash
            for key, block_hash in zip(told.keys, hashes, strict=False)
        )
    assert len({*number_of.values()}) == len(number_of)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([1.0, 1.1, 0.9], [0.5, 0.6, 0.5], {"best": "pick", "ratio": 1.0, "holds": True}),
        ([0.5, 0.5, 0.5], [1.0, 1.0, 1.0], {"best": "other", "ratio": 0.5, "holds": False}),
        ([0.95] * 3, [1.0] * 3, {"is_separable": True, "is_within_10_percent": True}),
        ([0.2, 1.5, 0.4], [1.0, 0.8, 1.0], {"is_separable": False, "is_within_10_percent": False}),
        ([0.0, 0.0], [0.0, 0.0], {"best": None, "holds": None}),
    ],
)
def test_verdict(
    bench: Any, ours: list[float], theirs: list[float], expected: dict[str, Any]
) -> None:
    found = bench.verdict({"pick": ours, "other": theirs})
    assert {key: found[key] for key in expected} == expected
