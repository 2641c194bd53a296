"""`duramen verify` against a fake engine: it finds what is broken, and only that."""

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp.web
import pytest
from fake_vllm import FakeVllm, publishing, served, with_usage

from duramen.layout.errors import EngineError
from duramen.layout.template import load_chat_template
from duramen.layout.tokenizer import Tokenizer
from duramen.serving.verify.claim import Check, Claim, Seen, try_claim
from duramen.serving.verify.subject import NUM_IDS, Prompts, Subject, diverged, plain_ids
from duramen.serving.verify.suite import CLAIMS, verify
from duramen.serving.vllm.facts import facts_of, read_version
from duramen.serving.vllm.http import EngineHttp

CHAT, UNIT = "/v1/chat/completions", 16
SHORT_LIMIT_S = 30.0

Break = Callable[[FakeVllm], object]


@pytest.fixture(scope="module")
def prompts(smollm2: Path) -> Prompts:
    template = load_chat_template(smollm2)
    tokenizer = Tokenizer.load(smollm2, template.source)
    return Prompts(tokenizer, template, eos_id=2)


@pytest.fixture
def fake(smollm2: Path) -> FakeVllm:
    return FakeVllm(smollm2)


def spoiled(paths: str | tuple[str, ...], change: Callable[[Any, Any], Any]) -> Break:
    """`change` gets the request and the answer, or one event of it, of these paths."""

    def broken(fake: FakeVllm) -> None:
        fake.spoil = lambda path, body, answer: change(body, answer) if path in paths else answer

    return broken


def other_ids(body: Any, answer: Any) -> Any:
    return answer | {"prompt_token_ids": [1]} if "prompt_token_ids" in answer else answer


def if_streamed(body: Any, answer: Any) -> Any:
    return other_ids(body, answer) if body.get("stream") else answer


def if_tools(body: Any, answer: Any) -> Any:
    return other_ids(body, answer) if body.get("tools") else answer


def without_last_id(body: Any, answer: Any) -> Any:
    for choice in answer["choices"]:
        choice["token_ids"] = choice["token_ids"][:-1]
    return answer


def with_stop_in_text(body: Any, answer: Any) -> Any:
    if body.get("stop"):
        answer["choices"][0]["message"]["content"] = body["stop"][0]
    return answer


def without_second_ids(body: Any, answer: Any) -> Any:
    del answer["choices"][-1]["token_ids"]
    return answer


def without_calls(body: Any, answer: Any) -> Any:
    answer["choices"][0]["message"]["tool_calls"] = []
    return answer


def cached(rule: Callable[[int, int], int | None]) -> Break:
    """`rule` makes what is reported of a prompt's length and what was cached."""

    def change(body: Any, answer: Any) -> Any:
        if not (usage := answer.get("usage")):
            return answer
        now = usage["prompt_tokens_details"]["cached_tokens"]
        return with_usage(answer, rule(usage["prompt_tokens"], now))

    return spoiled(CHAT, change)


def fails(body: Any, answer: Any) -> Any:
    raise aiohttp.web.HTTPServiceUnavailable(text="core died")


def answers_500(body: Any, answer: Any) -> Any:
    return {"error": {"message": "core died", "code": 500}} if "error" in answer else answer


def without_metric(name: str) -> Break:
    return spoiled("/metrics", lambda body, page: page.replace(name, "vllm:renamed"))


def set_false(name: str) -> Break:
    return lambda fake: setattr(fake, name, False)


def drop_first(field: str) -> Callable[[Any, Any], Any]:
    return lambda body, answer: answer | {field: answer[field][1:]}


