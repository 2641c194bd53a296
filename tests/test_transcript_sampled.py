"""What the model sampled stays as it is, whatever the reply ended with."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transcript_cases import (
    CHATML,
    FORGETS,
    TOOL,
    Encode,
    assistant,
    check_prompt,
    common,
    sampled_as,
    user,
    words,
)

from duramen.layout.template import ChatTemplate, Message
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.transcript import Transcript, partial_ids


def test_reply_that_ended_with_eos(started: Transcript, encode: Encode) -> None:
    before = list(started.token_ids)
    sampled = encode("Hello there.<|im_end|>")
    started.sampled(sampled, assistant("Hello there."))
    assert list(started.token_ids) == before + sampled
    started.extend([user("go on")])
    text = "\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"
    assert list(started.token_ids) == before + sampled + encode(text)
    assert not started.deviations


def test_reply_that_ended_at_the_length_limit(started: Transcript, encode: Encode) -> None:
    before = list(started.token_ids)
    sampled = encode("Hello the")
    started.sampled(sampled, assistant("Hello the"))
    started.extend([user("go on")])
    text = "<|im_end|>\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"
    assert list(started.token_ids) == before + sampled + encode(text)
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
    encode: Encode,
    pieces: list[str],
    stop: str,
    kept: list[str],
    seen: str,
) -> None:
    before = list(started.token_ids)
    ids = [token_id for piece in pieces for token_id in encode(piece)]
    visible = "".join(kept) + seen
    started.sampled(ids, assistant(visible), stop=stop)
    expected = [token_id for piece in kept for token_id in encode(piece)] + encode(seen)
    assert list(started.token_ids) == before + expected
    started.extend([user("go on")])
    text = "<|im_end|>\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"
    assert list(started.token_ids) == before + expected + encode(text)
    assert not started.deviations


def test_a_stop_string_counts_from_where_the_newest_token_can_have_completed_it(smollm2):
    """Three newlines are one token: the client saw none of them."""
    source = (smollm2 / "chat_template.jinja").read_text("utf-8")
    tokenizer = Tokenizer.load(smollm2, source)
    transcript = Transcript(tokenizer, ChatTemplate(source))
    num_sent = len(transcript.start([{"role": "user", "content": "hi"}]).token_ids)
    ids = list(tokenizer.encode_text("One\n\n\n"))
    transcript.sampled(ids, {"role": "assistant", "content": "One"}, stop="\n\n")
    assert tokenizer.decode(list(transcript.token_ids)[num_sent:]) == "One"


def tool_call(arguments: str) -> Message:
    function = {"name": "read", "arguments": arguments}
    return assistant("Look.", tool_calls=[{"id": "1", "type": "function", "function": function}])


def test_reply_that_ended_with_a_tool_call(smollm2_tokenizer: Tokenizer, encode: Encode) -> None:
    template = ChatTemplate(CHATML)
    text = (
        'Look.\n<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call><|im_end|>'
    )
    transcript = Transcript(smollm2_tokenizer, template, tools=[TOOL])
    transcript.start([user("Hi")])
    before = list(transcript.token_ids)
    transcript.sampled(encode(text), tool_call('{"path": "a"}'))
    transcript.extend([{"role": "tool", "tool_call_id": "1", "content": "body"}])
    assert list(transcript.token_ids) == before + encode(text) + encode(
        "\n<|im_start|>user\n<tool_response>\nbody\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert not transcript.deviations


def test_arguments_that_come_back_otherwise_are_named(
    smollm2_tokenizer: Tokenizer, encode: Encode
) -> None:
    """The model left out a blank that the client's JSON has."""
    said = 'Look.\n<tool_call>\n{"name": "read", "arguments": {"path":"a"}}\n</tool_call><|im_end|>'
    transcript = Transcript(smollm2_tokenizer, ChatTemplate(CHATML), tools=[TOOL])
    transcript.start([user("Hi")])
    num_prompt = len(transcript.token_ids)
    transcript.sampled(encode(said), tool_call('{"path": "a"}'))
    transcript.extend([{"role": "tool", "tool_call_id": "1", "content": "body"}])
    [deviation] = transcript.deviations
    written = said.replace('{"path":"a"}', '{"path": "a"}')
    assert deviation.token - num_prompt == common(encode(said), encode(written))
    assert "writes the reply as" in deviation.cause


def test_ids_that_do_not_survive_encoding_anew_stay(started: Transcript, encode: Encode) -> None:
    """The model may spell a word with other tokens than the tokenizer would."""
    before = list(started.token_ids)
    odd = [token_id for character in "Hello there" for token_id in encode(character)]
    assert odd != encode("Hello there")
    sampled = [*odd, *encode("<|im_end|>")]
    started.sampled(sampled, assistant("Hello there"))
    prompt = started.extend([user("go on")])
    assert list(started.token_ids[: len(before) + len(sampled)]) == before + sampled
    assert not started.deviations
    [span] = [span for span in prompt.spans if span.sampled]
    assert (span.start, span.end) == (len(before), len(before) + len(sampled))


def test_a_sampled_control_token_in_the_middle_stays(started: Transcript, encode: Encode) -> None:
    sampled = encode("a<|im_start|>b<|im_end|>")
    before = list(started.token_ids)
    started.sampled(sampled, assistant("a<|im_start|>b"))
    started.extend([user("go on")])
    assert list(started.token_ids[: len(before) + 4]) == before + sampled


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


def test_a_deviation_behind_sampled_ids_counts_in_frozen_tokens(
    smollm2_tokenizer: Tokenizer, encode: Encode
) -> None:
    """The reply was spelled with more tokens than the template's rendering of it has."""
    transcript = Transcript(smollm2_tokenizer, ChatTemplate(FORGETS))
    transcript.start([user("a")])
    ids = [token_id for character in "Hello" for token_id in encode(character)]
    transcript.sampled([*ids, *encode("<|im_end|>")], assistant("Hello"))
    transcript.extend([{"role": "tool", "content": "t"}, assistant("b", thinking="hm")])
    before_b = len(transcript.token_ids) - len(encode("[hm]b<|im_end|>\n<|im_start|>assistant\n"))
    transcript.extend([user("c")])
    [deviation] = transcript.deviations
    assert deviation.token == before_b


def test_random_sampled_replies_are_verbatim(smollm2_tokenizer: Tokenizer, encode: Encode) -> None:
    random, template = Random(4), ChatTemplate(CHATML)
    for _ in range(40):
        transcript = Transcript(smollm2_tokenizer, template)
        expected = list(transcript.start([user(words(random))]).token_ids)
        for _ in range(5):
            content = words(random)
            closer = random.choice(["<|im_end|>", ""])
            ids = [i for word in content for i in encode(word)] + encode(closer)
            transcript.sampled(ids, assistant(content))
            new = words(random)
            prompt = transcript.extend([user(new)])
            rest = "" if closer else "<|im_end|>"
            expected += ids + encode(f"{rest}\n<|im_start|>user\n")
            check_prompt(prompt, transcript)
            assert list(prompt.token_ids[: len(expected) - 1]) == expected[:-1]
            expected = list(prompt.token_ids)
        assert not transcript.deviations


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
