"""Long prompts beside streams, by hand: a step takes a second, and a tenth for each token."""

import pytest

from duramen.experiments.timed.itl_budget import itl_budget
from duramen.experiments.timed.mixed_load import MixedLoad, simulate_mixed
from duramen.serving.kv.batching.rules import Rules
from duramen.serving.kv.step_time import LinearStepTime

TIMES = LinearStepTime(1.0, 0.1, 0.0, 0.0, 0.0)


def rules(budget: int) -> Rules:
    return Rules(4, None, budget, max_num_seqs=4, async_scheduling=False)


def test_a_long_prompt_at_once_and_cut() -> None:
    load = MixedLoad([2], [20], stream_outputs=30, settle_s=5.0, pause_s=2.0)
    # 1.2 s for the prompt, 1.1 s a token: the step that ends at 5.6 runs when the long one comes
    whole = simulate_mixed(load, rules(40), TIMES)
    assert whole.ttfts_s == pytest.approx([5.6 + 3.1 - 5.0])
    assert whole.gaps_s == pytest.approx([1.1, 3.1, 1.1])
    cut = simulate_mixed(load, rules(11), TIMES)
    assert cut.ttfts_s == pytest.approx([5.6 + 2 * 2.1 - 5.0])
    assert cut.gaps_s == pytest.approx([1.1, 2.1, 2.1, 1.1])


def test_a_target_makes_the_chunk() -> None:
    load = MixedLoad([2], [200], stream_outputs=30, settle_s=5.0, pause_s=0.0)
    times = simulate_mixed(load, rules(400), TIMES, itl_budget(TIMES, 10.05, 400))
    # 90 tokens would fit, 80 are whole granules, one of them the stream's
    assert times.gaps_s == pytest.approx([1.1, 9.0, 9.0, 5.3])
    assert times.ttfts_s == pytest.approx([0.6 + 9.0 + 9.0 + 5.3])


def test_streams_go_on_until_the_last_long_prompt_is_answered() -> None:
    load = MixedLoad([2, 3], [20, 20, 20], stream_outputs=5, settle_s=5.0, pause_s=3.0)
    times = simulate_mixed(load, rules(40), TIMES, call_fixed_s=0.1)
    assert len(times.ttfts_s) == 3
    assert all(3.1 < ttft_s < 7 for ttft_s in times.ttfts_s)
    assert times.gaps_s.count(max(times.gaps_s)) >= 2  # both streams wait for one long step
    again = simulate_mixed(load, rules(40), TIMES, call_fixed_s=0.1)
    assert again == times
