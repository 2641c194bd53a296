"""layout.certify: the verdict on every step of a conversation."""

import datetime
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from certify_cases import (
    DATED,
    EMPTY_WHEN_OFF,
    FULL,
    HOISTER,
    IGNORER,
    KEEPER,
    MERGER,
    MOVER,
    NEWLINE,
    OPENER,
    PLAIN,
    REFUSER,
    STRIPPER,
    SYSTEM_MOVER,
    TEMPLATES,
)

from duramen.experiments.gallery import SIGNS
from duramen.layout.certify.certified import STAND_INS, certified
from duramen.layout.certify.options import options
from duramen.layout.certify.rendering import NOW, Rendering
from duramen.layout.certify.transitions import TRANSITIONS
from duramen.layout.certify.verdicts import Outcome, Place, outcomes
from duramen.layout.template import ChatTemplate
from duramen.layout.tokenizer import Tokenizer

NAMES = [t.name for t in TRANSITIONS]
ASKED_FOR = [
    "user-turn",
    "second-user-turn",
    "thinking-then-user",
    "thinking-history",
    "tool-result",
    "second-tool-result",
    "tool-then-user",
    "thinking-tool-result",
    "thinking-tool-then-user",
    "mid-system",
    "thinking-off-user-turn",
    "parts-vs-string",
    "tools-added",
]


def rendering_of(source: str) -> Rendering:
    return Rendering(ChatTemplate(source, STAND_INS))


def outcomes_of(source: str, tokenizer: Tokenizer | None = None) -> dict[str, Outcome]:
    return outcomes(rendering_of(source), tokenizer)


def causes_of(source: str) -> dict[str, str | None]:
    found = outcomes_of(source)
    return {name: one.cause for name, one in found.items() if one.verdict == "broken"}


def test_every_transition_that_was_asked_for_is_there() -> None:
    assert set(ASKED_FOR) <= set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


ADDED = {"tools-added": "tool-set-changed"}


@pytest.mark.parametrize(
    ("source", "causes"),
    [
        (FULL, ADDED),
        (
            STRIPPER,
            {
                **ADDED,
                "thinking-tool-then-user": "thinking-stripped",
                "thinking-on-tool-then-user": "thinking-stripped",
            },
        ),
        (EMPTY_WHEN_OFF, {**ADDED, "thinking-off-user-turn": "empty-thinking"}),
        (HOISTER, {**ADDED, "mid-system": "system-hoist"}),
        (DATED, ADDED),
        (
            OPENER,
            {
                **dict.fromkeys(NAMES, "empty-thinking"),
                **{n: "thinking-stripped" for n in NAMES if n.startswith("thinking-")},
                "thinking-off-user-turn": "empty-thinking",
                **ADDED,
            },
        ),
        (
            MOVER,
            {
                "tool-then-user": "input-before-tools",
                "thinking-tool-then-user": "input-before-tools",
                "thinking-on-tool-then-user": "input-before-tools",
                "tools-added": "input-before-tools",
            },
        ),
        (NEWLINE, {**dict.fromkeys(NAMES, "whitespace"), **ADDED}),
    ],
)
def test_causes(source: str, causes: dict[str, str]) -> None:
    assert causes_of(source) == causes


def test_a_break_is_placed_and_put_into_words(smollm2: Path) -> None:
    tokenizer = Tokenizer.load(smollm2, EMPTY_WHEN_OFF)
    found = outcomes_of(EMPTY_WHEN_OFF, tokenizer)["thinking-off-user-turn"]
    rendering = rendering_of(EMPTY_WHEN_OFF)
    step = rendering.step(TRANSITIONS[NAMES.index("thinking-off-user-turn")])
    head = step.before[: -len("<think>\n\n</think>\n\n")]
    assert found.at == Place(len(head), len(tokenizer.encode(head).token_ids))
    assert found.why == (
        "the prompt holds a thinking block, and the reply is written without: "
        "'<think>\\n\\n</think>\\n\\n' became 'They are two letters.<|im_end|>\\n<|im_sta'"
    )
    assert found.reply_kept is False


