"""The chart of scripts/bench_itl.py, drawn of made-up figures."""

from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

RANKS = {"p50": 0.05, "p90": 0.3, "p99": 0.4}
ARM = {"itl_s": RANKS, "ttft_s": {"p50": 5.0, "p90": 6.0}}
RESULT = {"device": "a CPU", "engine": "vllm", "model": "m", "target_ms": 400.0}


@pytest.mark.parametrize("told", [ARM, None])
def test_arms_percentiles_and_the_simulator(
    told: dict[str, Any] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "scripts")
    arms = {name: ARM | {"simulated": told} for name in ("static 256", "target 400 ms")}
    file = tmp_path / "chart.svg"
    import_module("itl_chart").draw_chart(RESULT | {"arms": arms}, file)
    texts = {"".join(each.itertext()) for each in ElementTree.parse(file).iter() if each.text}
    assert {"a CPU; vllm; m", "static", "256", "p99, live"} <= {text.strip() for text in texts}
    assert any("simulated" in text for text in texts) == (told is not None)
