"""What the price books are given of a call: content blocks, keys, breakpoints, and the sums."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.opening import load_model
from duramen.experiments.prices.book import Entry
from duramen.experiments.prices.money import Prices, Tariff
from duramen.experiments.prices.rules import CacheRules
from duramen.experiments.study.arms import Arm
from duramen.experiments.study.measure import ids_of
from duramen.experiments.study.pricing import Pricing, content_blocks
from duramen.experiments.study.schedule import Pace, with_times
from duramen.experiments.study.study import Study
from duramen.experiments.study.walk import Walk
from duramen.experiments.trajectory import Call, Session
from duramen.layout.errors import PriceError
from duramen.layout.template import ChatTemplate
from duramen.layout.zones import Zone

SYSTEM = {"role": "system", "content": "You fix code. " * 30}
USER = {"role": "user", "content": "Fix it. " * 12}
READ = {"id": "1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
ASKS = {"role": "assistant", "content": "I read.", "tool_calls": [READ, {**READ, "id": "2"}]}
OUTPUTS = tuple({"role": "tool", "tool_call_id": i, "content": f"x = {i}\n" * 9} for i in "12")
DONE = {"role": "assistant", "content": "Done."}
MERGING = {  # templates that write a tool result into the turn before it, or drop it
    "google-gemma-4-31B-it",
    "llama-cpp-rwkv-world",
    "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Mistral-Nemo-Instruct-2407",
}
PRICES = Prices(Decimal(3), Decimal(15), Decimal("0.3"), Decimal("3.75"))
AUTOMATIC = CacheRules("automatic", ttl_s=60.0)
BREAKPOINTS = CacheRules("breakpoints", ttl_s=60.0, lookback_positions=20, write="write_5m")


def entry(name: str, rules: CacheRules, prices: Prices = PRICES) -> Entry:
    return Entry(f"test/{name}", "2026-11-30", Tariff(f"test/{name}", prices), rules)


@pytest.fixture(scope="module")
def model(smollm2):
    return load_model(smollm2, None)


def session(gap_s: float = 10.0) -> Session:
    calls = (Call((SYSTEM, USER), ASKS), Call((SYSTEM, USER, ASKS, *OUTPUTS), DONE))
    return with_times([Session("s", calls)], Pace(gap_s=gap_s))[0]


def steps(model, label: str, gap_s: float = 10.0):
    return list(Walk(model, Layout.parse(label))(session(gap_s)))


@pytest.mark.parametrize("label", ["stable", "recorded"])
def test_blocks_are_messages_and_tool_results_in_a_row_are_one(model, label):
    first, second = steps(model, label)
    assert len(list(content_blocks(first.prompt))) == 2  # the opening of the reply ends the last
    blocks = list(content_blocks(second.prompt))
    tokens = second.prompt.token_ids
    texts = [
        model.tokenizer.decode(tokens[start.end if start else 0 : block.end])
        for start, block in zip([None, *blocks], blocks, strict=False)
    ]
    assert [text[:24].strip() for text in texts[:2]] == [
        "<|im_start|>system\nYou f",
        "<|im_start|>user\nFix it.",
    ]
    assert texts[2].startswith("<|im_start|>assistant\nI read.")
    assert texts[3].count("<tool_response>") == 2
    assert blocks[-1].end == len(tokens)


@pytest.mark.parametrize("label", ["stable", "recorded"])
def test_a_block_ends_with_the_same_key_in_the_next_call(model, label):
    pricing = Pricing([], Layout.parse(label))
    first, second = (
        pricing._call(step, ids_of(step.prompt.token_ids)) for step in steps(model, label)
    )
    assert second.end_keys[:2] == first.end_keys[:2]
    assert first.ends[-1] == first.num_tokens
    assert len({*first.end_keys, *second.end_keys}) == len(second.end_keys)


def reading_agent() -> Session:
    """Six calls; the paths differ, so that no block is like another."""
    messages: list[dict] = [SYSTEM, USER]
    calls = []
    for number in range(6):
        function = {"name": "read_file", "arguments": json.dumps({"path": f"f{number}.py"})}
        asked = [{"id": f"call{number:05d}", "type": "function", "function": function}]
        reply = {"role": "assistant", "content": "I read.", "tool_calls": asked}
        calls.append(Call(tuple(messages), reply))
        output = {
            "role": "tool",
            "tool_call_id": f"call{number:05d}",
            "content": f"x{number}\n" * 9,
        }
        messages += [reply, output]
    return with_times([Session("s", tuple(calls))], Pace())[0]


def test_blocks_are_messages_under_every_template(smollm2, template_sources, notice):
    """`stable` keeps its blocks' keys whatever the template; `recorded` has as many blocks."""
    model, session, num_rendered = load_model(smollm2, None), reading_agent(), 0
    for name, source in template_sources.items():
        other = replace(model, template=ChatTemplate(source))
        counts = {}
        for label in ("stable", "recorded"):
            pricing, last_key = Pricing([], Layout.parse(label)), None
            counts[label] = []
            for step in Walk(other, Layout.parse(label))(session):
                call = pricing._call(step, ids_of(step.prompt.token_ids))
                encoded_again = any("encoded again" in note for note in step.prompt.notes)
                if label == "stable" and not encoded_again:
                    assert last_key is None or last_key in call.end_keys, name
                last_key = call.end_keys[-1]
                counts[label].append(len(call.ends))
        num_rendered += bool(counts["stable"])
        ascending = [2 + 2 * number for number in range(len(counts["stable"]))]
        if name not in MERGING:
            assert counts == {"stable": ascending, "recorded": ascending}, name
    notice(f"price blocks: {num_rendered} templates rendered")


