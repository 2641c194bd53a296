"""layout.template: text and ids equal transformers', and data spells no control token."""

import datetime
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.resources import files
from itertools import accumulate, cycle, dropwhile
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from duramen.layout.errors import TemplateError
from duramen.layout.template import ChatTemplate, Message, load_chat_template, load_template
from duramen.layout.tokenizer import Encoded, Tokenizer
from duramen.layout.tokenizer_files import read_json, special_strings
from duramen.layout.tracked import Tracked
from duramen.layout.transcript import Transcript

CHATML = (files("duramen.configs") / "chatml_tools.jinja").read_text("utf-8")
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
MARKER = re.compile(r"<[|｜][^<>\s'\"{}]{1,40}[|｜]>|</?[a-z_:]{2,30}>|\[/?[A-Z_]{3,30}\]")
WORDS = ["alpha", "beta ", "  gamma\n", "delta.", '{"k": 1}', "日本", "\n\n", "x", "don't", "  "]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "c"},
                "n": {"type": "integer", "description": "n"},
            },
            "required": ["city"],
        },
    },
}

HARMLESS = "Qz"  # no template and no other text here has it
HARMLESS_TOOL = json.loads(json.dumps(TOOL).replace("Weather", HARMLESS))

Text = TypeVar("Text", bound=str)
Render = Callable[..., str]


@pytest.fixture(scope="module")
def transformers_render() -> Iterator[Render]:
    """transformers' own rendering, with its clock at NOW."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.utils import chat_template_utils

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> "Clock":
            return cls(*NOW.timetuple()[:6])

    def render(source: str, messages: list[Message], **variables: Any) -> str:
        [text], _ = chat_template_utils.render_jinja_template(
            [messages], chat_template=source, add_generation_prompt=True, **variables
        )
        return str(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_template_utils, "datetime", Clock)
        yield render


class Writer:
    """Random conversations. `inserted` is a word that every text has somewhere."""

    def __init__(self, random: Random, inserted: str = "") -> None:
        self.random = random
        self.inserted = inserted

    def text(self) -> str:
        pieces = [self.random.choice(WORDS) for _ in range(self.random.randint(1, 6))]
        pieces.insert(self.random.randint(0, len(pieces)), self.inserted)
        return "".join(pieces)

    def conversation(self, *, as_text: bool) -> list[Message]:
        """`as_text`: arguments of tool calls are JSON text."""
        messages: list[Message] = []
        if self.random.random() < 0.6:
            messages.append({"role": "system", "content": self.text()})
        messages.append({"role": "user", "content": self.text()})
        for _ in range(self.random.randint(1, 4)):
            if self.random.random() < 0.5:
                messages += self.tool_turn(as_text=as_text)
            messages.append(self.reply(self.text()))
            messages.append({"role": "user", "content": self.text()})
        return messages

    def reply(self, content: str) -> dict[str, Any]:
        thinking = {"reasoning_content": self.text()} if self.random.random() < 0.4 else {}
        return {"role": "assistant", "content": content, **thinking}

    def tool_turn(self, *, as_text: bool) -> list[Message]:
        arguments = {"city": self.text(), "n": 3}
        shown = json.dumps(arguments) if as_text else arguments
        function = {"name": "get_weather", "arguments": shown}
        call = {"id": f"call{self.random.randint(10000, 99999)}", "type": "function"}
        call_turn = self.reply(self.random.choice(["", self.text()]))
        call_turn["tool_calls"] = [{**call, "function": function}]
        result = {"role": "tool", "tool_call_id": call["id"], "name": "get_weather"}
        return [call_turn, {**result, "content": self.text()}]


def tokenizer_for(folder: Path, source: str) -> Tokenizer:
    """The folder's, with every marker that `source` spells as a special token."""
    spec = read_json(folder / "tokenizer.json")
    added = list(spec["added_tokens"])
    known = {entry["content"] for entry in added}
    first = max(*spec["model"]["vocab"].values(), *(entry["id"] for entry in added)) + 1
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    for i, content in enumerate(sorted(set(MARKER.findall(source)) - known)):
        added.append({"id": first + i, "content": content, "special": True, **flags})
    config = read_json(folder / "tokenizer_config.json")
    return Tokenizer({**spec, "added_tokens": added}, config, source)


