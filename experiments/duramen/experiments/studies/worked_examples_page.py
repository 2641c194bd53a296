"""docs/worked-examples.md: the worked examples as tables, in Markdown."""

from collections.abc import Iterator, Sequence

from duramen.experiments.studies.figure import Example, Figure

PAGE = """# Worked examples, recomputed

Six calculations of what a shorter or cached prompt saves. All of them are in circulation. \
{num_figures} figures are printed in them, and {num_wrong} of these do not follow from what stands \
beside them. This page is made by `scripts/worked_examples.py`, and a test holds it to the code.

How to read the tables:

- **printed**: as it is in circulation. Bold where it does not follow from the formula.
- **by the formula**: the formula above the table, recomputed, with one digit more.
- **corrected**: the same with its slips put right. Only where there are any besides misprints.
- **exact**: counted for a published model of that size. Grouped heads, gated MLPs, the causal \
half of attention and one row of the head are counted as they are. Norms, activations and \
rotations are not counted.

An MFU is the share of a device's peak that is taken to be reached. No time on this page was \
measured. None counts launches or the reading of weights. The H100's peak and bandwidth are as \
widely quoted.

{examples}
"""


def as_page(examples: Sequence[Example]) -> str:
    figures = [figure for example in examples for figure in example.figures]
    return PAGE.format(
        num_figures=len(figures),
        num_wrong=sum(not figure.is_as_printed for figure in figures),
        examples="\n\n".join(_section(example) for example in examples),
    )


def _section(example: Example) -> str:
    lines = [
        f"## {example.title}",
        "",
        f"- Model: {example.model}",
        f"- Formula: {example.formula}",
        f"- Rate: {example.rate}",
        f"- Exact: {example.exact_model}",
        "",
        *_table(example.figures),
        "",
        *(f"- {note}" for note in example.notes),
    ]
    return "\n".join(lines)


def _table(figures: Sequence[Figure]) -> Iterator[str]:
    is_corrected = any(figure.corrected is not None for figure in figures)
    corrected = ["corrected"] if is_corrected else []
    yield _row(["", "unit", "printed", "by the formula", *corrected, "exact"])
    yield _row(["---", "---", *["---:"] * (3 + is_corrected)])
    for figure in figures:
        yield _row(
            [
                figure.what,
                figure.unit,
                _printed(figure),
                figure.shown(figure.recomputed),
                *[_corrected(figure)] * is_corrected,
                figure.shown(figure.exact),
            ]
        )


def _printed(figure: Figure) -> str:
    text = (
        figure.printed if figure.printed_unit is None else f"{figure.printed} {figure.printed_unit}"
    )
    return text if figure.is_as_printed else f"**{text}**"


def _corrected(figure: Figure) -> str:
    return "" if figure.corrected is None else figure.shown(figure.corrected)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
