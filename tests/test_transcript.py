"""layout.transcript: append-only ids, each kind of ending, every deviation named."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import pytest
import tokenizers

from duramen.layout.errors import LayoutError
from duramen.layout.template import ChatTemplate, Message
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tokenizer_files import read_json
from duramen.layout.transcript import Transcript
from duramen.layout.zones import Prompt, Zone

CHATML = (files("duramen.configs") / "chatml_tools.jinja").read_text("utf-8")
TOOL = {"type": "function", "function": {"name": "read", "description": "Read a file"}}
WORDS = ["alpha", " beta", "\n", "\n\n", "  ", ".", "日本", "don't", "{}", "x", "<|", "é"]

# Keeps the thinking of the last reply only: what was sent before changes when a user speaks.
FORGETS = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.thinking and loop.index0 > ns.last %}[{{ m.thinking }}]{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

Reference = Callable[[str], list[int]]


@pytest.fixture(scope="module")
def smollm2_tokenizer(smollm2: Path) -> Tokenizer:
    return Tokenizer.load(smollm2, CHATML)


@pytest.fixture(scope="module")
def reference(smollm2: Path) -> Reference:
    whole = tokenizers.Tokenizer.from_str(json.dumps(read_json(smollm2 / "tokenizer.json")))
    return lambda text: whole.encode(text, add_special_tokens=False).ids


def words(random: Random) -> str:
    return "".join(random.choice(WORDS) for _ in range(random.randint(0, 6)))


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def assistant(content: str, **more: Any) -> Message:
    return {"role": "assistant", "content": content, **more}


def whole(template: ChatTemplate, messages: Sequence[Message], tools: Sequence[Any] = ()) -> str:
    return str(template.render(messages, tools=tools, add_generation_prompt=True))


def check_prompt(prompt: Prompt, transcript: Transcript) -> None:
    """Spans partition the prompt; zones only descend in authority."""
    assert list(prompt.token_ids) == list(transcript.token_ids)
    position = 0
    for span in prompt.spans:
        assert span.start == position <= span.end
        position = span.end
    assert position == len(prompt.token_ids)
    zones = [span.zone for span in prompt.spans]
    assert zones == sorted(zones)


def common(a: Sequence[int], b: Sequence[int]) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


@pytest.mark.parametrize("source", [CHATML, FORGETS], ids=["chatml", "forgets"])
def test_turn_by_turn_equals_rendering_the_whole(
    smollm2_tokenizer: Tokenizer, reference: Reference, source: str
) -> None:
    """Without sampled ids; where the template leaves its past, that is named, with the token. What
    is added behind a deviation is the end of the whole."""
    template, random = ChatTemplate(source), Random(1)
    counts: Counter[str] = Counter()
    for _ in range(60):
        transcript = Transcript(smollm2_tokenizer, template)
        messages = [{"role": "system", "content": words(random)}, user(words(random))]
        check_prompt(transcript.start(messages), transcript)
        for _ in range(random.randint(1, 9)):
            role = random.choice(["user", "tool"])
            reply = assistant(words(random), thinking=random.choice(["", "hm"]))
            new = [reply, {"role": role, "content": words(random)}]
            past = reference(whole(template, messages))
            frozen = list(transcript.token_ids)
            messages += new
            num_known = len(transcript.deviations)
            check_prompt(transcript.extend(new), transcript)
            expected = reference(whole(template, messages))
            leaves_past = common(past[:-1], expected) < len(past) - 1  # the last is still open
            named = transcript.deviations[num_known:]
            assert len(named) == leaves_past
            for deviation in named:
                assert deviation.call == transcript.num_calls - 1
                assert deviation.token == common(frozen, expected) < len(frozen)
                counts["again" if num_known else "first"] += 1
            if not transcript.deviations:
                assert list(transcript.token_ids) == expected
                counts["equal"] += 1
            assert list(transcript.token_ids[: len(frozen) - 1]) == frozen[:-1]
            added = reference(f"{new[1]['content']}<|im_end|>\n<|im_start|>assistant\n")
            assert list(transcript.token_ids)[-len(added) :] == expected[-len(added) :]
    assert counts["equal"] > 40
    assert (counts["first"] > 5, counts["again"] > 5) == (source == FORGETS,) * 2


def test_a_template_that_forgets_is_named_with_call_token_and_cause(
    smollm2_tokenizer: Tokenizer, reference: Reference
) -> None:
    template = ChatTemplate(FORGETS)
    transcript = Transcript(smollm2_tokenizer, template)
    transcript.start([user("a"), assistant("b", thinking="hm")])
    frozen = list(transcript.token_ids)
    transcript.extend([user("c")])
    [deviation] = transcript.deviations
    assert deviation.call == 1
    assert deviation.token == len(
        reference("<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n")
    )
    assert "now writes 'b<|im_end|>" in deviation.cause
    assert "had written '[hm]b<|im_end|>" in deviation.cause
    assert list(transcript.token_ids[: len(frozen)]) == frozen


# -- what the model sampled --


@pytest.fixture
def started(smollm2_tokenizer: Tokenizer) -> Transcript:
    transcript = Transcript(smollm2_tokenizer, ChatTemplate(CHATML))
    transcript.start([user("Hi")])
    return transcript


def test_reply_that_ended_with_eos(started: Transcript, reference: Reference) -> None:
    before = list(started.token_ids)
    sampled = reference("Hello there.<|im_end|>")
    started.sampled(sampled, assistant("Hello there."))
    assert list(started.token_ids) == before + sampled
    started.extend([user("go on")])
    text = "\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"
    assert list(started.token_ids) == before + sampled + reference(text)
    assert not started.deviations


def test_reply_that_ended_at_the_length_limit(started: Transcript, reference: Reference) -> None:
    before = list(started.token_ids)
    sampled = reference("Hello the")
    started.sampled(sampled, assistant("Hello the"))
    started.extend([user("go on")])
    text = "<|im_end|>\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"
    assert list(started.token_ids) == before + sampled + reference(text)
    assert not started.deviations


@pytest.mark.parametrize(
    ("pieces", "stop", "kept", "seen"),
    [
        (["One", ".", "\n", "STOP"], "STOP", ["One", ".", "\n"], ""),
        (["One", " two"], "wo", ["One"], " t"),  # begins inside a token
        (["One", " two", " three"], "o th", ["One"], " tw"),  # and spans two
        (["One"], "One", [], ""),
        (["One", " two"], "absent", ["One", " two"], ""),  # the engine had cut it already
    ],
)
def test_reply_that_ended_with_a_stop_string(
    started: Transcript,
    reference: Reference,
    pieces: list[str],
    stop: str,
    kept: list[str],
    seen: str,
) -> None:
    before = list(started.token_ids)
    ids = [token_id for piece in pieces for token_id in reference(piece)]
    visible = "".join(kept) + seen
    started.sampled(ids, assistant(visible), stop=stop)
    expected = [token_id for piece in kept for token_id in reference(piece)] + reference(seen)
    assert list(started.token_ids) == before + expected
    started.extend([user("go on")])
    text = "<|im_end|>\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"
    assert list(started.token_ids) == before + expected + reference(text)
    assert not started.deviations


def tool_call(arguments: str) -> Message:
    function = {"name": "read", "arguments": arguments}
    return assistant("Look.", tool_calls=[{"id": "1", "type": "function", "function": function}])


def test_reply_that_ended_with_a_tool_call(
    smollm2_tokenizer: Tokenizer, reference: Reference
) -> None:
    template = ChatTemplate(CHATML)
    text = (
        'Look.\n<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call><|im_end|>'
    )
    transcript = Transcript(smollm2_tokenizer, template, tools=[TOOL])
    transcript.start([user("Hi")])
    before = list(transcript.token_ids)
    transcript.sampled(reference(text), tool_call('{"path": "a"}'))
    transcript.extend([{"role": "tool", "tool_call_id": "1", "content": "body"}])
    assert list(transcript.token_ids) == before + reference(text) + reference(
        "\n<|im_start|>user\n<tool_response>\nbody\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert not transcript.deviations


def test_arguments_that_come_back_otherwise_are_named(
    smollm2_tokenizer: Tokenizer, reference: Reference
) -> None:
    """The model left out a blank that the client's JSON has."""
    said = 'Look.\n<tool_call>\n{"name": "read", "arguments": {"path":"a"}}\n</tool_call><|im_end|>'
    transcript = Transcript(smollm2_tokenizer, ChatTemplate(CHATML), tools=[TOOL])
    transcript.start([user("Hi")])
    num_prompt = len(transcript.token_ids)
    transcript.sampled(reference(said), tool_call('{"path": "a"}'))
    transcript.extend([{"role": "tool", "tool_call_id": "1", "content": "body"}])
    [deviation] = transcript.deviations
    written = said.replace('{"path":"a"}', '{"path": "a"}')
    assert deviation.token - num_prompt == common(reference(said), reference(written))
    assert "writes the reply as" in deviation.cause


