"""history="template": the past as the template now writes it."""

import re
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from transcript_cases import (
    CHATML,
    FORGETS,
    Encode,
    assistant,
    check_prompt,
    common,
    frozen,
    twin,
    user,
    whole,
    words,
)

from duramen.layout.template import ChatTemplate
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.transcript import Transcript
from duramen.layout.zones import Zone

CONTROL = re.compile(r"<\|im_(?:start|end)\|>")


@pytest.mark.parametrize("source", [CHATML, FORGETS], ids=["chatml", "forgets"])
def test_without_sampled_ids_the_prompt_is_what_the_template_writes(
    smollm2_tokenizer: Tokenizer, encode: Encode, source: str
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
            assert list(prompt.token_ids) == encode(whole(template, messages))
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
    smollm2_tokenizer: Tokenizer, encode: Encode
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
            ids = [*(i for c in said for i in encode(c)), *encode("<|im_end|>")]
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
                assert list(prompt.token_ids[kept:]) == encode(present[ends[num_ends - 1] :])
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
    smollm2_tokenizer: Tokenizer, encode: Encode
) -> None:
    transcript = Transcript(smollm2_tokenizer, ChatTemplate(FORGETS), history="template")
    transcript.start([user("a")])
    odd = encode("x<|im_end|>\n<|im_start|>user\nb<|im_end|>")
    transcript.sampled(odd, assistant("x"))
    transcript.extend([{"role": "tool", "content": "t"}])
    transcript.sampled(encode("[hm]y<|im_end|>"), assistant("y", thinking="hm"))
    transcript.extend([{"role": "tool", "content": "t"}])
    head = list(transcript.token_ids[: transcript._replies[1].start])
    prompt = transcript.extend([assistant("z"), user("c")])
    num_kept = len(head) - len(encode("assistant\n"))
    assert list(prompt.token_ids[:num_kept]) == head[:num_kept]
    rest = "assistant\ny<|im_end|>\n<|im_start|>tool\nt<|im_end|>\n<|im_start|>assistant\nz"
    rest += "<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n"
    assert list(prompt.token_ids[num_kept:]) == encode(rest)
    [deviation] = transcript.deviations[-1:]
    assert "now writes 'y<|im_end|>" in deviation.cause
    assert [r.message for r in transcript._replies] == [1]