def test_a_kept_step_says_where_it_is_cut(smollm2: Path) -> None:
    found = outcomes_of(FULL, Tokenizer.load(smollm2, FULL))["user-turn"]
    assert found == Outcome("kept", reply_kept=True, ids_kept=True, seam="proven")


def test_a_reply_may_be_lost_where_the_prompt_is_kept() -> None:
    """The prompt does not hold the thinking, so that a stripped thought breaks nothing yet."""
    found = outcomes_of(STRIPPER)["thinking-then-user"]
    assert (found.verdict, found.reply_kept) == ("kept", False)


def test_tools_that_are_not_shown() -> None:
    found = outcomes_of(IGNORER)
    about_tools = {t.name for t in TRANSITIONS if t.shown}
    assert {n for n, one in found.items() if one.verdict == "ignores-tools"} == about_tools
    assert found["tool-result"].why == "the next prompt does not show 'kingfisher'"


def test_refusals() -> None:
    raising = "{% if tools %}{{ raise_exception('no tools here') }}{% endif %}" + PLAIN
    found = outcomes_of(raising)
    refused = {name for name, one in found.items() if one.verdict == "refused"}
    assert refused == {t.name for t in TRANSITIONS if t.tools}
    assert "no tools here" in (found["tool-result"].why or "")


def test_a_refused_system_message_is_left_out() -> None:
    assert not rendering_of(REFUSER).takes_system
    assert causes_of(REFUSER) == ADDED
    assert outcomes_of("{{ raise_exception('never') }}")["user-turn"].verdict == "refused"


def test_a_system_message_that_moves_is_told() -> None:
    found = outcomes_of(SYSTEM_MOVER)["user-turn"]
    assert (found.verdict, found.cause) == ("broken", None)
    assert (found.why or "").startswith("the system message moves on with the last user message")


def test_no_template_at_all() -> None:
    found = certified("{% for %}")
    assert {one.verdict for one in found.outcomes.values()} == {"refused"}
    assert (found.refused or "").startswith("chat template, line 1: ")


def test_thinking_goes_by_the_name_that_the_template_reads() -> None:
    renamed = STRIPPER.replace("reasoning_content", "thinking")
    assert causes_of(renamed) == causes_of(STRIPPER)


# --- beside transformers ------------------------------------------------------------------------

Apply = Callable[..., str]