def test_ids_that_do_not_survive_encoding_anew_stay(
    started: Transcript, reference: Reference
) -> None:
    """The model may spell a word with other tokens than the tokenizer would."""
    before = list(started.token_ids)
    odd = [token_id for character in "Hello there" for token_id in reference(character)]
    assert odd != reference("Hello there")
    sampled = [*odd, *reference("<|im_end|>")]
    started.sampled(sampled, assistant("Hello there"))
    prompt = started.extend([user("go on")])
    assert list(started.token_ids[: len(before) + len(sampled)]) == before + sampled
    assert not started.deviations
    [span] = [span for span in prompt.spans if span.sampled]
    assert (span.start, span.end) == (len(before), len(before) + len(sampled))


def test_a_sampled_control_token_in_the_middle_stays(
    started: Transcript, reference: Reference
) -> None:
    sampled = reference("a<|im_start|>b<|im_end|>")
    before = list(started.token_ids)
    started.sampled(sampled, assistant("a<|im_start|>b"))
    started.extend([user("go on")])
    assert list(started.token_ids[: len(before) + 4]) == before + sampled


def test_random_sampled_replies_are_verbatim(
    smollm2_tokenizer: Tokenizer, reference: Reference
) -> None:
    random, template = Random(4), ChatTemplate(CHATML)
    for _ in range(40):
        transcript = Transcript(smollm2_tokenizer, template)
        expected = list(transcript.start([user(words(random))]).token_ids)
        for _ in range(5):
            content = words(random)
            closer = random.choice(["<|im_end|>", ""])
            ids = [i for word in content for i in reference(word)] + reference(closer)
            transcript.sampled(ids, assistant(content))
            new = words(random)
            prompt = transcript.extend([user(new)])
            rest = "" if closer else "<|im_end|>"
            expected += ids + reference(f"{rest}\n<|im_start|>user\n")
            check_prompt(prompt, transcript)
            assert list(prompt.token_ids[: len(expected) - 1]) == expected[:-1]
            expected = list(prompt.token_ids)
        assert not transcript.deviations


