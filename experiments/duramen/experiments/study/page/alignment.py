"""What aligning zone ends to a match unit took, and what it gave."""

from dataclasses import dataclass

from duramen.experiments.study.page import figures
from duramen.experiments.study.page.view import LayoutView, StudyView, number, whole


@dataclass(frozen=True)
class AlignmentRow:
    """`expected` and `measured`: tokens that alignment saves on balance, with a sign."""

    layout: LayoutView
    unit: str
    moved: str
    padding: str
    expected: str
    measured: str


def alignment_rows(study: StudyView) -> list[AlignmentRow]:
    """Of the layouts that align, in the order of the study."""
    return [_row(layout) for layout in study.layouts if layout.alignment]


def _row(layout: LayoutView) -> AlignmentRow:
    sums = layout.alignment
    unit, moved, padding, net = (
        whole(sums.get(name)) for name in ("unit", "num_moved", "padding_tokens", "net_tokens")
    )
    return AlignmentRow(
        layout,
        unit=figures.count(unit),
        moved=figures.count(moved),
        padding=figures.count(padding),
        expected=figures.signed(number(sums.get("expected_net_tokens"))),
        measured=figures.signed(net),
    )
