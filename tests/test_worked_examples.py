"""The worked examples in circulation: every figure as printed, recomputed, corrected and exact."""

from pathlib import Path

import pytest

from duramen.experiments.studies.figure import Example, Figure
from duramen.experiments.studies.worked_examples import (
    cached_prompt,
    distilled_prompt,
    kinds_of_attention,
    one_prompt,
    retrieved_chunks,
    shorter_prompt,
    worked_examples,
)
from duramen.experiments.studies.worked_examples_page import as_page

ROOT = Path(__file__).parents[1]


def shown(example: Example) -> list[tuple[str, str, str]]:
    """Printed, by the formula and exact."""
    return [
        (figure.printed, figure.shown(figure.recomputed), figure.shown(figure.exact))
        for figure in example.figures
    ]


def corrected(example: Example) -> list[str | None]:
    return [
        None if figure.corrected is None else figure.shown(figure.corrected)
        for figure in example.figures
    ]


def misprinted(example: Example) -> list[str]:
    return [figure.printed for figure in example.figures if not figure.is_as_printed]


def test_one_prompt() -> None:
    example = one_prompt()
    assert shown(example) == [
        ("140.7", "140.74", "131.94"),  # TFLOP
        ("25", "25", "13.3"),  # %
        ("285", "284.6", "266.8"),  # ms
        ("3,096", "3,096.2", "2,040.7"),
        ("72.7", "72.73", "55.17"),
        ("6.26", "6.261", "4.127"),  # s
        ("24,576", "24,576", "53,248"),  # tokens
        ("188", "187.8", "123.8"),
        ("< 9", "7.7", "5.6"),
    ]
    assert misprinted(example) == []


def test_one_prompt_from_its_formula() -> None:
    layers, d = 32, 4096
    recomputed = [figure.recomputed for figure in one_prompt().figures]
    for num_tokens, (flops, share, time), unit_s in (
        (8192, recomputed[:3], 1e-3),
        (65_536, recomputed[3:6], 1),
    ):
        linear, attention = 24 * num_tokens * layers * d**2, 4 * num_tokens**2 * layers * d
        assert flops * 1e12 == pytest.approx(linear + attention)
        assert share == pytest.approx(100 * attention / (linear + attention))
        assert time * unit_s == pytest.approx((linear + attention) / 494.5e12)
    crossover = int(recomputed[6])
    assert 24 * crossover * layers * d**2 == 4 * crossover**2 * layers * d


def test_the_turns_hold_up_to_as_many_new_tokens_as_the_page_says() -> None:
    layers, d, m = 32, 4096, 65_536
    cold = 24 * m * layers * d**2 + 4 * m**2 * layers * d

    def seconds(new_tokens: int) -> float:
        turn = 24 * new_tokens * layers * d**2 + 4 * new_tokens * m * layers * d
        return (cold + 29 * turn) / 494.5e12

    assert one_prompt().figures[-1].recomputed == pytest.approx(seconds(512))
    assert seconds(988) < 9 < seconds(989)
    assert "N = 988." in one_prompt().notes[1]


def test_shorter_prompt() -> None:
    example = shorter_prompt()
    assert shown(example) == [
        ("39.06", "39.095", "26.125"),  # PFLOP
        ("79.0", "79.06", "52.83"),  # s
        ("30.0", "30.0", "30.0"),  # GiB
        ("5.02", "5.024", "4.156"),
        ("10.15", "10.160", "8.405"),
        ("7.5", "7.50", "7.50"),
    ]
    assert misprinted(example) == ["39.06", "79.0", "10.15"]


def test_the_printed_times_follow_from_the_printed_flops() -> None:
    assert f"{39.06e15 / 494.5e12:.1f}" == "79.0"
    assert f"{5.02e15 / 494.5e12:.2f}" == "10.15"
    terms = (2 * 70e9 * 98_304 / 1e15, 4 * 80 * 8192 * 98_304**2 / 1e15)
    assert "{:.2f} + {:.2f}".format(*terms) == "13.76 + 25.33"
    assert "13.76 + 25.33" in shorter_prompt().notes[0]


