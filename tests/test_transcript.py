"""layout.transcript: append-only ids, each kind of ending, every deviation named."""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from duramen.layout.errors import LayoutError, TemplateError
from duramen.layout.stream import Sampled
from duramen.layout.template import ChatTemplate, Message
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tokenizer_files import read_json
from duramen.layout.transcript import Frozen, History, Transcript, partial_ids, reply_ids
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

CONTROL = re.compile(r"<\|im_(?:start|end)\|>")

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


# -- resumed from ids --


def frozen(transcript: Transcript, num_reply_ids: int) -> Frozen:
    root = [span.end for span in transcript._stream.spans if span.zone is Zone.ROOT]
    return Frozen(
        list(transcript.token_ids),
        list(transcript.messages),
        num_reply_ids,
        transcript.generation_prompt,
        max(root, default=0),
        transcript.num_calls,
        transcript._replies[:-1],
    )


def twin(transcript: Transcript, **changes: Any) -> Transcript:
    """A new transcript with the same settings."""
    names = ["tokenizer", "template", "tools", "now", "arguments", "independent_seams"]
    names += ["turn_end_ids", "history"]
    return Transcript(**{name: getattr(transcript, name) for name in names} | changes)


def check_resumed(transcript: Transcript, num_reply_ids: int, new: Sequence[Message]) -> None:
    """`transcript` goes on with `new`, and so does one resumed from its ids: to the same prompt."""
    resumed = twin(transcript)
    resumed.resume(frozen(transcript, num_reply_ids))
    assert resumed.generation_prompt == transcript.generation_prompt
    num_frozen, num_known = len(transcript.token_ids), len(transcript.deviations)
    expected, found = transcript.extend(new), resumed.extend(new)
    check_prompt(found, resumed)
    assert found.token_ids == expected.token_ids
    assert resumed.deviations == transcript.deviations[num_known:]
    assert found.notes == expected.notes
    assert resumed.num_calls == transcript.num_calls
    added = [[s for s in p.spans if s.start >= num_frozen] for p in (found, expected)]
    assert added[0] == added[1]


def sampled_as(tokenizer: Tokenizer, random: Random, content: str) -> tuple[list[int], str | None]:
    """Ids for `content`, spelled in odd pieces, with one of the endings; and the stop string."""
    cut = random.randint(0, len(content))
    ids = [*tokenizer.encode_text(content[:cut]), *tokenizer.encode_text(content[cut:])]
    closers = sorted(tokenizer.eos_ids & tokenizer.control_ids) or sorted(tokenizer.control_ids)
    match random.choice(["eos", "length", "stop", "control"]):
        case "eos" if closers:
            return [*ids, closers[0]], None
        case "control" if closers:
            return [*ids, random.choice(sorted(tokenizer.control_ids))], None
        case "stop":
            return [*ids, *tokenizer.encode_text("\nSTOP")], "STOP"
    return ids, None


def talk(transcript: Transcript, random: Random, num_turns: int) -> int:
    """A random conversation in which every call is checked against a resumed twin; calls made."""
    prepared = transcript.template.prepared
    transcript.start(prepared([{"role": "system", "content": "Be kind."}, user("Hi")]))
    for _ in range(num_turns):
        content = words(random)
        ids, stop = sampled_as(transcript.tokenizer, random, content)
        reply = assistant(content, reasoning_content=random.choice(["", "hm"]))
        kept = len(transcript.token_ids)
        transcript.sampled(ids, prepared([reply])[0], stop=stop)
        assert list(transcript.token_ids[kept:]) == reply_ids(transcript.tokenizer, ids, stop)
        new = prepared([user(words(random))])
        check_resumed(transcript, len(transcript.token_ids) - kept, new)
    return num_turns


