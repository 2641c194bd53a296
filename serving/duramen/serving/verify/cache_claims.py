"""Claims about the prefix cache: what was computed is found again, in whole units, and told.

U is the match unit. What is expected comes from layout.blocks.reusable_tokens, as in every
prediction of ours.
"""

from collections.abc import Sequence

from duramen.layout.blocks import block_hashes, common_prefix, reusable_tokens
from duramen.serving.verify.claim import Claim, NotTried, Seen
from duramen.serving.verify.subject import Subject, diverged, plain_ids
from duramen.serving.vllm.engine import attach

NUM_REPLY = 8


async def _is_reported(subject: Subject) -> Seen:
    done = await subject.run(plain_ids(8), subject.new_salt())
    if done.cached_tokens is None:
        return Seen(False, "not reported: start vLLM with --enable-prompt-tokens-details")
    return Seen(done.cached_tokens == 0, f"{done.cached_tokens} of a prompt never sent before")


async def _repeat(subject: Subject) -> Seen:
    """A prompt of whole units: its last token is computed again, and so its last unit."""
    prompt = plain_ids(_tokens(subject, 3))
    return await _compare(subject, [(prompt, prompt)])


async def _extension(subject: Subject) -> Seen:
    unit = subject.facts.unit_tokens
    longer = plain_ids(_tokens(subject, 4) - unit // 2)
    return await _compare(subject, [(longer[:-unit], longer)])


async def _divergence(subject: Subject) -> Seen:
    unit = subject.facts.unit_tokens
    prompt = plain_ids(_tokens(subject, 3))
    return await _compare(subject, [(prompt, diverged(prompt, unit + unit // 2))])


async def _unit(subject: Subject) -> Seen:
    """Prompts that share ever more with the first one: hits begin with each whole unit."""
    unit = subject.facts.unit_tokens
    prompt = plain_ids(_tokens(subject, 4))
    shared = (unit - 1, unit, 2 * unit - 1, 2 * unit, 3 * unit)
    return await _compare(subject, [(prompt, diverged(prompt, num)) for num in shared])


async def _reply(subject: Subject) -> Seen:
    """The reply's tokens are cached as the prompt's are, but for the last one, which was sampled
    and never computed: with it the second unit would be full in the second case, too."""
    unit = subject.facts.unit_tokens
    if _tokens(subject, 4) <= 2 * NUM_REPLY:
        raise NotTried(f"a unit of {unit} tokens is shorter than the reply")
    saw, is_right = [], True
    for num_prompt, expected in (
        (2 * unit - NUM_REPLY + 1, 2 * unit),
        (2 * unit - NUM_REPLY, unit),
    ):
        salt, prompt = subject.new_salt(), plain_ids(num_prompt)
        done = await subject.run(prompt, salt, num_reply=NUM_REPLY)
        longer = [*prompt, *done.token_ids, *plain_ids(unit)]
        cached = _reported((await subject.run(longer, salt)).cached_tokens)
        saw.append(f"{cached} (expected {expected})")
        is_right = is_right and cached == expected
    return Seen(is_right, ", ".join(saw))


async def _salts(subject: Subject) -> Seen:
    prompt = plain_ids(_tokens(subject, 3))
    one, other = subject.new_salt(), subject.new_salt()
    await subject.run(prompt, one)
    apart = _reported((await subject.run(prompt, other)).cached_tokens)
    shared = _reported((await subject.run(prompt, one)).cached_tokens)
    expected = reusable_tokens(len(prompt), len(prompt), subject.facts.unit_tokens)
    saw = f"{apart} with another salt, {shared} with the same (expected 0 and {expected})"
    return Seen((apart, shared) == (0, expected), saw)


async def _events(subject: Subject) -> Seen:
    """The mirror that follows the events predicts what is then delivered."""
    if subject.events is None:
        raise NotTried("no addresses of KV events: give --kv-events PUBLISH,REPLAY")
    facts, salt = subject.facts, subject.new_salt()
    prompt = plain_ids(_tokens(subject, 3))
    engine = await attach(
        subject.http.url, model=facts.model, events=subject.events, api_key=subject.api_key
    )
    try:
        assert engine.mirror is not None
        await subject.run(prompt, salt)
        if not await engine.settle(prompt, salt):
            return Seen(False, engine.mirror.broken or "the events of a call did not come")
        hashes = [*block_hashes(prompt, facts.block_size, salt)]
        predicted = engine.mirror.resident(hashes, len(prompt))
    finally:
        await engine.close()
    delivered = _reported((await subject.run(prompt, salt)).cached_tokens)
    return Seen(predicted == delivered, f"{predicted} predicted, {delivered} delivered")


async def _compare(subject: Subject, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Seen:
    """For each pair: the first prompt, then the second one, both with a salt of their own."""
    unit = subject.facts.unit_tokens
    saw, is_right = [], True
    for first, second in pairs:
        salt = subject.new_salt()
        await subject.run(first, salt)
        cached = _reported((await subject.run(second, salt)).cached_tokens)
        shared = common_prefix(list(first), list(second))
        expected = reusable_tokens(shared, len(second), unit)
        saw.append(f"{cached} with {shared} tokens shared (expected {expected})")
        is_right = is_right and cached == expected
        if cached == reusable_tokens(shared, len(second), unit, draft=True) != expected:
            saw.append("one unit less, as with a draft model")
    return Seen(is_right, ", ".join(saw))


def _tokens(subject: Subject, num_units: int) -> int:
    """So many whole units. Raises NotTried where they do not fit."""
    num_tokens = num_units * subject.facts.unit_tokens
    if num_tokens + NUM_REPLY >= subject.facts.max_model_len:
        raise NotTried(
            f"{num_units} units of {subject.facts.unit_tokens} tokens do not fit the context of "
            f"{subject.facts.max_model_len}"
        )
    return num_tokens


def _reported(cached_tokens: int | None) -> int:
    if cached_tokens is None:
        raise NotTried("the engine does not report cached tokens")
    return cached_tokens


PREDICTION = "serving/kv: every prediction of cached tokens"
REPORTED = Claim(
    "cached-tokens-reported",
    "a prompt that was never sent before",
    "usage.prompt_tokens_details.cached_tokens, 0",
    "every figure of delivered tokens",
    _is_reported,
)
CLAIMS = (
    Claim(
        "cached-repeat",
        "a prompt of 3 U, twice",
        "2 U: the last token is always computed",
        PREDICTION,
        _repeat,
    ),
    Claim(
        "cached-extension",
        "a prompt of 2 1/2 U, then the same with one more U behind it",
        "2 U: whole units of what was computed",
        PREDICTION,
        _extension,
    ),
    Claim(
        "cached-divergence",
        "two prompts of 3 U that part after 1 1/2 U",
        "U: the unit in which they part is computed",
        PREDICTION,
        _divergence,
    ),
    Claim(
        "match-unit",
        "prompts that share U - 1, U, 2 U - 1, 2 U and 3 U tokens with an earlier one",
        "0, U, U, 2 U and 3 U: hits come in the units that /metrics names",
        PREDICTION,
        _unit,
    ),
    Claim(
        "cached-reply",
        f"a reply of {NUM_REPLY} tokens, then prompt, reply and more; twice, a token apart",
        "sampled tokens are cached, too, except the last one",
        "layout/transcript.py: conversations that go on with sampled ids",
        _reply,
    ),
    Claim(
        "salts",
        "a prompt of 3 U with one cache_salt, with another one, with the first again",
        "0 with the other salt, 2 U with the same",
        "serving/gateway/tenants.py: tenants share no block",
        _salts,
    ),
)
EVENTS = Claim(
    "kv-events",
    "a prompt of 3 U, its events, then the prompt again",
    "the mirror that follows the events predicts what is delivered",
    "serving/vllm/events.py, serving/kv/mirror.py: what is promised before a call",
    _events,
)
