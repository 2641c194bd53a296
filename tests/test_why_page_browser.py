"""The page of `duramen why` in a real browser: what is said of a call, filters, room, contrast."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from browser import TEXTS, Browser, contrast
from why_page_cases import FACTS, explained, hostile, many

from duramen.experiments.why.explained import ExplainedCall
from duramen.experiments.why.page.page import render

POINT = """(lane, call, type = "pointermove", pointerType = "mouse") => {
  const svg = document.querySelectorAll("svg.lane")[lane];
  const box = svg.getBoundingClientRect();
  const row = box.height / Number(svg.getAttribute("viewBox").split(" ")[3]);
  svg.dispatchEvent(new PointerEvent(type, {
    bubbles: true, pointerType, clientX: box.left + 9, clientY: box.top + row * (call + 0.5) }));
}"""
PRESS = """(lane, key) => document.querySelectorAll("svg.lane")[lane].dispatchEvent(
  new KeyboardEvent("keydown", { key, bubbles: true }))"""
ELSEWHERE = """() => document.querySelector("h1").dispatchEvent(
  new PointerEvent("pointerdown", { bubbles: true }))"""
CHOOSE = """(name, value) => {
  const select = document.getElementById(name);
  select.value = value;
  select.dispatchEvent(new Event("change"));
}"""
CARD = (
    "document.getElementById('card').checkVisibility() && document.getElementById('card').innerText"
)
LANES = """[...document.querySelectorAll("figure[data-lane]")].filter((each) => !each.hidden)
  .map((each) => each.querySelector("figcaption bdi").textContent)"""
ROWS = """[...document.querySelectorAll("#breaks tbody tr")].map(
  (row) => [...row.cells].map((cell) => cell.textContent))"""
DRAWN = """[...document.querySelectorAll(".lane .breaks")].filter(
  (each) => getComputedStyle(each).strokeOpacity !== "0").length"""


@pytest.fixture(scope="module")
def calls(smollm2: Path) -> Sequence[ExplainedCall]:
    return explained(smollm2)


@pytest.fixture(scope="module")
def pages(
    calls: Sequence[ExplainedCall], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    folder, found = tmp_path_factory.mktemp("pages"), {}
    for name, each in {"real": calls, "hostile": hostile(), "many": many(1000)}.items():
        found[name] = folder / f"{name}.html"
        found[name].write_text(render(each, FACTS), "utf-8")
    return found


def said(browser: Browser, script: str, *arguments: Any) -> Any:
    browser.run(f"({script})({', '.join(map(repr, arguments))})")
    return browser.run(CARD)


def test_pointing_at_a_call_says_its_break(
    browser: Browser, pages: dict[str, Path], calls: Sequence[ExplainedCall]
) -> None:
    browser.look(1440, "light")
    browser.open(pages["real"])
    assert browser.run(CARD) is False
    clock = [call for call in calls if call.session == "clock"]
    for index, call in enumerate(clock):
        text = said(browser, POINT, 0, index)
        broken = call.broken
        assert broken is not None
        assert f"clock, call {index}: {broken.cause}" in text
        assert f"{call.num_tokens:,} prompt tokens" in text
        assert broken.evidence in text
        if index:
            assert broken.zone is not None
            where = f"token {broken.token}, block {broken.block}, {broken.zone.name.lower()}"
            for words in (where, f"{broken.lost_tokens} tokens computed again", broken.mend):
                assert words in text
            assert f"It is 10:00:0{index}. You are" in text
            assert f"It is 10:00:0{index - 1}. You are" in text
    assert said(browser, POINT, 0, 0, "pointerleave") is False
    assert browser.faults() == []


def test_the_keyboard_reads_calls(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["real"])
    assert "call 0: first-call" in said(browser, PRESS, 0, "ArrowDown")
    assert "call 1: clock" in said(browser, PRESS, 0, "ArrowDown")
    assert "call 4: clock" in said(browser, PRESS, 0, "End")
    assert "call 4: clock" in said(browser, PRESS, 0, "ArrowRight")
    assert "call 3: clock" in said(browser, PRESS, 0, "ArrowUp")
    assert "chat, call 0" in said(browser, PRESS, 2, "Home")
    assert browser.run("document.querySelectorAll('.cursor:not([hidden])').length") == 1
    assert said(browser, PRESS, 2, "Escape") is False
    assert browser.run("document.querySelectorAll('.cursor:not([hidden])').length") == 0


def test_a_tap_keeps_what_it_says(browser: Browser, pages: dict[str, Path]) -> None:
    browser.look(390, "dark")
    browser.open(pages["real"])
    assert "call 2: clock" in said(browser, POINT, 0, 2, "pointerdown", "touch")
    assert "call 2: clock" in said(browser, POINT, 0, 2, "pointerleave", "touch")
    assert said(browser, ELSEWHERE) is False


def test_filters(browser: Browser, pages: dict[str, Path]) -> None:
    browser.look(1440, "light")
    browser.open(pages["real"])
    shown = "document.getElementById('shown').textContent"
    assert browser.run(LANES) == ["clock", "tools", "chat"]
    assert browser.run(shown) == "3 of 3 sessions, 5 breaks, 768 tokens lost"
    rows = browser.run(ROWS)
    assert [row[0] for row in rows[:2]] == ["tools call 2", "clock call 4"]
    assert [row[2] for row in rows] == ["256", "160", "144", "112", "96"]
    browser.run(f"({CHOOSE})('cause', '1')")
    assert browser.run(LANES) == ["tools"]
    assert browser.run(DRAWN) == 1
    assert browser.run(shown) == "1 of 3 sessions, 1 break, 256 tokens lost"
    browser.run("document.querySelector('button[data-choose=\"0\"]').click()")
    assert browser.run(LANES) == ["clock"]
    assert [row[1] for row in browser.run(ROWS)] == ["clock"] * 4
    browser.run("document.querySelector('button[data-choose=\"0\"]').click()")
    assert browser.run(LANES) == ["clock", "tools", "chat"]
    browser.run(f"({CHOOSE})('session', '2')")
    assert browser.run(LANES) == ["chat"]
    assert browser.run("document.getElementById('breaks').hidden") is True


def test_a_break_of_the_list_is_shown_in_its_lane(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["real"])
    browser.run("document.querySelector('#breaks tbody button').click()")
    assert "tools, call 2: tool-order" in browser.run(CARD)
    assert browser.run("document.activeElement.closest('figure').dataset.lane") == "1"


def test_a_thousand_calls_are_few_elements(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["many"])
    assert browser.run("document.querySelectorAll('*').length") < 400
    assert browser.run("document.querySelectorAll('#breaks tbody tr').length") == 20
    assert browser.run("document.getElementById('more').textContent").startswith("and 313 more")
    assert "long, call 998: counter" in said(browser, POINT, 0, 998)
    assert browser.faults() == []


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_harms_and_only_tables_scroll_sideways(
    browser: Browser, pages: dict[str, Path], width: int
) -> None:
    browser.look(width, "light")
    for page in pages.values():
        browser.open(page)
        for lane in range(browser.run("document.querySelectorAll('svg.lane').length")):
            assert said(browser, POINT, lane, 0)
        assert browser.faults() == []
        assert browser.run("document.querySelectorAll('script, img').length") == 2
        assert browser.run("document.scrollingElement.scrollWidth") <= width
        assert browser.run("window.innerWidth") == width
        box = browser.run(
            "JSON.parse(JSON.stringify(document.getElementById('card').getBoundingClientRect()))"
        )
        assert box["left"] >= 0
        assert box["right"] <= width
        assert box["bottom"] <= 900


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(browser: Browser, pages: dict[str, Path], scheme: str) -> None:
    browser.look(1440, scheme)
    browser.open(pages["real"])
    assert said(browser, POINT, 0, 2)
    found = browser.run(TEXTS)
    assert len(found) == 5
    assert {text: pair for pair, text in found.items() if contrast(pair) < 4.5} == {}