@pytest.fixture(scope="module")
def marked(
    template_sources: dict[str, str], tokenizer_folders: dict[str, Path]
) -> dict[str, Tokenizer]:
    """Each tokenizer, with every marker that any of the templates spells: what takes long is made
    once."""
    spelled = "\n".join(template_sources.values())
    return {name: tokenizer_for(folder, spelled) for name, folder in tokenizer_folders.items()}


def paired(
    sources: dict[str, str], marked: dict[str, Tokenizer], first: int
) -> Iterator[tuple[str, str, Tokenizer]]:
    """For each template a name, its source and a tokenizer: they take turns from number `first`
    on."""
    names = list(marked)
    turns = cycle([*names[first:], *names[:first]])
    for (name, source), turn in zip(sources.items(), turns, strict=False):
        yield f"{name} with {turn}", source, marked[turn]


def attempt(render: Callable[[], Text]) -> Text | None:
    """The text, None where the template refuses."""
    try:
        return render()
    except Exception:  # transformers lets whatever the template raises through
        return None


def test_text_ids_and_deltas_of_every_template(
    template_sources: dict[str, str],
    marked: dict[str, Tokenizer],
    transformers_render: Render,
) -> None:
    random = Random(5)
    counts: Counter[str] = Counter()
    for name, source, tokenizer in paired(template_sources, marked, first=0):
        template = ChatTemplate(source, tokenizer.special_strings)
        for i in range(5):
            messages = Writer(random).conversation(as_text=i % 2 == 0)
            tools = [TOOL] if i % 3 else []
            render = partial(template.render, tools=tools, add_generation_prompt=True, now=NOW)
            variables = {"tools": tools or None, **tokenizer.special_strings}
            theirs = attempt(partial(transformers_render, source, messages, **variables))
            ours = attempt(partial(render, messages))
            assert ours == theirs, name
            counts["refused" if ours is None else "rendered"] += 1
            if ours is None:
                continue
            ids = tokenizer.encode(ours).token_ids
            assert ids == tokenizer.full.encode(ours, add_special_tokens=False).ids, name
            transcript = partial(Transcript, tokenizer, template, tools=tools, now=NOW)
            try:
                counts += turn_by_turn(messages, render, transcript)
            except AssertionError as error:
                error.add_note(name)
                raise
    assert counts["rendered"] > 3 * len(template_sources)
    assert counts["equal"] > 6 * len(template_sources)


def turn_by_turn(
    messages: list[Message],
    render: Callable[[list[Message]], Tracked],
    new_transcript: Callable[[], Transcript],
) -> Counter[str]:
    """Each prompt of an append-only transcript has the ids of the whole, or names where it leaves
    them; then a new transcript begins."""
    counts: Counter[str] = Counter()
    ends = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    transcript, before, num_before = new_transcript(), Tracked("", ()), 0
    for end in [*ends, len(messages)]:
        after = render(messages[:end])
        expected = transcript.tokenizer.encode(after).token_ids
        new = messages[num_before:end]
        prompt = transcript.extend(new) if transcript.num_calls else transcript.start(new)
        equal = prompt.token_ids == expected
        counts["equal" if equal else "named"] += 1
        if equal:
            assert not transcript.deviations
        else:
            check_deviation(transcript, before, after)
            check_tail(transcript, before, after, num_before)
            transcript = new_transcript()
            assert transcript.start(messages[:end]).token_ids == expected
        before, num_before = after, end
    return counts