@pytest.mark.parametrize("history", ["verbatim", "template"])
@pytest.mark.parametrize("independent", [False, True])
@pytest.mark.parametrize("source", [CHATML, FORGETS], ids=["chatml", "forgets"])
def test_resumed_equals_not_resumed(
    smollm2_tokenizer: Tokenizer, source: str, independent: bool, history: History
) -> None:
    random, template = Random(11), ChatTemplate(source)
    for _ in range(25):
        transcript = Transcript(
            smollm2_tokenizer, template, independent_seams=independent, history=history
        )
        talk(transcript, random, random.randint(1, 7))


def test_resumed_equals_not_resumed_with_every_template_and_tokenizer(
    tokenizer_folders: dict[str, Path],
    template_sources: dict[str, str],
    notice: Callable[[str], None],
) -> None:
    """Each tokenizer counts as control tokens what any of the templates spells."""
    random, refused = Random(12), []
    spelled = "\n".join(template_sources.values())
    loaded = [Tokenizer.load(folder, spelled) for folder in tokenizer_folders.values()]
    cases = [(s, loaded[i % len(loaded)]) for i, s in enumerate(template_sources.values())]
    cases += [(CHATML, tokenizer) for tokenizer in loaded]
    histories: list[History] = ["verbatim", "template"]
    for source, tokenizer in cases:
        template = ChatTemplate(source, {"bos_token": "", "eos_token": ""})
        now = datetime(2026, 1, 2, tzinfo=UTC)
        try:
            for history in histories:
                talk(Transcript(tokenizer, template, now=now, history=history), random, 5)
        except TemplateError as error:
            refused.append(str(error))
    assert len(refused) < len(cases) / 4
    if refused:
        notice(f"resumed transcripts: templates that refuse a system message: {refused}")


def test_resumed_equals_not_resumed_in_real_conversations(
    smollm2_tokenizer: Tokenizer, shared_data: Path
) -> None:
    """Tool calls and results: airline conversations, each call's reply spelled as the template
    writes it."""
    random, template = Random(13), ChatTemplate(CHATML)
    recorded = json.loads((shared_data / "tau-bench" / "airline_a.json").read_text("utf-8"))
    num_calls = 0
    for conversation in recorded[:4]:
        messages = template.prepared(conversation["traj"])
        first = next(i for i, m in enumerate(messages) if m["role"] == "assistant")
        transcript = Transcript(smollm2_tokenizer, template, tools=[TOOL])
        transcript.start(messages[:first])
        while (rest := messages[len(transcript.messages) :]) and rest[0]["role"] == "assistant":
            new = list(takewhile(lambda message: message["role"] != "assistant", rest[1:]))
            text = transcript._renderer.reply_text(transcript.messages, rest[0])
            ids = smollm2_tokenizer.encode(text, at_start=False).token_ids[: random.choice([-1, 9])]
            transcript.sampled(ids, rest[0])
            check_resumed(transcript, len(ids), new)
            num_calls += 1
    assert num_calls > 20


def test_the_past_of_a_resumed_transcript_is_coarse(
    started: Transcript, reference: Reference
) -> None:
    num_root = started._stream.spans[0].end
    ids = [reference(f"{text}<|im_end|>") for text in ("Hello", "Bye")]
    started.sampled(ids[0], assistant("Hello"))
    started.extend([user("go on")])
    started.sampled(ids[1], assistant("Bye"))
    resumed = twin(started)
    resumed.resume(frozen(started, len(ids[1])))
    spans = resumed.extend([user("x")]).spans
    assert [(s.source, s.zone, s.sampled) for s in spans] == [
        ("root", Zone.ROOT, False),
        ("history", Zone.TRUNK, False),
        ("message 1 (assistant) text", Zone.TRUNK, True),
        ("history", Zone.TRUNK, False),
        ("message 3 (assistant) text", Zone.TRUNK, True),
        ("message 3 end", Zone.LEAF, False),
        ("message 4 (user)", Zone.LEAF, False),
        ("generation prompt", Zone.LEAF, False),
    ]
    assert spans[0].end == num_root
    assert spans[4].digest == [s for s in started._stream.spans if s.sampled][1].digest