# -- seams --


def test_an_unproven_seam_is_encoded_again_and_noted(
    smollm2_tokenizer: Tokenizer, reference: Reference
) -> None:
    template = ChatTemplate(CHATML)
    transcript = Transcript(smollm2_tokenizer, template)
    transcript.start([user("a")])
    frozen = list(transcript.token_ids)
    messages = [user("a"), assistant("\n b"), user("c")]
    prompt = transcript.extend(messages[1:])
    assert list(transcript.token_ids) == reference(whole(template, messages))
    assert frozen[-1] not in transcript.token_ids[len(frozen) - 1 : len(frozen)]
    num_open = len(reference("<|im_start|>assistant\n"))
    assert prompt.notes == (
        f"unproven seam: {num_open} tokens from token {len(frozen) - num_open} were encoded again, "
        "1 of them changed",
    )


def test_independent_seams_never_change_what_is_frozen(
    smollm2_tokenizer: Tokenizer, reference: Reference
) -> None:
    template, random = ChatTemplate(CHATML), Random(5)
    num_unlike = 0
    for _ in range(40):
        transcript = Transcript(smollm2_tokenizer, template, independent_seams=True)
        messages = [user(words(random))]
        transcript.start(messages)
        num_deviating = 0
        for _ in range(4):
            frozen = list(transcript.token_ids)
            reply, new = words(random), user(words(random))
            transcript.extend([assistant(reply), new])
            messages += [assistant(reply), new]
            assert list(transcript.token_ids[: len(frozen)]) == frozen
            alone = reference("assistant\n") + reference(reply)
            # The cut before a reply is the only one inside ordinary text.
            num_deviating += num_unequal(alone, reference(f"assistant\n{reply}"))
        assert transcript.num_deviating == num_deviating
        assert not transcript.deviations
        num_unlike += num_deviating > 0
    assert num_unlike