def common(a: Sequence[object], b: Sequence[object]) -> int:
    """Length of the longest common beginning."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(a), len(b)))


def check_deviation(transcript: Transcript, before: Tracked, after: Tracked) -> None:
    """The last extension, the first to deviate, is named with its call, token and cause."""
    assert len(transcript.deviations) == 1
    deviation = transcript.deviations[0]
    assert deviation.call == transcript.num_calls - 1
    frozen, whole = (transcript.tokenizer.encode(text).token_ids for text in (before, after))
    assert deviation.token == common(frozen, whole) < len(frozen)
    parted = common(plain(before), plain(after))
    written = [repr(str(text)[parted : parted + 40]) for text in (after, before)]
    assert "now writes {} where it had written {}".format(*written) in deviation.cause


def check_tail(transcript: Transcript, before: Tracked, after: Tracked, num_before: int) -> None:
    """What was added is the whole rendering's end: from where the two part, if that is behind the
    old messages, else from the first character of a new one."""
    tokenizer = transcript.tokenizer
    ends = accumulate(length for length, _ in after.runs)
    runs = [(end - length, end, o) for end, (length, o) in zip(ends, after.runs, strict=True)]
    old = max((end for _, end, origin in runs if 0 < origin <= num_before), default=0)
    parted = common(plain(before), plain(after))
    first = min(start for start, _, origin in runs if origin > num_before)
    begin = parted if parted >= old else first
    said = tokenizer.decode(list(transcript.token_ids))
    assert without_blanks(said).endswith(without_blanks(str(after)[first:]))
    sections = tokenizer.encode(after).sections
    behind = dropwhile(lambda s: not s.control or s.end <= begin, sections)
    ids = [token_id for section in behind for token_id in section.token_ids]
    assert ids == list(transcript.token_ids[len(transcript.token_ids) - len(ids) :])


def plain(text: Tracked) -> str:
    """Without origins: quick to walk through."""
    return str.__str__(text)


def without_blanks(text: str) -> str:
    """SentencePiece decoders add some, and write the sign that stands for them as one."""
    return "".join(text.replace("▁", " ").split())


def test_data_spells_no_control_token_in_any_template(
    template_sources: dict[str, str], marked: dict[str, Tokenizer]
) -> None:
    """What data says changes no control token: a spelling, or half of one, gives the same as a
    harmless word in its place."""
    random = Random(6)
    num_plain = 0
    for name, source, tokenizer in paired(template_sources, marked, first=3):
        template = ChatTemplate(source, tokenizer.special_strings)
        written = [content for content in tokenizer.control if content in source]
        for i in range(6):
            spelling = random.choice([*tokenizer.control, *written])
            middle = len(spelling) // 2
            hostile = random.choice([spelling, spelling, spelling[:middle], spelling[middle:]])
            conversation = Writer(random, HARMLESS).conversation(as_text=i % 2 == 0)
            tools = [HARMLESS_TOOL] if i % 3 else []
            encoded = [
                encode_with(word, tokenizer, template, conversation, tools)
                for word in (HARMLESS, hostile)
            ]
            harmless_ids, hostile_ids = (
                [i for i in each.token_ids if i in tokenizer.control_ids] if each else None
                for each in encoded
            )
            assert harmless_ids == hostile_ids, (name, hostile)
            num_plain += len(encoded[1].plain) if encoded[1] else 0
    assert num_plain > 3 * len(template_sources)


def encode_with(
    word: str,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    conversation: list[Message],
    tools: list[Any],
) -> Encoded | None:
    """With `word` wherever the conversation and its tools have HARMLESS; None where refused."""

    def replaced(value: Any) -> Any:
        return json.loads(json.dumps(value, ensure_ascii=False).replace(HARMLESS, word))

    # Some templates cut replies at these words, and then write them themselves.
    is_cut = word in ("<think>", "</think>")
    messages = [m if is_cut and m["role"] == "assistant" else replaced(m) for m in conversation]
    text = attempt(partial(template.render, messages, tools=replaced(tools), now=NOW))
    return None if text is None else tokenizer.encode(text)


def test_ids_equal_apply_chat_template(smollm2: Path, tokenizer_folders: dict[str, Path]) -> None:
    """With the tokenizers that have a template of their own, and SmolLM2 with ours."""
    from transformers import AutoTokenizer

    folders = [f for f in tokenizer_folders.values() if (f / "chat_template.jinja").exists()]
    random = Random(7)
    for folder, source in [
        (smollm2, CHATML),
        *((folder, load_template(folder)) for folder in folders),
    ]:
        tokenizer = Tokenizer.load(folder, source)
        template = ChatTemplate(source, tokenizer.special_strings)
        reference = AutoTokenizer.from_pretrained(folder, chat_template=source)
        for _ in range(25):
            messages = [m for m in Writer(random).conversation(as_text=False) if m["content"]]
            text = template.render(messages, add_generation_prompt=True)
            expected = reference.apply_chat_template(
                messages, add_generation_prompt=True, return_dict=False
            )
            assert tokenizer.encode(text).token_ids == expected, folder.name


def test_origins_name_the_message() -> None:
    text = ChatTemplate(CHATML).render(
        [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}]
    )
    marks = "".join(str(origin) * length for length, origin in text.runs)
    assert str(text) == "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\nc<|im_end|>\n"
    assert marks == "0" * 17 + "11" + "0" * 33 + "2" + "0" * 11


def test_known_roles_may_complete_a_control_token(smollm2: Path) -> None:
    """As in templates that write '<|' + role + '|>'; any other role is data like the rest."""
    template = ChatTemplate(
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}"
    )
    tokenizer = tokenizer_for(smollm2, "<|user|> <|root|>")
    messages = [{"role": role, "content": "<|user|>"} for role in ("user", "root")]
    encoded = tokenizer.encode(template.render(messages))
    assert [section.start for section in encoded.sections if section.control] == [0]
    assert encoded.plain == ("<|user|>", "<|root|>", "<|user|>")


def test_null_content_thinking_and_parts_of_our_template() -> None:
    call = {"function": {"name": "f", "arguments": '{"a": 1}'}}
    text = ChatTemplate(CHATML).render(
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]},
            {"role": "tool", "content": "ok"},
        ],
        add_generation_prompt=True,
    )
    assert str(text) == (
        "<|im_start|>user\nab<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nhm\n</think>\n\n"
        '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nok\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% if %}", r"^chat template, line 1: Expected an expression"),
        ("a\n{{ x | nothing }}", r"^chat template, line 2: No filter named 'nothing'"),
        (
            "{% for m in messages %}{% call f() %}{% continue %}{% endcall %}{% endfor %}",
            "compiled",
        ),
    ],
)
def test_templates_that_are_no_templates(source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message) as raised:
        ChatTemplate(source)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('only users') }}", "refuses these messages: only users"),
        ("{{ messages[0].content.x.y }}", "refuses these messages: .* has no attribute 'x'"),
        ("{{ 1 // 0 }}", "refuses these messages: "),
        ("{{ strftime_now('%Y') }}", "asks for the time"),
        ("{{ ''.__class__.__mro__ }}", "refuses these messages: .* unsafe"),
        ("{{ '\\ud800' }}{{ messages[0].content }}", "lone surrogate"),
    ],
)
def test_templates_that_refuse(source: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message) as raised:
        ChatTemplate(source).render([{"role": "user", "content": "a"}])
    assert "\n" not in str(raised.value)


def test_where_a_template_is_found(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="holds no chat template"):
        load_template(tmp_path)
    with pytest.raises(TemplateError, match=r"absent\.jinja cannot be read"):
        load_template(tmp_path, tmp_path / "absent.jinja")
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    config = {"chat_template": named, "bos_token": {"content": "<s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_template(tmp_path) == "d"
    assert load_template(tmp_path, has_tools=True) == "t"
    assert special_strings(config) == {"bos_token": "<s>"}
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}own")
    assert str(load_chat_template(tmp_path).render([])) == "<s>own"