def test_what_cannot_be_resumed(started: Transcript) -> None:
    good: dict[str, Any] = {"generation_prompt": "", "root_tokens": 1}
    with pytest.raises(LayoutError, match="resume in a new one"):
        started.resume(Frozen([1, 2], [user("a"), assistant("b")], 1, **good))
    wrong: list[tuple[list[int], list[Message], int, dict[str, Any]]] = [
        ([1, 2], [user("a")], 3, {}),
        ([1, 2], [user("a")], -1, {}),
        ([1, 2], [user("a")], 2, {}),  # the reply would begin inside the root
        ([1, 2], [], 1, {}),
        ([1, 2], [user("a")], 1, {"num_calls": 0}),
        ([1, 2, 3], [user("a")], 1, {"earlier": [Sampled(1, 1, 3)]}),
        ([1, 2, 3], [user("a")], 1, {"earlier": [Sampled(1, 2, 1)]}),
    ]
    for token_ids, messages, num_reply_ids, more in wrong:
        with pytest.raises(LayoutError):
            Frozen(token_ids, messages, num_reply_ids, **good, **more)


@given(data=st.data(), text=st.text(max_size=30), seed=st.integers(0, 10**6))
def test_a_reply_that_broke_off_spells_what_was_seen(
    smollm2_tokenizer: Tokenizer, data: st.DataObject, text: str, seed: int
) -> None:
    """As many sampled ids as spell a beginning of it, then plain text; nothing closes the turn."""
    tokenizer = smollm2_tokenizer
    ids, _ = sampled_as(tokenizer, Random(seed), text)
    spelled = tokenizer.decode(ids)
    visible = spelled[: data.draw(st.integers(0, len(spelled)))]
    kept = partial_ids(tokenizer, ids, visible)
    assert tokenizer.decode(kept) == visible
    assert not kept or kept[-1] not in tokenizer.control_ids
    heads = [ids[:n] for n in range(len(ids) + 1)]
    longest = [h for h in heads if visible.startswith(tokenizer.decode(h))][-1]
    while longest and longest[-1] in tokenizer.control_ids:
        longest = longest[:-1]
    assert kept[: len(longest)] == longest
    assert kept[len(longest) :] == list(
        tokenizer.encode_text(visible[len(tokenizer.decode(longest)) :])
    )


# -- history="template": the past as the template now writes it --


@pytest.mark.parametrize("source", [CHATML, FORGETS], ids=["chatml", "forgets"])
def test_without_sampled_ids_the_prompt_is_what_the_template_writes(
    smollm2_tokenizer: Tokenizer, reference: Reference, source: str
) -> None:
    template, random = ChatTemplate(source), Random(21)
    num_broken = 0
    for _ in range(60):
        transcript = Transcript(smollm2_tokenizer, template, history="template")
        messages = [{"role": "system", "content": words(random)}, user(words(random))]
        transcript.start(messages)
        for _ in range(random.randint(1, 9)):
            reply = assistant(words(random), thinking=random.choice(["", "hm"]))
            role = random.choice(["user", "tool"])
            new = [reply, {"role": role, "content": f"q{words(random)}"}]
            messages += new
            before, num_known = list(transcript.token_ids), len(transcript.deviations)
            prompt = transcript.extend(new)
            check_prompt(prompt, transcript)
            assert list(prompt.token_ids) == reference(whole(template, messages))
            leaf = [span.source for span in prompt.spans if span.zone is Zone.LEAF]
            assert leaf[-2:] == [f"message {len(messages) - 1} ({role})", "generation prompt"]
            for deviation in transcript.deviations[num_known:]:
                assert deviation.token == common(before, prompt.token_ids)
                num_broken += 1
    assert (num_broken > 20) == (source == FORGETS)


def controls_outside(transcript: Transcript) -> list[int]:
    """Places behind the control tokens that are not inside a sampled reply."""
    inside = {i for r in transcript._replies for i in range(r.start, r.end - 1)}
    control_ids = transcript.tokenizer.control_ids
    return [
        i + 1 for i, t in enumerate(transcript.token_ids) if t in control_ids and i not in inside
    ]