BREAKS: dict[str, Break] = {
    "version": spoiled("/version", lambda body, page: {"version": "0.31.2"}),
    "facts": without_metric("vllm:cache_config_info"),
    "health": spoiled("/health", fails),
    "chat-ids-streamed": spoiled(CHAT, if_streamed),
    "chat-ids-whole": spoiled(CHAT, other_ids),
    "eos-is-sampled": spoiled(CHAT, without_last_id),
    "stop-string": spoiled(CHAT, with_stop_in_text),
    "several-choices": spoiled(CHAT, without_second_ids),
    "tools-auto": spoiled(CHAT, if_tools),
    "tools-named": spoiled(CHAT, without_calls),
    "cached-tokens-reported": cached(lambda num, now: None),
    "cached-repeat": cached(lambda num, now: now + UNIT if now + UNIT == num else now),
    "cached-extension": cached(lambda num, now: now + 8 if now else 0),
    "cached-divergence": cached(lambda num, now: now + 8 if now else 0),
    "match-unit": lambda fake: fake.__init__(fake.folder, block_size=32),  # type: ignore[misc]
    "cached-reply": set_false("keeps_replies"),
    "salts": set_false("takes_salts"),
    "kv-events": set_false("tells_salts"),
    "tokenize-equals-ours": spoiled("/tokenize", drop_first("tokens")),
    "render-equals-ours": spoiled(f"{CHAT}/render", drop_first("token_ids")),
    "control-text-differs": set_false("spells_controls"),
    "fallback-seam": spoiled("/inference/v1/generate", other_ids),
    "timing-metrics": without_metric("vllm:request_queue_time_seconds"),
    "prompt-tokens-by-source": without_metric("vllm:prompt_tokens_by_source"),
    "too-long": spoiled(CHAT, answers_500),
    "unknown-id": spoiled(CHAT, answers_500),
}


@pytest.fixture
async def subject(fake: FakeVllm, prompts: Prompts, tmp_path: Path) -> AsyncIterator[Subject]:
    async with served(fake) as url, publishing(fake, tmp_path) as events:
        http = EngineHttp(url, lambda: "It is a fake.")
        facts = await facts_of(http, None, await read_version(http))
        yield Subject(http, facts, prompts, events)
        await http.close()


async def tried(claim: Claim, subject: Subject) -> Check:
    return await try_claim(claim, subject, time.monotonic() + SHORT_LIMIT_S)


def test_every_claim_is_broken_once() -> None:
    assert [claim.name for claim in CLAIMS] == list(BREAKS)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
async def test_a_claim_holds_and_is_found_broken(
    claim: Claim, subject: Subject, fake: FakeVllm
) -> None:
    sound = await tried(claim, subject)
    assert (sound.verdict, sound.saw) == ("holds", sound.saw)
    BREAKS[claim.name](fake)
    if claim.name == "version":  # as it would be read from that server
        subject.facts = await facts_of(subject.http, None, await read_version(subject.http))
    broken = await tried(claim, subject)
    assert (broken.verdict, broken.saw) == ("broken", broken.saw)
    assert broken.is_failure == claim.needed


async def test_a_sound_engine_holds_all(fake: FakeVllm, prompts: Prompts, tmp_path: Path) -> None:
    seen: list[Check] = []
    async with served(fake) as url, publishing(fake, tmp_path) as events:
        verified = await verify(url, prompts=prompts, events=events, progress=seen.append)
    assert [check.verdict for check in verified.checks] == ["holds"] * len(CLAIMS)
    assert verified.is_fit
    assert tuple(seen) == verified.checks


async def test_what_cannot_be_tried_says_why_and_is_no_failure(fake: FakeVllm) -> None:
    async with served(fake) as url:
        verified = await verify(url)
    not_tried = {c.claim.name: c.saw for c in verified.checks if c.verdict == "not tried"}
    assert not_tried == {
        "eos-is-sampled": "which token ends a reply is not known: give --tokenizer DIR",
        "kv-events": "no addresses of KV events: give --kv-events PUBLISH,REPLAY",
        **dict.fromkeys(
            ("tokenize-equals-ours", "render-equals-ours", "control-text-differs"),
            "no tokenizer and template to compare with: give --tokenizer DIR",
        ),
    }
    assert verified.is_fit


