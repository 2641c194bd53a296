"""The page of a study in a real browser: no errors, choices that work, room, contrast."""

import copy
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from browser import TEXTS, Browser, contrast, luminance

from duramen.cli import main
from duramen.experiments.study.page.page import render

Study = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> Path:
    out = tmp_path_factory.mktemp("seen")
    layouts = ("stable", "clock", "zoned:k=2", "zoned:k=2,align=32")
    arguments = [argument for label in layouts for argument in ("--layout", label)]
    arguments += ["--unit", "16", "--unit", "32", "--limit", "2", "--model", str(smollm2)]
    with pytest.MonkeyPatch.context() as patch:
        command = ["duramen", "study", "layouts", "--demo", *arguments, "--out", str(out)]
        patch.setattr("sys.argv", command)
        assert main.run() == 0
    return out


@pytest.fixture(scope="module")
def study(folder: Path) -> Study:
    found: Study = json.loads((folder / "study.json").read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def hostile(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of names that would do harm, or take room, if they were let."""
    bad = copy.deepcopy(study)
    names = {"clock": "</script><img src=x onerror=alert(1)>", "zoned:k=2": "w" * 400}
    bad["layouts"] = {names.get(name, name): each for name, each in bad["layouts"].items()}
    bad["lanes"] = {
        f"</script>{'s' * 300}{session}": {
            names.get(name, name): each for name, each in lane.items()
        }
        for session, lane in bad["lanes"].items()
    }
    path = tmp_path_factory.mktemp("hostile") / "index.html"
    path.write_text(render(bad), "utf-8")
    return path


CHOOSE = """(choice, index) => {
  const select = document.querySelector(`select[data-choice=${choice}]`);
  select.selectedIndex = index;
  select.dispatchEvent(new Event("change"));
}"""
HEADLINE = """[...document.querySelectorAll(".headline tbody tr")].map(
  (row) => [...row.cells].map((cell) => cell.innerText.trim()))"""
SHOWN = """(section) => [...document.querySelectorAll(`#${section} tbody`)]
  .filter((body) => body.checkVisibility()).length"""


def test_it_opens_without_a_fault(browser: Browser, folder: Path, hostile: Path) -> None:
    for page in (folder / "index.html", hostile):
        browser.open(page)
        for choice in ("arm", "model", "device", "price", "lane"):
            browser.run(f"({CHOOSE})({choice!r}, 1)")
        browser.run("document.querySelectorAll('svg[tabindex]').forEach((each) => each.focus())")
        assert browser.faults() == []
        assert browser.run("document.querySelectorAll('script, img').length") == 2


def test_choices_show_the_studys_numbers(browser: Browser, folder: Path, study: Study) -> None:
    browser.open(folder / "index.html")
    models, devices = list(study["prices"]), list(study["devices"])
    shown = []
    for place, arm in enumerate(study["arms"]):
        model, device = models[-1 - place % 2], devices[place % len(devices)]
        browser.run(f"({CHOOSE})('arm', {place})")
        browser.run(f"({CHOOSE})('model', {models.index(model)})")
        browser.run(f"({CHOOSE})('device', {devices.index(device)})")
        rows = {row[0].split()[0]: row[1:] for row in browser.run(HEADLINE)}
        assert set(rows) == set(study["layouts"])
        for label, row in rows.items():
            layout = study["layouts"][label]
            sums = layout["arms"][arm]
            assert row[1] == f"{sums['uncached_tokens']:,}"
            assert row[4] == f"{sums['hit_rate']:.1%}"
            usd, exact = Decimal(row[7].strip("$")), Decimal(layout["usd"][model])
            assert abs(usd - exact) <= exact / 200
            makespan = sums["devices"][device]["makespan_s"]
            assert float(row[10]) == pytest.approx(makespan, rel=0.005)
        tokens = [int(row[1].replace(",", "")) for row in rows.values()]
        assert tokens == sorted(tokens)
        assert f"{tokens[0]:,} of" in browser.run("document.querySelector('.finding').innerText")
        assert browser.run(f"({SHOWN})('bounds')") == 1
        shown.append(tokens)
    assert shown[0] != shown[1]


def test_reading_by_keyboard_says_the_studys_numbers(
    browser: Browser, folder: Path, study: Study
) -> None:
    browser.open(folder / "index.html")
    calls = study["lanes"][next(iter(study["lanes"]))]["stable"]
    said = browser.run(
        """(() => {
          const lane = [...document.querySelectorAll("#lanes figure")].find(
            (figure) => figure.checkVisibility() && figure.innerText.startsWith("stable"));
          const press = () => lane.querySelector("svg[data-lane]").dispatchEvent(
            new KeyboardEvent("keydown", { key: "ArrowDown" }));
          press(); press();
          return lane.querySelector(".readout").textContent;
        })()"""
    )
    prompt, cached, _ = calls[1]
    assert said.startswith(f"call 1: {prompt:,} prompt tokens, {cached:,} cached")


@pytest.mark.parametrize("width", [390, 1440])
def test_only_tables_scroll_sideways(
    browser: Browser, folder: Path, hostile: Path, width: int
) -> None:
    browser.look(width, "light")
    for page in (folder / "index.html", hostile):
        browser.open(page)
        browser.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        assert browser.run("document.scrollingElement.scrollWidth") <= width
        assert browser.run("window.innerWidth") == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(browser: Browser, folder: Path, scheme: str) -> None:
    browser.look(1440, scheme)
    browser.open(folder / "index.html")
    found = browser.run(TEXTS)
    assert len(found) > 5
    assert {text: pair for pair, text in found.items() if contrast(pair) < 4.5} == {}
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (luminance(list(map(int, ground[4:-1].split(", ")))) > 0.5) == (scheme == "light")