def test_distilled_prompt() -> None:
    example = distilled_prompt()
    assert shown(example) == [
        ("63.94", "64.036", "32.942"),  # PFLOP
        ("9.00", "9.006", "9.266"),  # s
        ("37.58", "37.581", "37.581"),  # GB
        ("0.957", "0.9573", "0.5075"),
        ("0.135", "0.1346", "0.1428"),
        ("1.17", "1.174", "1.174"),
    ]
    assert corrected(example) == ["49.258", "13.856", None, "0.4955", "0.1394", None]
    assert misprinted(example) == ["63.94", "9.00"]
    terms = (48 * 80 * 8192**2 * 114_688 / 1e15, 4 * 80 * 8192 * 114_688**2 / 1e15)
    assert "{:.2f} + {:.2f}".format(*terms) in example.notes[0]
    assert f"{63.94e15 / (8 * 1975e12 * 0.45):.2f}" == "8.99"


def test_cached_prompt() -> None:
    example = cached_prompt()
    assert shown(example) == [
        ("1,704", "1,704.5", "6,968.8"),  # ms
        ("8.9", "8.92", "43.34"),
        ("191", "191.2", "160.8"),  # times
    ]
    assert corrected(example) == ["5,773.6", "30.20", "191.2"]
    assert misprinted(example) == ["1,704"]


def test_kinds_of_attention() -> None:
    example = kinds_of_attention()
    assert shown(example) == [
        ("2,560", "2,560", "2,560"),  # KiB
        ("320", "320", "320"),
        ("67.5", "67.50", "67.50"),
        ("43", "343.6", "343.6"),  # GB
        ("42.9", "42.95", "42.95"),
        ("9.06", "9.060", "9.060"),
        ("4.74", "4.741", "4.741"),  # times
    ]
    assert misprinted(example) == ["2,560", "320", "67.5", "43"]
    assert [figure.recomputed * 2**10 for figure in example.figures[:3]] == [
        2_621_440,
        327_680,
        69_120,
    ]


def test_retrieved_chunks() -> None:
    example = retrieved_chunks()
    assert shown(example) == [
        ("300", "300", "512.2"),  # ms
        ("7.86", "7.864", "7.864"),  # GB
        ("30", "30", "40.5"),
        ("0.79", "0.786", "0.786"),
    ]
    assert misprinted(example) == []


def test_bytes_are_the_exact_models_own() -> None:
    """What the formulas say of the KV cache is what the footprint of the named model says."""
    sizes = [
        figure
        for example in worked_examples()
        for figure in example.figures
        if figure.unit in ("KiB", "GB", "GiB")
    ]
    assert len(sizes) == 12
    assert all(figure.recomputed == figure.exact for figure in sizes)


@pytest.mark.parametrize(
    ("printed", "value", "is_as_printed", "text"),
    [
        ("1,704", 1704.49, True, "1,704.5"),
        ("1,704", 1704.5174, False, "1,704.5"),
        ("43", 43.0, True, "43"),
        ("9.00", 9.0049, True, "9.005"),
        ("< 9", 8.99, True, "9.0"),
        ("< 9", 9.0, False, "9"),
    ],
)
def test_a_figure(printed: str, value: float, is_as_printed: bool, text: str) -> None:
    figure = Figure("time", "ms", printed, value, exact=1.0)
    assert (figure.is_as_printed, figure.shown(value)) == (is_as_printed, text)


def test_the_page_is_of_these_examples() -> None:
    written = (ROOT / "docs" / "worked-examples.md").read_text("utf-8")
    assert written == as_page(worked_examples()), (
        "scripts/worked_examples.py > docs/worked-examples.md"
    )
    assert "35 figures are printed in them, and 10 of these" in written
