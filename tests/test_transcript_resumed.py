"""A transcript that is resumed from its ids goes on as the one that they are from."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from transcript_cases import (
    CHATML,
    FORGETS,
    TOOL,
    Encode,
    assistant,
    check_prompt,
    frozen,
    sampled_as,
    twin,
    user,
    words,
)

from duramen.layout.errors import LayoutError, TemplateError
from duramen.layout.stream import Sampled
from duramen.layout.template import ChatTemplate, Message
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.transcript import Frozen, History, Transcript, reply_ids
from duramen.layout.zones import Zone


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
            said = transcript._renderer.reply_text(transcript.messages, rest[0])
            ids = smollm2_tokenizer.reply_ids(*said)[: random.choice([-1, 9])]
            transcript.sampled(ids, rest[0])
            check_resumed(transcript, len(ids), new)
            num_calls += 1
    assert num_calls > 20


def test_the_past_of_a_resumed_transcript_is_coarse(started: Transcript, encode: Encode) -> None:
    num_root = started._stream.spans[0].end
    ids = [encode(f"{text}<|im_end|>") for text in ("Hello", "Bye")]
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