@pytest.fixture(scope="module")
def apply() -> Iterator[Apply]:
    """transformers' own rendering, with its clock standing where ours stands."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.utils import chat_template_utils

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> "Clock":
            return cls(*NOW.timetuple()[:6])

    def apply(source: str, messages: Any, tools: Any, arguments: Any) -> str:
        [text], _ = chat_template_utils.render_jinja_template(
            [list(messages)], tools=list(tools) or None, chat_template=source,
            add_generation_prompt=True, **STAND_INS, **arguments,
        )  # fmt: skip
        return str(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_template_utils, "datetime", Clock)
        yield apply


def verdict_of(apply: Apply, source: str, transition: Any) -> tuple[str, int | None]:
    """The slow twin: two plain strings, and whether one begins with the other."""
    t = transition
    try:
        before = apply(source, t.sent, t.tools, t.arguments)
        after = apply(source, t.next, t.next_tools, t.arguments)
    except Exception:
        return "refused", None
    if t.shown and not any(word in after for word in t.shown):
        return "ignores-tools", None
    if after.startswith(before):
        return "kept", None
    same = takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))
    return "broken", sum(1 for _ in same)


def disagreements(apply: Apply, source: str, found: Mapping[str, Outcome]) -> list[Any]:
    rendering = rendering_of(source)
    wrong = []
    for transition in TRANSITIONS:
        one = found[transition.name]
        ours = one.verdict, one.at and one.at.char
        theirs = verdict_of(apply, source, rendering.fitted(transition))
        if ours != theirs:
            wrong.append((transition.name, ours, theirs))
    return wrong


@pytest.mark.parametrize("name", TEMPLATES)
def test_transformers_agrees_on_templates_written_here(apply: Apply, name: str) -> None:
    source = TEMPLATES[name]
    assert disagreements(apply, source, outcomes_of(source)) == []


@pytest.fixture(scope="module")
def published(template_sources: dict[str, str]) -> dict[str, dict[str, Outcome]]:
    """Name of a template -> its outcomes; ours is among them."""
    return {name: outcomes_of(source) for name, source in template_sources.items()}


def test_transformers_agrees_on_published_templates(
    apply: Apply, template_sources: dict[str, str], published: dict[str, dict[str, Outcome]]
) -> None:
    found = {
        name: disagreements(apply, source, published[name])
        for name, source in template_sources.items()
    }
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_the_published_table_is_up_to_date(
    shared_data: Path, published: dict[str, dict[str, Outcome]]
) -> None:
    """Its rows; the whole page is made anew by a longer test."""
    page = (Path(__file__).parents[1] / "docs" / "templates.md").read_text("utf-8")
    for path in sorted((shared_data / "templates").iterdir()):
        signs = [SIGNS[one.verdict] for one in published[path.stem].values()]
        title = path.stem.replace("_", "\\_")
        [row] = [r for r in page.splitlines() if r.startswith(f"| {title} | ")]
        assert row.split(" | ")[1 : 1 + len(signs)] == signs


# --- options ------------------------------------------------------------------------------------


def moved_by(source: str) -> dict[tuple[str, Any], str]:
    return {(o.name, o.value): o.moves for o in options(rendering_of(source))}


def test_options_are_read_from_the_template_and_tried() -> None:
    assert moved_by(FULL) == {("tools", "given"): "head"}
    assert moved_by(DATED) == {("tools", "given"): "head", ("date", "2027-10-13"): "head"}
    assert moved_by(EMPTY_WHEN_OFF) == {
        ("tools", "given"): "head",
        ("enable_thinking", False): "generation-prompt",
    }
    assert moved_by(KEEPER) == {("tools", "given"): "head", ("keep_thinking", True): "history"}


def test_values_are_those_that_the_template_compares_with() -> None:
    source = "{% if effort in ['low', 'high'] %}Effort: {{ effort }}\n{% endif %}" + FULL
    moved = moved_by(source)
    assert {value for name, value in moved if name == "effort"} == {"low", "high"}


def test_bos_without_a_tokenizer() -> None:
    """The stand-in is found, and who else adds one is not known."""
    found = certified("{{ bos_token }}" + FULL).bos
    assert found is not None
    assert (found.template, found.tokenizer, found.is_doubled) == (True, None, None)
    found = certified(FULL).bos
    assert found is not None
    assert (found.template, found.is_doubled) == (False, None)


BOS = "<|im_start|>"
SINGLE = [{"SpecialToken": {"id": BOS, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
ADDS_BOS = {
    "type": "TemplateProcessing",
    "single": SINGLE,
    "pair": [*SINGLE, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {BOS: {"id": BOS, "ids": [1], "tokens": [BOS]}},
}


@pytest.mark.parametrize(
    ("spec", "config", "doubled"),
    [
        ({}, {}, False),
        ({"post_processor": ADDS_BOS}, {}, True),
        ({}, {"add_bos_token": True}, True),
    ],
)
def test_bos_twice(
    smollm2: Path, spec: dict[str, Any], config: dict[str, Any], doubled: bool
) -> None:
    """SmolLM2's BOS is what its template opens every turn with; its tokenizer adds none."""
    own = Tokenizer.load(smollm2)
    tokenizer = Tokenizer({**own.spec, **spec}, {**own.config, **config}, FULL)
    found = certified(FULL, tokenizer).bos
    assert found is not None
    assert (found.template, found.is_doubled) == (True, doubled)


def test_the_merger_keeps_its_prompts() -> None:
    """It appends; merging shows only where a prompt ended in a turn that goes on."""
    assert "user-turn" not in causes_of(MERGER)
