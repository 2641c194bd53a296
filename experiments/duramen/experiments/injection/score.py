"""Cases made, asked about and judged."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from duramen.experiments.injection.cases import Case, Scene, Variant
from duramen.experiments.injection.lab import Lab
from duramen.experiments.injection.oracle import Part, part_of
from duramen.experiments.injection.scenes import untouched
from duramen.experiments.trajectory import Session
from duramen.experiments.why.explain import Settings, explain
from duramen.experiments.why.explained import ExplainedBreak, ExplainedCall
from duramen.layout.diagnose.causes import Cause

MOST_TRIED = 80  # scenes for one case, before it is said that none fits


@dataclass(frozen=True)
class Verdict:
    """What was said of a case. `said`: the cause, None for no break, or the error's text.
    `exact`: the first token and the call it is measured against are right; None where there is
    none to name. `elsewhere`: causes of breaks that were seen in the case's other calls, in which
    nothing breaks."""

    cause: Cause | None
    name: str
    causes: frozenset[Cause | None]
    said: str | None
    exact: bool | None
    evidence: str
    scene: str
    elsewhere: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        return self.said in self.causes

    @property
    def unknown(self) -> bool:
        return not self.right and self.said == "unknown"

    @property
    def silent(self) -> bool:
        return not self.right and self.said is None

    @property
    def wrong(self) -> bool:
        return not (self.right or self.unknown or self.silent)


@dataclass(frozen=True)
class Unfit:
    """No real scene has what a variant takes."""

    cause: Cause | None
    name: str


def judged(
    variants: Iterable[Variant], scenes: Sequence[Scene], lab: Lab, seeds: Sequence[int]
) -> Iterator[Verdict | Unfit]:
    """One verdict for each variant and seed. Variants of published templates are left out where
    the lab has none."""
    for variant in variants:
        if variant.published and lab.shared is None:
            continue
        for seed in seeds:
            made = make(variant, scenes, lab, seed)
            yield Unfit(variant.cause, variant.name) if made is None else judge(variant, *made, lab)


def make(
    variant: Variant, scenes: Sequence[Scene], lab: Lab, seed: int
) -> tuple[Case, Scene, Part | None] | None:
    """The case of a variant on the first scene, in an order drawn by the seed, that fits it. One
    in which no token parts although it should is none."""
    rng = Random(f"{variant.cause}: {variant.name}: {seed}")
    for scene in rng.sample(scenes, min(len(scenes), MOST_TRIED)):
        case = variant.make(scene, rng, lab)
        if case is None:
            continue
        part = part_of(lab, case) if case.parts else None
        if part is not None or not case.parts:
            return case, scene, part
    return None


def judge(variant: Variant, case: Case, scene: Scene, part: Part | None, lab: Lab) -> Verdict:
    def verdict(said: str | None, exact: bool | None, evidence: str, *elsewhere: str) -> Verdict:
        return Verdict(
            variant.cause, variant.name, case.causes, said, exact, evidence, scene.root, elsewhere
        )

    try:
        calls = list(explain(case.sessions, lab.model(case.model), Settings(**case.settings)))
    except Exception as error:  # whatever it is, the case was not explained
        return verdict(f"error: {error!r}", None, "")
    broken = next(call.broken for call in calls if (call.session, call.call) == case.at)
    said = None if broken is None else broken.cause
    evidence = "" if broken is None else broken.evidence
    return verdict(said, _is_exact(broken, part), evidence, *_elsewhere(calls, case))


def _is_exact(broken: ExplainedBreak | None, part: Part | None) -> bool | None:
    if part is None:
        return None
    return (
        broken is not None
        and Part(
            str(broken.vs_session),
            -1 if broken.vs_call is None else broken.vs_call,
            broken.token or 0,
        )
        == part
    )


def _elsewhere(calls: Iterable[ExplainedCall], case: Case) -> Iterator[str]:
    """Only the call that is asked about breaks, and calls before it that are asked in its stead
    (of three equal ones, the second breaks as the third does)."""
    for call in calls:
        broken = call.broken
        if broken is None or (call.session, call.call) == case.at or call.call > 0:
            continue
        if broken.cause not in ("first-call", "not-reported", *case.causes):
            yield broken.cause


@dataclass(frozen=True)
class FalseBreak:
    session: str
    call: int
    cause: str
    evidence: str


def false_breaks(sessions: Iterable[Session], lab: Lab, most: int) -> tuple[int, list[FalseBreak]]:
    """Transitions that only append, up to `most`, and the breaks that were seen in them."""
    num, found = 0, []
    for session, appending in untouched(sessions):
        chosen = set(appending[: most - num])
        num += len(chosen)
        for call in explain([session], lab.model("chatml"), Settings()):
            if call.call in chosen and call.broken is not None:
                broken = call.broken
                found.append(FalseBreak(call.session, call.call, broken.cause, broken.evidence))
        if num >= most:
            break
    return num, found
