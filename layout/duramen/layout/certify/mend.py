"""A chat template with a few small edits that make it keep more, each of them proven (proof.py).

What a model makes of a past that it now reads with its thinking, say, is another question.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from duramen.layout.certify.choices import tried
from duramen.layout.certify.edits import conditions, default, parts_as_text
from duramen.layout.certify.fills import Filler
from duramen.layout.certify.options import candidates
from duramen.layout.certify.proof import Proof
from duramen.layout.certify.rendering import Rendering, Step, keeps, keeps_reply
from duramen.layout.certify.source import Edit, line_of, without_constants
from duramen.layout.certify.transitions import TRANSITIONS, Transition
from duramen.layout.errors import TemplateError
from duramen.layout.template import ChatTemplate

MAX_EDITS = 6  # more is no small mend
MAX_PROOFS = 24  # of one round, the edits that keep most first
_NEVER = {"tools-added"}  # what is added later cannot have stood in front before


@dataclass(frozen=True)
class Change:
    """One edit, for a reader: `written` instead of `replaced`. `line`: of the source as it was
    before this edit, from 1. `is_fill`: `rule` alone does not say what is written."""

    rule: str
    line: int
    replaced: str
    written: str
    is_fill: bool


@dataclass(frozen=True)
class Mend:
    """`source` of the mended template; `gained`: the transitions that it keeps in addition."""

    source: str
    changes: tuple[Change, ...]
    gained: tuple[str, ...]


def mend(rendering: Rendering) -> Mend | None:
    """`rendering` without arguments. None if nothing is broken or no edit is proven."""
    proof = Proof(rendering)
    current, kept = rendering, proof.kept
    changes: list[Change] = []
    while len(changes) < MAX_EDITS:
        found = _Round(proof, current, kept).edited()
        if found is None:
            break
        source = current.template.source
        edit, current, kept = found
        replaced = source[edit.start : edit.end]
        line = line_of(source, edit.start)
        changes.append(Change(edit.rule, line, replaced, edit.written, edit.is_fill))
    if not changes:
        return None
    gained = tuple(t.name for t in TRANSITIONS if t.name in kept - proof.kept)
    tidied = without_constants(current.template.source)
    if proof.holds(Rendering(ChatTemplate(tidied, current.template.specials)), kept):
        return Mend(tidied, tuple(changes), gained)
    return Mend(current.template.source, tuple(changes), gained)


@dataclass(frozen=True)
class _Round:
    """The search for one more edit."""

    proof: Proof
    current: Rendering
    kept: frozenset[str]

    def edited(self) -> tuple[Edit, Rendering, frozenset[str]] | None:
        """The best proven edit, with the template that it makes and what that keeps. The best keeps
        most prompts together with the replies to them, then changes least, then comes first."""
        broken = self._broken()
        if not broken:
            return None
        promising = []
        for edit, edited in self._tried(broken):
            gained = frozenset(t.name for t in broken if keeps(edited, t))
            disturbed, changed = self._changed(edited) if gained else (0, 0)
            if not gained or (edit.is_fill and disturbed):
                continue
            whole = sum(bool(keeps_reply(edited, t)) for t in broken if t.name in gained)
            half = len(gained) - whole
            rank = (-whole, half if whole else -half, disturbed, changed)
            promising.append((rank, edit, edited, gained))
        promising.sort(key=lambda item: item[0])
        for _, edit, edited, gained in promising[:MAX_PROOFS]:
            if not self.proof.holds(edited, self.kept | gained):
                continue
            source = edit.apply(self.current.template.source)
            made = Rendering(ChatTemplate(source, self.current.template.specials))
            if self.proof.holds(made, self.kept | gained):
                return edit, made, self.kept | gained
        return None

    def _changed(self, edited: Rendering) -> tuple[int, int]:
        """Characters that next prompts gain or lose, thinking aside: of what is kept already, and
        of the rest."""
        changed = [0, 0]
        for name, before in self._lengths.items():
            after = self._length(edited, self.proof.fitted[name])
            changed[name not in self.kept] += abs(after - before)
        return changed[0], changed[1]

    @cached_property
    def _lengths(self) -> dict[str, int]:
        return {name: self._length(self.current, t) for name, t in self.proof.fitted.items()}

    def _length(self, rendering: Rendering, t: Transition) -> int:
        """Of the next prompt without thinking; 0 if it is refused."""
        try:
            text = rendering.prompt(t.next, t.next_tools, t.arguments)
        except TemplateError:
            return 0
        name = self.proof.original.thinking_name
        thinking = {m[name] for m in t.next if m.get(name)}
        return len(text) - sum(len(thought) * text.count(thought) for thought in thinking)

    def _broken(self) -> list[Transition]:
        """Fitted; those that could be kept."""
        names = self.kept | _NEVER
        return [t for name, t in self.proof.fitted.items() if name not in names]

    def _tried(self, broken: Sequence[Transition]) -> Iterator[tuple[Edit, Rendering]]:
        """In the order in which a reader would try them."""
        source = self.current.template.source
        for name, value in candidates(source):
            yield default(name, value), Rendering(self.current.template, {name: value})
        asked = list(conditions(source))
        fills = Filler(self.current).fills(list(self._steps(broken)))
        edits = [*asked, *fills]
        order = {edit: i for i, edit in enumerate(edits)}
        yield from sorted(tried(self.current, edits), key=lambda item: order[item[0]])
        if any(t.name == "parts-vs-string" for t in broken):
            edit = parts_as_text(source)
            template = ChatTemplate(edit.apply(source), self.current.template.specials)
            yield edit, Rendering(template)

    def _steps(self, broken: Sequence[Transition]) -> Iterator[Step]:
        for transition in broken:
            try:
                step = self.current.step(transition)
            except TemplateError:
                continue
            if step.shows_tools:
                yield step