async def test_an_old_version_fails_and_the_rest_is_tried_all_the_same(fake: FakeVllm) -> None:
    BREAKS["version"](fake)
    async with served(fake) as url:
        verified = await verify(url)
    broken = [check.claim.name for check in verified.checks if check.verdict == "broken"]
    assert (verified.version, verified.is_fit, broken) == ("0.31.2", False, ["version"])


async def test_without_block_size_nothing_else_is_tried(fake: FakeVllm) -> None:
    BREAKS["facts"](fake)
    async with served(fake) as url:
        verified = await verify(url)
    verdicts = {check.claim.name: check.verdict for check in verified.checks}
    assert verdicts == {claim.name: "not tried" for claim in CLAIMS} | {"facts": "broken"}
    assert not verified.is_fit


async def test_a_draft_model_is_named(fake: FakeVllm, subject: Subject) -> None:
    cached(lambda num, now: max(now - UNIT, 0))(fake)
    repeat = next(claim for claim in CLAIMS if claim.name == "cached-repeat")
    assert (await tried(repeat, subject)).saw == (
        "16 with 48 tokens shared (expected 32), one unit less, as with a draft model"
    )


async def test_a_server_without_fallback_lacks_it(fake: FakeVllm, subject: Subject) -> None:
    fake.missing = {"/inference/v1/generate", f"{CHAT}/render"}
    verdicts = {
        claim.name: (await tried(claim, subject)).verdict
        for claim in CLAIMS
        if claim.name in ("fallback-seam", "render-equals-ours")
    }
    assert verdicts == {"fallback-seam": "not tried", "render-equals-ours": "not tried"}


@pytest.mark.parametrize("answer", [{}, {"choices": []}, {"choices": None}, [], "x"])
async def test_answers_of_another_form_are_broken(
    fake: FakeVllm, subject: Subject, answer: object
) -> None:
    fake.spoil = lambda path, body, given: answer if path == CHAT else given
    for claim in CLAIMS:
        if claim.name.startswith(("chat-ids", "eos", "several", "tools", "cached", "salts")):
            assert (await tried(claim, subject)).verdict == "broken"


async def test_what_is_broken_once_is_tried_again(subject: Subject) -> None:
    answers = iter([Seen(False, "evicted"), Seen(True, "there")])

    async def probe(subject: Subject) -> Seen:
        return next(answers)

    check = await tried(Claim("a", "b", "c", "d", probe), subject)
    assert (check.verdict, check.saw) == ("holds", "there")


async def test_no_time_is_left(subject: Subject) -> None:
    check = await try_claim(CLAIMS[0], subject, time.monotonic() - 1)
    assert (check.verdict, check.saw) == ("not tried", "the time was used up")


async def test_nobody_there() -> None:
    with pytest.raises(EngineError, match="no answer from the engine"):
        await verify("http://127.0.0.1:9")


def test_plain_ids_repeat_late_and_diverge_everywhere() -> None:
    ids = plain_ids(3 * NUM_IDS)
    assert len(set(ids[:NUM_IDS])) == NUM_IDS
    other = diverged(ids, 5)
    assert other[:5] == ids[:5]
    assert all(a != b for a, b in zip(other[5:], ids[5:], strict=True))
    assert set(other) == set(ids)


def rambles(body: Any, answer: Any) -> Any:
    without_calls(body, answer)["choices"][0]["finish_reason"] = "length"
    return answer


def takes_no_tools(body: Any, answer: Any) -> Any:
    raise aiohttp.web.HTTPBadRequest(text='{"error": {"message": "no parser", "code": 400}}')


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (rambles, "our ids, but the model did not end its call within 64 tokens"),
        (takes_no_tools, "this server takes no named tool: no parser"),
    ],
)
async def test_a_tool_that_could_not_be_called_is_no_failure(
    fake: FakeVllm, subject: Subject, change: Callable[[Any, Any], Any], reason: str
) -> None:
    spoiled(CHAT, change)(fake)
    named = next(claim for claim in CLAIMS if claim.name == "tools-named")
    check = await tried(named, subject)
    assert (check.verdict, check.saw) == ("not tried", reason)
