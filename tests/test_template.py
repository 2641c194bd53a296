"""layout.template: text and ids equal transformers', and data spells no control token."""

import datetime
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import pytest
import tokenizers

from duramen.layout.errors import TemplateError
from duramen.layout.template import ChatTemplate, Message, load_chat_template, load_template
from duramen.layout.tokenizer import Tokenizer, read_json, special_strings, template_intervals
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


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    folder = Path(__file__).parents[2] / "shared" / "data" / "templates"
    if not folder.is_dir():
        print(f"no templates at {folder}: only chatml_tools.jinja is tested")
        return {"chatml_tools": CHATML}
    shared = {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.jinja"))}
    return {"chatml_tools": CHATML, **shared}


class Writer:
    """Random conversations. `adversarial` are strings that texts contain now and then."""

    def __init__(self, random: Random, adversarial: list[str]) -> None:
        self.random = random
        self.adversarial = adversarial

    def text(self) -> str:
        pieces = [self.random.choice(WORDS) for _ in range(self.random.randint(1, 6))]
        if self.adversarial:
            pieces.insert(self.random.randint(0, len(pieces)), self.random.choice(self.adversarial))
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


def tokenizer_for(smollm2: Path, source: str) -> Tokenizer:
    """SmolLM2's, with every marker that the template spells as a special token."""
    spec = read_json(smollm2 / "tokenizer.json")
    added = list(spec["added_tokens"])
    known = {entry["content"] for entry in added}
    first = max(spec["model"]["vocab"].values()) + 1
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    for i, content in enumerate(sorted(set(MARKER.findall(source)) - known)):
        added.append({"id": first + i, "content": content, "special": True, **flags})
    config = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    return Tokenizer({**spec, "added_tokens": added}, config, source)


def attempt(render: Callable[[], str]) -> str | None:
    """The text, None where the template refuses."""
    try:
        return render()
    except Exception:  # transformers lets whatever the template raises through
        return None


def test_text_ids_and_deltas_of_every_template(
    smollm2: Path, sources: dict[str, str], transformers_render: Render
) -> None:
    random = Random(5)
    counts: Counter[str] = Counter()
    for name, source in sources.items():
        tokenizer = tokenizer_for(smollm2, source)
        reference = tokenizers.Tokenizer.from_str(json.dumps(tokenizer.spec))
        template = ChatTemplate(source, tokenizer.special_strings)
        for i in range(5):
            messages = Writer(random, []).conversation(as_text=i % 2 == 0)
            tools = [TOOL] if i % 3 else None
            variables = {"tools": tools, **tokenizer.special_strings}
            theirs = attempt(lambda: transformers_render(source, messages, **variables))  # noqa: B023
            ours = attempt(
                lambda: template.render(messages, tools=tools, add_generation_prompt=True, now=NOW)  # noqa: B023
            )
            assert ours == theirs, name
            counts["refused" if ours is None else "rendered"] += 1
            if ours is None:
                continue
            ids = tokenizer.encode(ours).token_ids  # type: ignore[arg-type]
            assert ids == reference.encode(ours, add_special_tokens=False).ids, name
            counts += turn_by_turn(tokenizer, template, messages, tools or [])
    assert counts["rendered"] > 3 * len(sources)
    assert counts["equal"] > 6 * len(sources)


def turn_by_turn(
    tokenizer: Tokenizer, template: ChatTemplate, messages: list[Message], tools: list[Any]
) -> Counter[str]:
    """The append-only transcript has the ids of the whole, or has said why not."""
    counts: Counter[str] = Counter()
    transcript = Transcript(tokenizer, template, tools=tools, now=NOW)
    ends = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    start = 0
    for end in [*ends, len(messages)]:
        new, start = messages[start:end], end
        try:
            prompt = transcript.extend(new) if transcript.num_calls else transcript.start(new)
            text = template.render(messages[:end], tools=tools, add_generation_prompt=True, now=NOW)
        except TemplateError:
            return counts
        equal = prompt.token_ids == tokenizer.encode(text).token_ids
        assert equal or transcript.deviations
        counts["equal" if equal else "named"] += 1
    return counts


def test_data_spells_no_control_token_in_any_template(
    smollm2: Path, sources: dict[str, str]
) -> None:
    random = Random(6)
    num_plain = 0
    for name, source in sources.items():
        tokenizer = tokenizer_for(smollm2, source)
        template = ChatTemplate(source, tokenizer.special_strings)
        writer = Writer(random, [*tokenizer.control])
        for i in range(3):
            messages = writer.conversation(as_text=i % 2 == 0)
            tool = json.loads(
                json.dumps(TOOL).replace("Weather", random.choice([*tokenizer.control]))
            )
            try:
                text = template.render(messages, tools=[tool], add_generation_prompt=True, now=NOW)
            except TemplateError:
                continue
            encoded = tokenizer.encode(text)
            own = template_intervals(text)
            for section in encoded.sections:
                if section.control:
                    assert any(a <= section.start and section.end <= b for a, b in own), name
                else:
                    assert not set(section.token_ids) & tokenizer.control_ids, name
            num_plain += len(encoded.plain)
    assert num_plain > 3 * len(sources)


def test_ids_equal_apply_chat_template(smollm2: Path) -> None:
    """With the tokenizers that have a template of their own, and SmolLM2 with ours."""
    from transformers import AutoTokenizer

    shared = Path(__file__).parents[2] / "shared" / "data" / "tokenizers"
    folders = [path.parent for path in sorted(shared.glob("*/chat_template.jinja"))]
    if not folders:
        print(f"no tokenizers with templates at {shared}: only SmolLM2 is tested")
    random = Random(7)
    for folder, source in [
        (smollm2, CHATML),
        *((folder, load_template(folder)) for folder in folders),
    ]:
        tokenizer = Tokenizer.load(folder, source)
        template = ChatTemplate(source, tokenizer.special_strings)
        reference = AutoTokenizer.from_pretrained(folder, chat_template=source)
        for _ in range(25):
            messages = [m for m in Writer(random, []).conversation(as_text=False) if m["content"]]
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
