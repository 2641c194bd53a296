"""Replay over the cache model and over a fake engine: breaks, skips, what survives."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from replay_cases import (
    ALL,
    CLOCK,
    RECORDED,
    STABLE,
    Recorder,
    fake_engine,
    growing,
    replay,
    said,
    user,
)

from duramen.experiments.accounts import Accounts
from duramen.experiments.layout_run import Overflow
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.replay import Replay
from duramen.experiments.target import LiveTarget, ModelTarget
from duramen.experiments.trajectory import Call, Message, Session
from duramen.layout.errors import EngineError, LayoutError
from duramen.serving.vllm.fake import FakeEngine
from duramen.serving.vllm.protocol import Completion, Sampling


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return load_model(smollm2, None)


@pytest.mark.parametrize("layout", [RECORDED, STABLE])
def test_recorded_replies_break_nothing(model: Model, layout: Layout) -> None:
    sums = replay(model, [growing("a", 5), growing("b", 5)], ModelTarget(None, 1, None), layout)
    assert (sums.num_sessions, sums.num_calls, sums.breaks) == (2, 10, [])
    assert sums.delivered == sums.unit - 8  # the last sampled token of 8 replies
    assert sums.predicted is None  # the model is what would predict
    assert sums.unit == sums.token - 1  # the first prompt of both is the same
    assert 0 < sums.prompt_tokens - sums.content <= (sums.uncached_tokens or 0)


def test_the_clock_breaks_every_call_in_the_system_prompt(model: Model) -> None:
    sums = replay(model, [growing("a", 5)], ModelTarget(None, 32, None), CLOCK)
    assert {found.source for found in sums.breaks} == {"message 0 (system)"}
    assert [found.call for found in sums.breaks] == [1, 2, 3, 4]
    assert sums.delivered == 0
    assert all(found.lost_tokens > 0 for found in sums.breaks)


def test_live_replies_break_recorded_inside_the_reply_and_stable_never(model: Model) -> None:
    """The fake samples ids that spell no canonical text."""
    sessions = [growing("a", 6), growing("b", 6)]
    broken, kept = (
        replay(
            model,
            sessions,
            LiveTarget(fake_engine(model), Sampling(24, 1.0, 7), serial=True, salt=""),
            layout,
            live_replies=True,
        )
        for layout in (RECORDED, STABLE)
    )
    assert len(broken.breaks) == 10  # each call that follows a reply
    assert all(found.source.endswith("(assistant) text") for found in broken.breaks)
    assert (kept.breaks, kept.mismatches, broken.mismatches) == ([], {}, {})
    assert kept.predicted == kept.delivered == kept.unit
    assert (kept.uncached_tokens or 0) < (broken.uncached_tokens or 0)


@pytest.mark.parametrize(
    ("second", "sources"),
    [
        ((user("Go."), user("And now?")), ["message 1 (user)"]),  # in place of an answer's opening
        ((user("Go."), said("rewritten"), user("And now?")), []),
        ((user("Go."),), []),  # sent again
    ],
)
def test_a_reply_that_the_client_does_not_keep_is_not_what_breaks(
    model: Model, second: tuple[Message, ...], sources: list[str]
) -> None:
    session = Session("s", (Call((user("Go."),), said("recorded")), Call(second, None)))
    target = LiveTarget(fake_engine(model), Sampling(8), serial=True, salt="")
    recorded = replay(model, [session], target, RECORDED, live_replies=True)
    assert [found.source for found in recorded.breaks] == sources
    watched = Recorder(target)
    stable = replay(model, [session], watched, STABLE, live_replies=True)
    assert (stable.num_calls, stable.breaks) == (2, [])
    (first, outcome), (then, _) = watched.sent
    assert then[: len(first)] == first
    assert then[len(first) :][: len(outcome.token_ids)] != list(outcome.token_ids)


def test_an_edit_is_a_break_where_it_was_made(model: Model) -> None:
    calls = tuple(
        Call(
            (user("Read this. " * 20), said("Done."), user(f"Try {n}"), said("x"), user("y")), None
        )
        for n in (1, 2)
    )
    for layout in (RECORDED, STABLE):
        sums = replay(model, [Session("s", calls)], ModelTarget(None, 1, None), layout)
        assert [(found.call, found.source) for found in sums.breaks] == [(1, "message 2 (user)")]


def test_overflow_is_skipped_and_counted(model: Model) -> None:
    target = Recorder(ModelTarget(None, 16, 80))
    sums = replay(model, [growing("a", 5)], target, STABLE)
    assert max(len(prompt) for prompt, _ in target.sent) < 80
    limit = len(target.sent[-1][0])  # a prompt that fills the context leaves no room for a reply
    filled = replay(model, [growing("a", 5)], ModelTarget(None, 16, limit), STABLE)
    assert filled.num_calls == sums.num_calls - 1
    assert sums.num_calls == len(target.sent) == 5 - sums.num_skipped.total()
    assert dict(sums.num_skipped) == {"longer_than_context": 5 - sums.num_calls}
    assert 0 < sums.num_calls < 5


def test_overflow_is_truncated_to_the_newest_tokens_and_noted(model: Model) -> None:
    whole, cut = Recorder(ModelTarget(None, 16, None)), Recorder(ModelTarget(None, 16, 80))
    replay(model, [growing("a", 5)], whole, RECORDED)
    sums = replay(model, [growing("a", 5)], cut, RECORDED, overflow=Overflow.TRUNCATE)
    assert [prompt for prompt, _ in cut.sent] == [prompt[-79:] for prompt, _ in whole.sent]
    assert (sums.num_calls, sums.num_skipped) == (5, {})
    [(note, count)] = sums.notes.items()
    assert "cut off" in note
    assert count == sum(len(prompt) > 79 for prompt, _ in whole.sent)


def test_overflow_fails_with_the_place_and_keeps_what_was_done(model: Model) -> None:
    run = Replay(
        [growing("a", 5)], model, ModelTarget(None, 16, 80), overflow=Overflow.FAIL, concurrency=2
    )
    with pytest.raises(
        LayoutError, match=r"session a, call \d: \d+ tokens .* longer_than_context, 80"
    ):
        asyncio.run(run.run([STABLE, RECORDED]))
    assert list(run.accounts) == [STABLE]
    assert 0 < run.accounts[STABLE].num_calls < 5


def test_a_pool_that_is_no_whole_number_of_units(model: Model) -> None:
    """The context is what fits: the last, broken unit holds nothing."""
    target = ModelTarget(95, 16, 1000)
    assert target.max_model_len == 80
    sums = replay(model, [growing("a", 5)], target, STABLE)
    assert sums.num_skipped["larger_than_pool"] > 0
    with pytest.raises(LayoutError, match="15 tokens holds no unit of 16"):
        ModelTarget(15, 16, None)


REFUSING = """{% for message in messages %}{% if message.content == 'NO' %}
{{- raise_exception('not that') }}{% endif %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.mark.parametrize("layout", ALL)
def test_what_the_template_refuses_is_counted(
    smollm2: Path, tmp_path: Path, layout: Layout
) -> None:
    """The call before and the one after are sent."""
    (tmp_path / "refusing.jinja").write_text(REFUSING)
    refusing = load_model(smollm2, tmp_path / "refusing.jinja")
    first, middle, last = (user("Go."),), (user("Go."), said("ok"), user("NO")), (user("Stop."),)
    calls = tuple(Call(messages, said("ok")) for messages in (first, middle, last))
    sums = replay(refusing, [Session("s", calls)], ModelTarget(None, 16, None), layout)
    assert (sums.num_calls, dict(sums.num_skipped)) == (2, {"refused_by_template": 1})
    assert [note for note in sums.notes if "not that" in note]


@pytest.mark.parametrize("layout", ALL)
def test_a_recorded_reply_that_the_template_refuses_was_not_sampled(
    smollm2: Path, tmp_path: Path, layout: Layout
) -> None:
    """Its call counts; the next one, which quotes it, is refused."""
    (tmp_path / "refusing.jinja").write_text(REFUSING)
    refusing = load_model(smollm2, tmp_path / "refusing.jinja")
    first, second = (user("Go."),), (user("Go."), said("NO"), user("On."))
    session = Session("s", (Call(first, said("NO")), Call(second, None), Call(first, said("ok"))))
    target = Recorder(ModelTarget(None, 16, None))
    sums = replay(refusing, [session], target, layout)
    assert (sums.num_calls, dict(sums.num_skipped)) == (2, {"refused_by_template": 1})
    assert [len(outcome.token_ids) for _, outcome in target.sent] == [0, 2]
    assert sums.breaks == [] or layout is CLOCK


REFUSING_THE_END = REFUSING.replace(
    "message.content == 'NO'", "loop.last and message.role == 'assistant'"
)


def test_a_reply_that_the_template_refuses_only_at_the_end_is_sent_as_text(
    smollm2: Path, tmp_path: Path
) -> None:
    (tmp_path / "refusing.jinja").write_text(REFUSING_THE_END)
    refusing = load_model(smollm2, tmp_path / "refusing.jinja")
    targets = [Recorder(ModelTarget(None, 16, None)) for _ in range(2)]
    for target, layout in zip(targets, (RECORDED, STABLE), strict=True):
        replay(refusing, [growing("a", 3)], target, layout)
    assert [prompt for prompt, _ in targets[0].sent] == [prompt for prompt, _ in targets[1].sent]


class Halting(FakeEngine):
    """Raises `error` at call number `at`."""

    def __init__(self, model: Model, at: int, error: BaseException) -> None:
        super().__init__(model.tokenizer.decode)
        self._left, self._error = at, error

    async def complete(self, *arguments: Any, **options: Any) -> Completion:
        self._left -= 1
        if self._left < 0:
            raise self._error
        return await super().complete(*arguments, **options)


@pytest.mark.parametrize("error", [EngineError("it died"), KeyboardInterrupt()])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_what_was_done_survives_an_end_in_the_middle(
    model: Model, error: BaseException, concurrency: int
) -> None:
    target = LiveTarget(Halting(model, 4, error), Sampling(4), serial=concurrency == 1, salt="")
    sessions = [growing(name, 3) for name in "abc"]
    run = Replay(sessions, model, target, live_replies=True, concurrency=concurrency)
    with pytest.raises(type(error)):
        asyncio.run(run.run([RECORDED, STABLE]))
    assert list(run.accounts) == [RECORDED]
    sums = run.accounts[RECORDED]
    assert 0 < sums.num_calls <= 4
    assert sums.prompt_tokens > 0
    assert sums.makespan_s is not None
    json.dumps(sums.as_json())


def test_the_first_ctrl_c_ends_a_run_that_never_waits(model: Model) -> None:
    run = Replay([growing("a", 9)], model, ModelTarget(None, 16, None))

    def interrupt(layout: Layout, sums: Accounts) -> None:
        if sums.num_calls == 3:
            signal.raise_signal(signal.SIGINT)

    run.progress = interrupt
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run.run([RECORDED, STABLE]))
    assert list(run.accounts) == [RECORDED]
    assert run.accounts[RECORDED].num_calls == 3
