"""Is the prompt that was sent a prefix of the next one?"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from duramen.layout.blocks import common_prefix
from duramen.layout.certify.reasons import reason
from duramen.layout.certify.rendering import Rendering, Step, keeps_reply
from duramen.layout.certify.transitions import TRANSITIONS, Transition
from duramen.layout.diagnose.causes import Cause
from duramen.layout.errors import TemplateError
from duramen.layout.seams import SeamProver
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tracked import Tracked

Verdict = Literal["kept", "broken", "refused", "ignores-tools"]
Seam = Literal["control-token", "proven", "not-proven"]


@dataclass(frozen=True)
class Place:
    """The first character and the first token that differ; no token without a tokenizer."""

    char: int
    token: int | None


@dataclass(frozen=True)
class Outcome:
    """`verdict`: "kept" if the prompt that was sent, generation prompt included, is a prefix of the
    next one; "broken" if not; "refused" if the template raises for one of them; "ignores-tools" if
    the next prompt shows nothing of the tools or results that the transition is about.

    `reply_kept`: the next prompt also holds the reply as the template writes it while nothing
    follows; None where that is refused. `ids_kept`: the same verdict for token ids. `seam`: what
    makes the cut behind the prompt safe. Both are None without a tokenizer, and where not kept.
    """

    verdict: Verdict
    at: Place | None = None
    why: str | None = None
    cause: Cause | None = None
    reply_kept: bool | None = None
    ids_kept: bool | None = None
    seam: Seam | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def outcomes(
    rendering: Rendering,
    tokenizer: Tokenizer | None = None,
    transitions: Sequence[Transition] = TRANSITIONS,
) -> dict[str, Outcome]:
    """By the names of the transitions."""
    examiner = Examiner(rendering, tokenizer)
    return {t.name: examiner.outcome(t) for t in transitions}


@dataclass(frozen=True)
class Examiner:
    rendering: Rendering
    tokenizer: Tokenizer | None = None

    def outcome(self, transition: Transition) -> Outcome:
        try:
            step = self.rendering.step(transition)
        except TemplateError as error:
            return Outcome("refused", why=f"{error}{self._on_vllm(transition)}")
        if not step.shows_tools:
            missing = " and ".join(repr(word) for word in transition.shown)
            return Outcome("ignores-tools", why=f"the next prompt does not show {missing}")
        if step.is_kept:
            return Outcome(
                "kept",
                reply_kept=keeps_reply(self.rendering, step.transition),
                ids_kept=self._ids_kept(step),
                seam=self._seam(step),
            )
        found = reason(self.rendering, step)
        place = Place(step.at, self._common_tokens(step))
        reply_kept = keeps_reply(self.rendering, step.transition)
        why = f"{found.what}{self._on_vllm(transition)}"
        return Outcome("broken", place, why, found.cause, reply_kept)

    def _on_vllm(self, transition: Transition) -> str:
        """What becomes of text parts there: it gives a template one form of content, whichever the
        client chose."""
        if not any(isinstance(message["content"], list) for message in transition.next):
            return ""
        template = self.rendering.template
        alike = replace(
            transition,
            sent=template.prepared(transition.sent),
            next=template.prepared(transition.next),
        )
        try:
            is_kept = self.rendering.step(alike).is_kept
        except TemplateError:
            return ""
        form = "parts" if template.takes_parts else "one text"
        return f"; vLLM gives this template {form} in both calls, and keeps it" if is_kept else ""

    def _common_tokens(self, step: Step) -> int | None:
        if self.tokenizer is None:
            return None
        return common_prefix(self._ids(step.before), self._ids(step.after))

    def _ids(self, text: Tracked) -> list[int]:
        assert self.tokenizer is not None
        return self.tokenizer.encode(text).token_ids

    def _ids_kept(self, step: Step) -> bool | None:
        common = self._common_tokens(step)
        return None if common is None else common == len(self._ids(step.before))

    @cached_property
    def _prover(self) -> SeamProver | None:
        return None if self.tokenizer is None else SeamProver(self.tokenizer)

    def _seam(self, step: Step) -> Seam | None:
        if self._prover is None or self.tokenizer is None:
            return None
        cut, start = len(step.before), 0
        for begin, end, _ in self.tokenizer.controls(step.after):
            if cut in (begin, end):
                return "control-token"
            if begin > cut:
                break
            start = end
        before, after = (str(text) for text in (step.after[start:cut], step.after[cut:]))
        return "proven" if self._prover.is_proven(before, after) else "not-proven"
