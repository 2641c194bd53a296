"""layout.transcript: ids that are only added to, seams, spans, every deviation named."""

from collections import Counter
from random import Random

import pytest
from transcript_cases import (
    CHATML,
    FORGETS,
    Encode,
    assistant,
    check_prompt,
    common,
    user,
    whole,
    words,
)

from duramen.layout.errors import LayoutError
from duramen.layout.template import ChatTemplate
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.transcript import Transcript
from duramen.layout.zones import Zone


@pytest.mark.parametrize("source", [CHATML, FORGETS], ids=["chatml", "forgets"])
def test_turn_by_turn_equals_rendering_the_whole(
    smollm2_tokenizer: Tokenizer, encode: Encode, source: str
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
            past = encode(whole(template, messages))
            frozen = list(transcript.token_ids)
            messages += new
            num_known = len(transcript.deviations)
            check_prompt(transcript.extend(new), transcript)
            expected = encode(whole(template, messages))
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
            added = encode(f"{new[1]['content']}<|im_end|>\n<|im_start|>assistant\n")
            assert list(transcript.token_ids)[-len(added) :] == expected[-len(added) :]
    assert counts["equal"] > 40
    assert (counts["first"] > 5, counts["again"] > 5) == (source == FORGETS,) * 2


def test_a_template_that_forgets_is_named_with_call_token_and_cause(
    smollm2_tokenizer: Tokenizer, encode: Encode
) -> None:
    template = ChatTemplate(FORGETS)
    transcript = Transcript(smollm2_tokenizer, template)
    transcript.start([user("a"), assistant("b", thinking="hm")])
    frozen = list(transcript.token_ids)
    transcript.extend([user("c")])
    [deviation] = transcript.deviations
    assert deviation.call == 1
    assert deviation.token == len(encode("<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"))
    assert "now writes 'b<|im_end|>" in deviation.cause
    assert "had written '[hm]b<|im_end|>" in deviation.cause
    assert list(transcript.token_ids[: len(frozen)]) == frozen


def test_an_unproven_seam_is_encoded_again_and_noted(
    smollm2_tokenizer: Tokenizer, encode: Encode
) -> None:
    template = ChatTemplate(CHATML)
    transcript = Transcript(smollm2_tokenizer, template)
    transcript.start([user("a")])
    frozen = list(transcript.token_ids)
    messages = [user("a"), assistant("\n b"), user("c")]
    prompt = transcript.extend(messages[1:])
    assert list(transcript.token_ids) == encode(whole(template, messages))
    assert frozen[-1] not in transcript.token_ids[len(frozen) - 1 : len(frozen)]
    num_open = len(encode("<|im_start|>assistant\n"))
    assert prompt.notes == (
        f"unproven seam: {num_open} tokens from token {len(frozen) - num_open} were encoded again, "
        "1 of them changed",
    )


def test_independent_seams_never_change_what_is_frozen(
    smollm2_tokenizer: Tokenizer, encode: Encode
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
            alone = encode("assistant\n") + encode(reply)
            # The cut before a reply is the only one inside ordinary text.
            num_deviating += num_unequal(alone, encode(f"assistant\n{reply}"))
        assert transcript.num_deviating == num_deviating
        assert not transcript.deviations
        num_unlike += num_deviating > 0
    assert num_unlike


def num_unequal(token_ids: list[int], canonical: list[int]) -> int:
    head = common(token_ids, canonical)
    a, b = token_ids[head:], canonical[head:]
    return len(a) - common(a[::-1], b[::-1])


def test_zones_sources_and_digests_of_a_conversation(started: Transcript, encode: Encode) -> None:
    sources = [(span.source, span.zone) for span in started._stream.spans]
    assert sources == [("message 0 (user)", Zone.ROOT), ("generation prompt", Zone.LEAF)]
    started.sampled(encode("Hello<|im_end|>"), assistant("Hello"))
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


def test_a_refused_message_changes_nothing(started: Transcript, encode: Encode) -> None:
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
    assert list(started.token_ids) == before + encode(text)
    [deviation] = started.deviations  # nothing was said where a reply was asked for
    assert deviation.token == len(encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>"))


def test_digests_do_not_depend_on_when_a_message_came(
    smollm2_tokenizer: Tokenizer, encode: Encode
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