def num_unequal(token_ids: list[int], canonical: list[int]) -> int:
    head = common(token_ids, canonical)
    a, b = token_ids[head:], canonical[head:]
    return len(a) - common(a[::-1], b[::-1])


# -- spans --


def test_zones_sources_and_digests_of_a_conversation(
    started: Transcript, reference: Reference
) -> None:
    sources = [(span.source, span.zone) for span in started._stream.spans]
    assert sources == [("message 0 (user)", Zone.ROOT), ("generation prompt", Zone.LEAF)]
    started.sampled(reference("Hello<|im_end|>"), assistant("Hello"))
    prompt = started.extend([user("go on")])
    assert [(span.source, span.zone, span.sampled) for span in prompt.spans] == [
        ("message 0 (user)", Zone.ROOT, False),
        ("generation prompt", Zone.TRUNK, False),
        ("message 1 (assistant) text", Zone.TRUNK, True),
        ("message 1 end", Zone.LEAF, False),
        ("message 2 (user)", Zone.LEAF, False),
        ("generation prompt", Zone.LEAF, False),
    ]
    later = started.extend([assistant("x"), user("y")])
    pairs = zip(prompt.spans, later.spans, strict=False)
    assert all((a.source, a.digest, a.start) == (b.source, b.digest, b.start) for a, b in pairs)
    assert [s.zone for s in later.spans[:6]] == [Zone.ROOT] + [Zone.TRUNK] * 5


def test_data_that_spells_a_control_token_is_noted(smollm2_tokenizer: Tokenizer) -> None:
    transcript = Transcript(smollm2_tokenizer, ChatTemplate(CHATML))
    prompt = transcript.start([user("a<|im_end|>b")])
    assert prompt.notes == ("'<|im_end|>' in data stays plain text",)
    end = smollm2_tokenizer.control["<|im_end|>"].id
    assert list(prompt.token_ids).count(end) == 1
    assert transcript.extend([assistant("c"), user("d")]).notes == ()  # a note is given once
    prompt = transcript.extend([assistant("e"), user("<|im_start|>")])
    assert prompt.notes == ("'<|im_start|>' in data stays plain text",)


# -- misuse --


def test_calls_in_the_wrong_order(started: Transcript, smollm2_tokenizer: Tokenizer) -> None:
    with pytest.raises(LayoutError, match="has started"):
        started.start([user("a")])
    started.sampled([5], assistant("a"))
    with pytest.raises(LayoutError, match="needs a prompt"):
        started.sampled([5], assistant("a"))
    fresh = Transcript(smollm2_tokenizer, ChatTemplate(CHATML))
    with pytest.raises(LayoutError, match="has not started"):
        fresh.extend([user("a")])
    with pytest.raises(LayoutError, match="needs a prompt"):
        fresh.sampled([5], assistant("a"))


def test_a_refused_message_changes_nothing(started: Transcript, reference: Reference) -> None:
    """After the error the same call can be made with better messages."""
    before = list(started.token_ids)
    with pytest.raises(LayoutError, match="unknown role nobody"):
        started.extend([{"role": "nobody", "content": "x"}])
    assert list(started.token_ids) == before
    assert started.num_calls == 1
    surrogate = user("a\ud800b")
    with pytest.raises(LayoutError, match="surrogate"):
        started.extend([surrogate])
    assert list(started.token_ids) == before
    started.extend([user("go on")])
    text = "<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"
    assert list(started.token_ids) == before + reference(text)
    [deviation] = started.deviations  # nothing was said where a reply was asked for
    assert deviation.token == len(reference("<|im_start|>user\nHi<|im_end|>\n<|im_start|>"))


def test_a_deviation_behind_sampled_ids_counts_in_frozen_tokens(
    smollm2_tokenizer: Tokenizer, reference: Reference
) -> None:
    """The reply was spelled with more tokens than the template's rendering of it has."""
    transcript = Transcript(smollm2_tokenizer, ChatTemplate(FORGETS))
    transcript.start([user("a")])
    ids = [token_id for character in "Hello" for token_id in reference(character)]
    transcript.sampled([*ids, *reference("<|im_end|>")], assistant("Hello"))
    transcript.extend([{"role": "tool", "content": "t"}, assistant("b", thinking="hm")])
    before_b = len(transcript.token_ids) - len(
        reference("[hm]b<|im_end|>\n<|im_start|>assistant\n")
    )
    transcript.extend([user("c")])
    [deviation] = transcript.deviations
    assert deviation.token == before_b


