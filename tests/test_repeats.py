"""Warm-up, repeats in turn, and what several runs come to."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from duramen.experiments.accounts import Accounts
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.repeats import FIGURES, Repeats, Spread
from duramen.experiments.replay import WARM_UP_TOKENS, Replay
from duramen.experiments.target import LiveTarget
from duramen.experiments.trajectory import Call, Message, Session
from duramen.serving.vllm.fake import FakeEngine
from duramen.serving.vllm.protocol import Completion, Sampling
from duramen.serving.vllm.timings import EngineTimes, Summed

CLOCK, RECORDED, STABLE = ALL = [Layout.parse(n) for n in ("clock", "recorded", "stable")]


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return load_model(smollm2, None)


def counting(num_calls: int) -> Session:
    messages: list[Message] = [{"role": "user", "content": "Count with me."}]
    calls = []
    for number in range(num_calls):
        reply: Message = {"role": "assistant", "content": f"That makes {number}."}
        calls.append(Call(tuple(messages), reply))
        messages += [reply, {"role": "user", "content": f"And after {number}?"}]
    return Session("s", tuple(calls))


class Logged(FakeEngine):
    """Remembers what it was asked for, and times each call as 0.25 s, 0.125 s of it in prefill."""

    def __init__(self, model: Model, **sizes: int) -> None:
        super().__init__(model.tokenizer.decode, **sizes)
        self.log: list[tuple[list[int], Sampling, str] | str] = []
        self.num_timed = 7  # before we came

    async def complete(
        self, token_ids: Sequence[int], sampling: Sampling, *, salt: str = "", **more: Any
    ) -> Completion:
        self.log.append((list(token_ids), sampling, salt))
        self.num_timed += 1
        return await super().complete(token_ids, sampling, salt=salt, **more)

    async def reset_prefix_cache(self) -> bool:
        self.log.append("reset")
        return await super().reset_prefix_cache()

    async def times(self) -> EngineTimes | None:
        num = self.num_timed
        return EngineTimes(Summed(num / 4, num), prefill=Summed(num / 8, num))


def replay(engine: FakeEngine, model: Model, layouts: list[Layout], **options: Any) -> Replay:
    sampling = options.pop("sampling", Sampling(4))
    target = LiveTarget(engine, sampling, serial=True, salt=options.pop("salt", ""))
    made = Replay([counting(2)], model, target, **options)
    asyncio.run(made.run(layouts))
    return made


def test_layouts_take_turns_and_begin_with_nothing_cached(model: Model) -> None:
    engine, order = Logged(model), []

    def progress(layout: Layout, sums: Accounts) -> None:
        if sums.num_calls == 1:
            order.append(layout)

    made = replay(engine, model, ALL, num_repeats=4, progress=progress)
    turns = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]
    assert order == [ALL[number] for turn in turns for number in turn]
    assert [entry == "reset" for entry in engine.log] == [True, False, False] * 12
    for runs in made.runs.values():
        assert [run.num_calls for run in runs] == [2] * 4
        assert len({run.delivered for run in runs}) == 1
        assert all(run.is_complete and not run.mismatches for run in runs)
    assert made.accounts[CLOCK] is made.runs[CLOCK][-1]


def test_each_run_draws_alike(model: Model) -> None:
    """Equal seeds; and another salt for each on a server that is not ours to reset."""
    engine = Logged(model)
    options = {"num_repeats": 2, "live_replies": True, "salt": "run"}
    made = replay(engine, model, [RECORDED, STABLE], sampling=Sampling(4, 1.0, 5), **options)
    calls = [entry for entry in engine.log if not isinstance(entry, str)]
    assert [sampling.seed for _, sampling, _ in calls] == [5, 6] * 4
    salts = ["run-1-recorded", "run-2-stable", "run-3-stable", "run-4-recorded"]
    assert [salt for _, _, salt in calls] == [salt for salt in salts for _ in range(2)]
    assert [ids for ids, _, _ in calls[:2]] == [ids for ids, _, _ in calls[6:]]
    assert all(Repeats(runs).same_cached_tokens for runs in made.runs.values())


def test_a_warm_up_is_never_counted(model: Model) -> None:
    warm, cold = Logged(model), Logged(model)
    seeded = Sampling(40, 1.0, 5)
    results = [
        replay(engine, model, [STABLE], num_warm_ups=number, sampling=seeded).accounts[STABLE]
        for engine, number in ((warm, 2), (cold, 0))
    ]
    calls = [entry for entry in warm.log if not isinstance(entry, str)]
    (first, sampling, salt), (second, _, _) = calls[:2]
    assert (len(first), len(second), warm.log[2]) == (WARM_UP_TOKENS, WARM_UP_TOKENS, "reset")
    assert first != second
    assert not {*first, *second} & {token.id for token in model.tokenizer.added}
    assert (sampling, salt) == (Sampling(8), "-warm-up")  # unseeded: see opening._whole_prefills
    assert warm.log[2:] == cold.log
    for result in results:
        result.makespan_s, result.ttft_s, result.itl_s = None, [], []
    assert results[0].as_json() == results[1].as_json()


def test_a_warm_up_fits_a_small_context(model: Model) -> None:
    engine = Logged(model, max_model_len=70)
    replay(engine, model, [STABLE], num_warm_ups=1)
    assert len(engine.log[0][0]) == 69


def test_the_engines_own_times_are_those_of_the_run(model: Model) -> None:
    made = replay(Logged(model), model, [RECORDED, STABLE], num_warm_ups=3, num_repeats=2)
    for runs in made.runs.values():
        for found in (run.as_json() for run in runs):
            assert found["engine_ttft_s"] == {"mean": 0.25, "num": 2}
            assert found["engine_queue_s"] is None
            assert found["engine_prefill_s"] == {"mean": 0.125, "num": 2}
    silent = replay(FakeEngine(model.tokenizer.decode), model, [STABLE]).accounts[STABLE]
    assert silent.as_json()["engine_ttft_s"] is None


# --- what several runs come to ------------------------------------------------------------------


def took(
    ttft_s: Sequence[float], makespan_s: float | None, delivered: int | None, **more: Any
) -> Accounts:
    return Accounts(
        16,
        num_calls=len(ttft_s),
        prompt_tokens=1000,
        delivered=delivered,
        ttft_s=[*ttft_s],
        makespan_s=makespan_s,
        **({"is_complete": True} | more),
    )


def test_medians_of_three() -> None:
    runs = [took([1, 5], 10, 960), took([3, 4], 30, 960), took([2, 9], 14, 960)]
    found = Repeats(runs).as_json()
    assert found["ttft_s"] == {"p50": 2, "p95": 5, "p99": 5}
    assert (found["makespan_s"], found["cached_tokens"]) == (14, 960)
    assert found["spread"]["ttft_mean_s"] == {"median": 3.5, "min": 3, "max": 5.5}
    assert found["spread"]["ttft_p50_s"] == {"median": 2, "min": 1, "max": 3}
    assert found["spread"]["ttft_p95_s"] == {"median": 5, "min": 4, "max": 9}
    assert found["spread"]["makespan_s"] == {"median": 14, "min": 10, "max": 30}
    assert found["spread"]["uncached_tokens"] == {"median": 40, "min": 40, "max": 40}
    assert found["spread"]["engine_ttft_mean_s"] is None
    assert found["same_cached_tokens"] is True
    assert found["repeats"] == [run.as_json() for run in runs]
    json.dumps(found)


def test_one_run_is_as_it_is() -> None:
    run = took([1, 5], 10, 960)
    nothing = {"repeats": None, "spread": None, "same_cached_tokens": None}
    assert Repeats([run]).as_json() == run.as_json() | nothing


def test_the_typical_run_is_a_real_one() -> None:
    runs = [took([1], 1, 900), took([1], 1, 700), took([1], 1, 800), took([1], 1, 850)]
    assert Repeats(runs).typical is runs[3]  # 150 of 100, 150, 200, 300 uncached
    assert Repeats(runs).same_cached_tokens is False
    assert Repeats(runs[:2]).typical is runs[0]
    assert Repeats(runs).spread(FIGURES["uncached_tokens"]) == Spread(175, 100, 300)


def test_what_one_run_does_not_know_none_of_them_does() -> None:
    repeats = Repeats([took([1], 1, None), took([1], None, 800)])
    assert repeats.typical is repeats.runs[0]
    assert repeats.same_cached_tokens is None
    assert repeats.spread(FIGURES["makespan_s"]) is None
    found = repeats.as_json()
    assert (found["makespan_s"], found["spread"]["uncached_tokens"]) == (None, None)
    assert found["itl_s"] == {"p50": None, "p95": None, "p99": None}


def test_a_run_that_was_cut_short_counts_only_alone() -> None:
    whole, cut = took([1, 2], 9, 900), took([7], 3, 100, is_complete=False)
    found = Repeats([whole, cut])
    assert (found.typical, found.same_cached_tokens) == (whole, True)
    assert (found.as_json()["makespan_s"], len(found.as_json()["repeats"])) == (9, 2)
    assert Repeats([cut]).typical is cut