def test_sampled_ids_before_the_break_stay_and_all_behind_is_written_anew(
    smollm2_tokenizer: Tokenizer, reference: Reference
) -> None:
    """Slow twin: of all places behind a control token the last one before which past and present
    have the same messages, written the same."""
    template, random = ChatTemplate(FORGETS), Random(22)
    counts: Counter[str] = Counter()
    for _ in range(60):
        transcript = Transcript(smollm2_tokenizer, template, history="template")
        verbatim = twin(transcript, history="verbatim")
        messages = [user(words(random))]
        for each in (transcript, verbatim):
            each.start(messages)
        for _ in range(random.randint(1, 8)):
            thinking = random.choice(["", "", "hm"])
            content = words(random)
            said = f"[{thinking}]{content}" if thinking else content
            ids = [*(i for c in said for i in reference(c)), *reference("<|im_end|>")]
            new = [{"role": random.choice(["user", "tool", "tool"]), "content": words(random)}]
            reply = assistant(content, thinking=thinking)
            past = whole(template, messages)
            num_known = len(transcript.deviations)
            for each in (transcript, verbatim):
                each.sampled(ids, reply)
            before, places = list(transcript.token_ids), controls_outside(transcript)
            sampled = list(transcript._replies)
            forgetful = twin(transcript)  # does not know which ids were sampled
            forgetful.resume(replace(frozen(transcript, len(ids)), earlier=()))
            messages = [*messages, reply, *new]
            present = whole(template, messages)
            prompt, kept_all = transcript.extend(new), verbatim.extend(new)
            check_prompt(prompt, transcript)
            if present.startswith(past):
                assert prompt == kept_all
                counts["same"] += 1
                assert list(prompt.token_ids[: len(before)]) == before
            else:
                same = common(list(past.encode()), list(present.encode()))
                num_ends = len(CONTROL.findall(present.encode()[:same].decode(errors="ignore")))
                kept = places[num_ends - 1]
                assert list(prompt.token_ids[:kept]) == before[:kept]
                ends = [match.end() for match in CONTROL.finditer(present)]
                assert list(prompt.token_ids[kept:]) == reference(present[ends[num_ends - 1] :])
                assert len(transcript.deviations) > num_known
                again = forgetful.extend(new)
                assert smollm2_tokenizer.decode(again.token_ids) == present
                counts["sampled stay"] += any(r.end <= kept for r in sampled)
                counts["written anew"] += 1
                break
    assert counts["same"] > 20
    assert counts["written anew"] > 20
    assert counts["sampled stay"] > 5


def test_a_reply_with_control_tokens_in_it_stays_before_the_break(
    smollm2_tokenizer: Tokenizer, reference: Reference
) -> None:
    transcript = Transcript(smollm2_tokenizer, ChatTemplate(FORGETS), history="template")
    transcript.start([user("a")])
    odd = reference("x<|im_end|>\n<|im_start|>user\nb<|im_end|>")
    transcript.sampled(odd, assistant("x"))
    transcript.extend([{"role": "tool", "content": "t"}])
    transcript.sampled(reference("[hm]y<|im_end|>"), assistant("y", thinking="hm"))
    transcript.extend([{"role": "tool", "content": "t"}])
    head = list(transcript.token_ids[: transcript._replies[1].start])
    prompt = transcript.extend([assistant("z"), user("c")])
    num_kept = len(head) - len(reference("assistant\n"))
    assert list(prompt.token_ids[:num_kept]) == head[:num_kept]
    rest = "assistant\ny<|im_end|>\n<|im_start|>tool\nt<|im_end|>\n<|im_start|>assistant\nz"
    rest += "<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"
    assert list(prompt.token_ids[num_kept:]) == reference(rest)
    [deviation] = transcript.deviations[-1:]
    assert "now writes 'y<|im_end|>" in deviation.cause
    assert [r.message for r in transcript._replies] == [1]
