"""What the layouts and arms did not do, and what the layouts noted."""

from collections.abc import Iterator
from dataclasses import dataclass

from duramen.experiments.study.page.view import LayoutView, StudyView


@dataclass(frozen=True)
class Remark:
    layout: LayoutView
    what: str
    number: int


def remarks(study: StudyView) -> list[Remark]:
    return [Remark(layout, *each) for layout in study.layouts for each in _of(study, layout)]


def _of(study: StudyView, layout: LayoutView) -> Iterator[tuple[str, int]]:
    for reason, number in layout.num_refused.items():
        yield f"calls refused: {reason}", number
    for arm in study.arms:
        if layout.arm(arm).num_skipped:
            yield f"calls larger than the pool, skipped in {arm}", layout.arm(arm).num_skipped
    if layout.num_deviating_tokens:
        yield "tokens that are not the canonical ones", layout.num_deviating_tokens
    yield from layout.notes.items()