def test_zoned_marks_the_ends_of_root_and_trunk(model):
    call = steps(model, "zoned")[1]
    pricing = Pricing([], Layout.parse("zoned"))
    marked = pricing._call(call, ids_of(call.prompt.token_ids))
    ends = [marked.ends[mark] for mark in marked.marks]
    zone_ends = [
        max((span.end for span in call.prompt.spans if span.zone is zone), default=None)
        for zone in (Zone.ROOT, Zone.TRUNK)
    ]
    assert ends == [end for end in zone_ends if end is not None]


def test_the_second_call_reads_what_the_first_one_left(model):
    pricing = Pricing([entry("a", AUTOMATIC), entry("b", BREAKPOINTS)], Layout.parse("stable"))
    first, second = steps(model, "stable")
    usd = [pricing.serve(step, ids_of(step.prompt.token_ids)) for step in (first, second)]
    n1, n2 = len(first.prompt.token_ids), len(second.prompt.token_ids)
    o1, o2 = len(first.reply_ids), len(second.reply_ids)
    hit = n1 // 16 * 16
    expected = Decimal(3 * (n1 + n2 - hit) + 15 * (o1 + o2)) + Decimal("0.3") * hit
    assert usd[0]["test/a"] + usd[1]["test/a"] == expected / 10**6
    assert pricing.usage["test/a"].cached_read == hit
    opening = first.prompt.spans[-1]
    assert opening.source == "generation prompt"
    assert pricing.usage["test/b"].cached_read == opening.start
    assert pricing.usage["test/b"].prompt == n1 + n2


def test_nothing_is_left_after_the_ttl(model):
    pricing = Pricing([entry("a", AUTOMATIC)], Layout.parse("stable"))
    for step in steps(model, "stable", gap_s=61.0):
        pricing.serve(step, ids_of(step.prompt.token_ids))
    assert pricing.usage["test/a"].cached_read == 0


def test_a_price_that_is_missing_is_loud(model):
    prices = Prices(Decimal(3), Decimal(15), Decimal("0.3"))
    study = Study([session()], model, [Arm(16)], entries=[entry("b", BREAKPOINTS, prices)])
    with pytest.raises(PriceError, match=r"test/b has no price 'write_5m'"):
        study.run([Layout.parse("stable")])


def test_sessions_add_up_to_the_whole(model):
    study = Study([session()], model, [Arm(16)], entries=[entry("a", AUTOMATIC)])
    [result] = study.run([Layout.parse("stable")])
    usage = result.usage["test/a"]
    assert usage["uncached"] + usage["cached_read"] == result.prompt_tokens
    assert usage["output"] == result.output_tokens
    billed = 3 * usage["uncached"] + Decimal("0.3") * usage["cached_read"] + 15 * usage["output"]
    assert result.usd("test/a") == billed / 10**6