def test_digests_do_not_depend_on_when_a_message_came(
    smollm2_tokenizer: Tokenizer, reference: Reference
) -> None:
    template, random = ChatTemplate(CHATML), Random(8)
    for _ in range(30):
        messages = [user(f"q{words(random)}")]
        transcript = Transcript(smollm2_tokenizer, template)
        transcript.start(messages)
        for i in range(3):
            new = [assistant(f"a{words(random)}"), user(f"q{i}{words(random)}")]
            messages += new
            grown = transcript.extend(new)
        whole_at_once = Transcript(smollm2_tokenizer, template).start(messages)
        digests = [{s.source: s.digest for s in p.spans if "user" in s.source or "text" in s.source}
                   for p in (grown, whole_at_once)]  # fmt: skip
        assert digests[0] == digests[1]
        assert len(digests[0]) == len(messages)


def test_data_that_spells_the_end_of_the_generation_prompt_is_named(smollm2):
    """The text is the same, but one control token is the template's and the other is data."""
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<|endoftext|>{% endif %}"
    )
    transcript = Transcript(Tokenizer.load(smollm2, source), ChatTemplate(source))
    transcript.start([{"role": "user", "content": "hi"}])
    said = {"role": "assistant", "content": "<|endoftext|>x"}
    prompt = transcript.extend([said, {"role": "user", "content": "go"}])
    [deviation] = transcript.deviations
    assert "<|endoftext|>" in deviation.cause
    assert prompt.notes == ("'<|endoftext|>' in data stays plain text",)


def test_a_stop_string_counts_from_where_the_newest_token_can_have_completed_it(smollm2):
    """Three newlines are one token: the client saw none of them."""
    source = (smollm2 / "chat_template.jinja").read_text("utf-8")
    tokenizer = Tokenizer.load(smollm2, source)
    transcript = Transcript(tokenizer, ChatTemplate(source))
    num_sent = len(transcript.start([{"role": "user", "content": "hi"}]).token_ids)
    ids = list(tokenizer.encode_text("One\n\n\n"))
    transcript.sampled(ids, {"role": "assistant", "content": "One"}, stop="\n\n")
    assert tokenizer.decode(list(transcript.token_ids)[num_sent:]) == "One"


def test_a_reply_cut_behind_a_control_token_that_ends_no_turn_is_closed(smollm2):
    source = (smollm2 / "chat_template.jinja").read_text("utf-8")
    tokenizer = Tokenizer.load(smollm2, source)
    transcript = Transcript(tokenizer, ChatTemplate(source))
    num_sent = len(transcript.start([{"role": "user", "content": "hi"}]).token_ids)
    opener = tokenizer.control["<|im_start|>"].id
    said = {"role": "assistant", "content": "Hello<|im_start|>"}
    transcript.sampled([*tokenizer.encode_text("Hello"), opener], said)
    prompt = transcript.extend([{"role": "user", "content": "x"}])
    text = tokenizer.decode(list(prompt.token_ids)[num_sent:])
    assert text.startswith("Hello<|im_start|><|im_end|>\n<|im_start|>user\nx<|im_end|>")


def test_a_reply_that_begins_with_a_blank_deviates_from_nothing_in_sentencepiece(shared_data):
    """Its decoder drops the blank of the very first token, which a reply never is."""
    source = (
        "{% for m in messages %}{% if m.role == 'user' %}<s>[INST] {{ m.content }} [/INST]"
        "{% else %}{{ m.content }}</s>{% endif %}{% endfor %}"
    )
    tokenizer = Tokenizer.load(shared_data / "tokenizers" / "llama-spm", source)
    transcript = Transcript(tokenizer, ChatTemplate(source))
    transcript.start([{"role": "user", "content": "hi"}])
    ids = [*tokenizer.encode_text(" Hello"), tokenizer.control["</s>"].id]
    transcript.sampled(ids, {"role": "assistant", "content": " Hello"})
    transcript.extend([{"role": "user", "content": "x"}])
    assert transcript.deviations == []
