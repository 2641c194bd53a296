"""layout.certify.mend: every mend is proven, and none is offered that is not."""

import warnings
from importlib.resources import files
from pathlib import Path

import pytest
from certify_cases import (
    DATED,
    EMPTY_WHEN_OFF,
    FULL,
    HOISTER,
    KEEPER,
    MOVER,
    NEWLINE,
    OPENER,
    PLAIN,
    STRIPPER,
    SYSTEM_MOVER,
    TEMPLATES,
    TURN,
)
from hypothesis import given
from hypothesis import strategies as st

from duramen.layout.certify.certified import STAND_INS
from duramen.layout.certify.edits import literal, parts_as_text
from duramen.layout.certify.mend import Mend, mend
from duramen.layout.certify.rendering import Rendering
from duramen.layout.certify.source import gaps, tags
from duramen.layout.certify.transitions import ASK, FIRST, READ, TRANSITIONS
from duramen.layout.certify.verdicts import outcomes
from duramen.layout.errors import TemplateError
from duramen.layout.template import ChatTemplate

OURS = (files("duramen.configs") / "chatml_tools.jinja").read_text("utf-8")


def rendering_of(source: str) -> Rendering:
    return Rendering(ChatTemplate(source, STAND_INS))


def mended(source: str) -> Mend:
    found = mend(rendering_of(source))
    assert found is not None
    return found


def kept(source: str) -> set[str]:
    return {n for n, one in outcomes(rendering_of(source)).items() if one.verdict == "kept"}


def first_turns(source: str) -> list[str]:
    rendering, texts = rendering_of(source), []
    for messages in (FIRST, [ASK]):
        for tools in ([], [READ]):
            for arguments in ({}, {"enable_thinking": False}, {"enable_thinking": True}):
                try:
                    texts.append(str(rendering.prompt(messages, tools, arguments)))
                except TemplateError as error:
                    texts.append(f"refused: {error}")
    return texts


@pytest.mark.parametrize(
    ("source", "rules", "gained"),
    [
        (
            STRIPPER,
            ["`loop.index0 > ns.last` is always `true`"],
            ["thinking-tool-then-user", "thinking-on-tool-then-user"],
        ),
        (
            KEEPER,
            ["the option keep_thinking is true by default"],
            ["thinking-tool-then-user", "thinking-on-tool-then-user"],
        ),
        (
            EMPTY_WHEN_OFF,
            ["the past gets '<think>\\n\\n</think>\\n\\n' of the generation prompt, too"],
            ["thinking-off-user-turn"],
        ),
        (
            MOVER,
            ["`users[-1]` is now `users[0]`"],
            ["tool-then-user", "thinking-tool-then-user", "thinking-on-tool-then-user"],
        ),
    ],
)
def test_rules(source: str, rules: list[str], gained: list[str]) -> None:
    found = mended(source)
    assert [change.rule for change in found.changes] == rules
    assert list(found.gained) == gained


@pytest.mark.parametrize("source", [FULL, DATED, HOISTER])
def test_nothing_to_mend_or_nothing_proven(source: str) -> None:
    """A new tool and a hoisted system message have no small mend."""
    assert mend(rendering_of(source)) is None


def test_an_opened_thought_is_written_with_its_thinking() -> None:
    found = mended(OPENER.replace("<|im_end|>", "{# </think> #}<|im_end|>"))
    rendering = rendering_of(found.source)
    [step] = [rendering.step(t) for t in TRANSITIONS if t.name == "thinking-then-user"]
    assert "<think>\nBoth begin with a greeting.\n</think>\n\nThey are two letters." in step.after
    assert {"user-turn", "thinking-then-user", "tool-result"} <= set(found.gained)


def test_blanks() -> None:
    assert {"user-turn", "tool-result"} <= set(mended(NEWLINE).gained)


def test_a_system_message_stays_with_the_first_user_message() -> None:
    assert "user-turn" in mended(SYSTEM_MOVER).gained


def test_parts_become_text() -> None:
    found = mended(PLAIN)
    assert found.gained == ("parts-vs-string",)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    image = [{"type": "image"}]
    for content, text in ((parts, "a\nb"), ("c", "c"), (image, str(image)), (None, "None")):
        said = rendering_of(found.source).prompt([{"role": "user", "content": content}])
        assert said.startswith(f"<|im_start|>user\n{text}<|im_end|>")


