"""Writing into the past what the generation prompt wrote: the rule "generation prompt" of edits.py.

Where such text belongs is found by rendering: a mark is put into every place of the source at which
text can be written, the next prompt is rendered once, and the marks that come out at the break are
the places.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from duramen.layout.certify.choices import tried
from duramen.layout.certify.edits import literal
from duramen.layout.certify.rendering import (
    OPENER,
    Rendering,
    Step,
    keeps,
    marker_start,
)
from duramen.layout.certify.source import Edit, Gap, gaps, masked, tags
from duramen.layout.errors import TemplateError
from duramen.layout.template import ChatTemplate

_FIRST_MARK, _LAST_MARK = 0xE000, 0xF8FF  # Unicode's private use area: no text has these
_ROLE = re.compile(r"([A-Za-z_]\w*)\s*(?:\.role\b|\[['\"]role['\"]\]|\.get\(\s*['\"]role['\"])")
_CONDITION = re.compile(r"^\s*(?:el)?if\s+(.*?)\s*$", re.DOTALL)
_INLINE = re.compile(r"\bif\s+(.*?)\s+else\b", re.DOTALL)


@dataclass(frozen=True)
class _Hole:
    """`missing`, written at `gap` in front of `behind`, makes the next prompt go on as the one that
    was sent."""

    gap: Gap
    missing: str
    behind: str


class _Text(NamedTuple):
    """An expression for what is missing."""

    written: str
    holds_thinking: bool


@dataclass(frozen=True)
class Filler:
    """Finds fills for the broken steps of one template."""

    rendering: Rendering

    def fills(self, steps: Sequence[Step]) -> list[Edit]:
        """Those that mend one of the steps, each also under conditions."""
        found: list[Edit] = []
        for step in steps:
            if step.at >= step.prompt_start:
                found += self._of_step(step)
        return list(dict.fromkeys(found))

    def _of_step(self, step: Step) -> Iterator[Edit]:
        plain = [(hole, text) for hole in self._holes(step) for text in self._texts(hole)]
        edits = {_edit(hole, f"({text.written})"): (hole, text) for hole, text in plain}
        for edit, edited in tried(self.rendering, list(edits)):
            if not keeps(edited, step.transition):
                continue  # under a condition it will not either
            hole, text = edits[edit]
            yield edit
            for condition in self._conditions(hole, text):
                yield _edit(hole, f"({text.written} if {condition} else '')")

    def _holes(self, step: Step) -> Iterator[_Hole]:
        """At the break, and where the marker begins that it cuts in two, as in <think> and
        </think>."""
        before, after = str(step.before), str(step.after)
        marks, thoughts = self._marks(step), self._thoughts(step)
        for place in dict.fromkeys((step.at, marker_start(before, step.at))):
            missing = _missing(before[place:], after[place:])
            behind = after[place:].lstrip()
            if missing is None or (
                missing.strip() and (behind.startswith(thoughts) or OPENER.match(behind))
            ):
                continue  # a thinking block is not to be closed early, nor to follow another
            for gap in marks.get(place, ()):
                yield _Hole(gap, missing, after[place:])

    def _thoughts(self, step: Step) -> tuple[str, ...]:
        name = self.rendering.thinking_name
        return tuple(m[name] for m in step.transition.next if name in m)

    def _marks(self, step: Step) -> dict[int, list[Gap]]:
        """Character of the next prompt -> the gaps whose text would come out in front of it."""
        t = step.transition
        for chosen, marked in self._marked:
            try:
                text = marked.prompt(t.next, t.next_tools, t.arguments)
            except TemplateError:
                continue  # what is put together there is no text, or is looked at
            places: dict[int, list[Gap]] = {}
            for place, number in _read_marks(str(text)):
                there = places.setdefault(place, [])
                if chosen[number] not in there:
                    there.append(chosen[number])
            return places
        return {}

    @cached_property
    def _marked(self) -> list[tuple[list[Gap], Rendering]]:
        """The template with a mark in every gap, and with marks around outputs only."""
        found = list(gaps(self.rendering.template.source))[: _LAST_MARK - _FIRST_MARK]
        outer = [gap for gap in found if gap.after.endswith("}}")]
        return [(chosen, self._with_marks(chosen)) for chosen in (found, outer)]

    def _with_marks(self, chosen: Sequence[Gap]) -> Rendering:
        source = self.rendering.template.source
        for i in reversed(range(len(chosen))):
            position, before, after = chosen[i]
            mark = f"{before}'{chr(_FIRST_MARK + i)}'{after}"
            source = source[:position] + mark + source[position:]
        template = ChatTemplate(source, self.rendering.template.specials)
        return Rendering(template, self.rendering.arguments)

    def _texts(self, hole: _Hole) -> Iterator[_Text]:
        """A thinking block that is opened gets its thinking, and is closed unless that follows."""
        openers = OPENER.findall(hole.missing)
        source = self.rendering.template.source
        if not openers:
            yield _Text(literal(hole.missing), holds_thinking=False)
            return
        closer = _closer(openers[-1], source)
        if closer is None:
            return
        if closer in hole.missing.split(openers[-1])[-1]:
            yield _Text(literal(hole.missing), holds_thinking=False)
            return
        end = f"\n{closer}\n\n" if hole.missing.endswith("\n") else closer
        end = "" if hole.behind.lstrip().startswith(closer) else end
        thought = f"({self._message(hole)}.{self.rendering.thinking_name} or '')"
        joined = f"{literal(hole.missing)} ~ {thought}" + (f" ~ {literal(end)}" if end else "")
        yield _Text(joined, holds_thinking=True)
        yield _Text(literal(hole.missing + end), holds_thinking=False)

    def _conditions(self, hole: _Hole, text: _Text) -> Iterator[str]:
        """What the generation prompt itself asks, and that the message is a reply, or one without
        thinking."""
        message = self._message(hole)
        reply = f"{message}.role == 'assistant'"
        guards = ["", reply]
        if not text.holds_thinking:
            guards.append(f"{reply} and not {message}.{self.rendering.thinking_name}")
        for guard in guards:
            if guard:
                yield guard
            for condition in dict.fromkeys(_asked(self.rendering.template.source)):
                for form in (f"({condition})", f"not ({condition})"):
                    yield f"{form} and {guard}" if guard else form

    def _message(self, hole: _Hole) -> str:
        """What the template calls the message there: the name whose role it asked for last."""
        names = _ROLE.findall(self.rendering.template.source[: hole.gap.position])
        return names[-1] if names else "message"


def _edit(hole: _Hole, text: str) -> Edit:
    rule = f"the past gets {hole.missing!r} of the generation prompt, too"
    position, before, after = hole.gap
    return Edit(rule, position, position, text, before, after, is_fill=True)


def _missing(lost: str, instead: str) -> str | None:
    """The shortest beginning of `lost` that, in front of `instead`, gives what begins with `lost`;
    None if `instead` has it already, only behind other blanks."""
    rest = next(i for i in range(len(lost) + 1) if instead.startswith(lost[i:]))
    text = lost[:rest]
    repeated = bool(text.strip()) and instead.lstrip().startswith(text.strip())
    return None if repeated or not text else text


def _read_marks(text: str) -> Iterator[tuple[int, int]]:
    """(character of the text without marks, number of the mark) of each mark."""
    position = 0
    for character in text:
        number = ord(character) - _FIRST_MARK
        if 0 <= number <= _LAST_MARK - _FIRST_MARK:
            yield position, number
        else:
            position += 1


def _closer(opener: str, source: str) -> str | None:
    """What closes a thinking block, if the template's source spells it."""
    slashed = opener[0] + "/" + opener[1:]
    for shape in (slashed, opener.replace("START", "END"), opener.replace("begin", "end")):
        if shape != opener and shape in source:
            return shape
    return None


def _asked(source: str) -> Iterator[str]:
    """Conditions of the source behind the place where it first asks for the generation prompt."""
    found = list(tags(source))
    last = [i for i, tag in enumerate(found) if "add_generation_prompt" in masked(source, tag)]
    for tag in found[last[-1] + 1 :] if last else ():
        inside = source[tag.inner : tag.inner_end]
        rule = _INLINE if tag.is_output else _CONDITION
        for match in rule.finditer(inside):
            yield match[1]