@pytest.mark.parametrize(
    "source",
    [  # each would be mended if the proof left something out
        # the thinking is told from the count of messages in the first turn, too
        STRIPPER.replace("{{ m.content }}", "{{ m.content }}{{ loop.index0 > ns.last }}"),
        # written for all, the tools would stand there twice
        MOVER.replace("users[-1]", "users[-1 if tools else 0]"),
    ],
)
def test_an_edit_that_changes_the_first_turn_or_doubles_text_is_not_offered(source: str) -> None:
    found = mend(rendering_of(source))
    if found is not None:
        assert first_turns(found.source) == first_turns(source)


def prove(source: str) -> bool:
    """Whether there is a mend; it certifies anew and answers the same first turn."""
    found = mend(rendering_of(source))
    if found is None:
        return False
    before, after = kept(source), kept(found.source)
    assert after - before == set(found.gained) != set()
    assert before <= after
    assert first_turns(found.source) == first_turns(source)
    return True


@pytest.mark.parametrize("name", TEMPLATES)
def test_mends_of_templates_written_here_are_proven(name: str) -> None:
    prove(TEMPLATES[name])


FEW = ["Qwen-Qwen3-0.6B", "GLM-4.7-Flash", "StepFun3.5-Flash", "LFM2.5-8B-A1B"]


def test_mends_of_some_published_templates_are_proven(shared_data: Path) -> None:
    for name in FEW:
        assert prove((shared_data / "templates" / f"{name}.jinja").read_text("utf-8"))


@pytest.mark.long
def test_mends_of_all_published_templates_are_proven(template_sources: dict[str, str]) -> None:
    """In transformers' rendering, too: the mended source is read by it as by us."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.utils.chat_template_utils import render_jinja_template

    for source in template_sources.values():
        found = mend(rendering_of(source))
        if found is None:
            continue
        assert prove(source)
        rendering = rendering_of(found.source)
        for name in found.gained:
            [t] = [rendering.fitted(t) for t in TRANSITIONS if t.name == name]
            before, after = (
                render_jinja_template(
                    [list(messages)], tools=list(tools) or None, chat_template=found.source,
                    add_generation_prompt=True, **STAND_INS, **t.arguments,
                )[0][0]
                for messages, tools in ((t.sent, t.tools), (t.next, t.next_tools))
            )  # fmt: skip
            assert after.startswith(before)


def test_a_mended_template_has_no_further_mend() -> None:
    assert mend(rendering_of(mended(STRIPPER).source)) is None


@given(st.text())
def test_literals_are_what_jinja_reads(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    rendered = ChatTemplate(f"{{{{ {literal(text)} }}}}").render([])
    assert str(rendered) == text


def test_tags_are_those_of_jinja() -> None:
    source = (
        "a{# {{ no }} #}{{ '}}' ~ x }}{% raw %}{{ no }}{% endraw %}{%- if b == '%}' -%}c{% endif %}"
    )
    inner = [source[tag.inner : tag.inner_end].strip() for tag in tags(source)]
    assert inner == ["'}}' ~ x", "if b == '%}'", "endif"]


@pytest.mark.parametrize("source", [OURS, *TEMPLATES.values()])
def test_writing_nothing_into_any_gap_changes_nothing(source: str) -> None:
    rendering = rendering_of(source)
    before = [rendering.step(t).after for t in TRANSITIONS if t.name != "parts-vs-string"]
    edited = source
    for position, opening, closing in reversed(list(gaps(source))):
        edited = f"{edited[:position]}{opening}''{closing}{edited[position:]}"
    assert edited != source
    same = rendering_of(edited)
    assert [same.step(t).after for t in TRANSITIONS if t.name != "parts-vs-string"] == before


def test_the_name_of_the_preamble_is_free() -> None:
    source = "{% set flat = 1 %}" + TURN.join(["{% for m in messages %}", "{% endfor %}"])
    assert "set flat_ = namespace" in parts_as_text(source).text
