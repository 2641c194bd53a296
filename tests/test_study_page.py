"""The page of a study: its numbers are the study's, whatever names the study has and lacks."""

import copy
import json
import os
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from decimal import Decimal
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from duramen.cli import main
from duramen.experiments.study.page.page import render

Study = dict[str, Any]
LAYOUTS = ("recorded", "clock", "stable", "zoned:k=2", "zoned:k=2,align=32")
VOID = {"meta", "link", "wbr", "img", "br", "input"}
HOSTILE = (
    "</script><script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "<!-- &amp; {{ 7 * 7 }} {% raw %}",
    "😀 שלום \u202e עולם",
    "a" * 300,
)


class Page(HTMLParser):
    """What a reader without a script sees: `texts` by section, `rows` of tables by section."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.rows: dict[str, list[list[str]]] = {}
        self.raw: dict[str, list[str]] = {"style": [], "script": []}
        self._open: list[tuple[str, bool]] = []  # and whether it is hidden
        self._section = "head"
        self.feed(page)
        for rows in self.rows.values():
            rows[:] = [[" ".join(cell.split()) for cell in row] for row in rows]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "section":
            self._section = dict(attrs)["id"] or ""
        if tag not in VOID:
            is_hidden = "hidden" in dict(attrs) or tag in ("script", "style", "noscript")
            self._open.append((tag, is_hidden or self._is_hidden))
        if tag == "tr" and not self._is_hidden:
            self.rows.setdefault(self._section, []).append([])
        if tag in ("td", "th") and not self._is_hidden:
            self.rows[self._section][-1].append("")
        if tag in self.raw:
            self.raw[tag].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tags = [tag for tag, _ in self._open]
        if tags and tags[-1] in self.raw:
            self.raw[tags[-1]][-1] += data
        if self._is_hidden:
            return
        self.texts.setdefault(self._section, []).append(data)
        if {"td", "th"} & set(tags):
            self.rows[self._section][-1][-1] += data

    @property
    def _is_hidden(self) -> bool:
        return bool(self._open) and self._open[-1][1]

    def text(self, section: str) -> str:
        return " ".join("".join(self.texts.get(section, [])).split())

    def row(self, section: str, name: str) -> list[str]:
        """The first row of a section that stands for the layout before all others."""
        heads = {name, f"{name} assumed"}
        return next(row for row in self.rows[section] if row[0].split(" = ")[0] in heads)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> Study:
    out = tmp_path_factory.mktemp("page")
    layouts = [argument for label in LAYOUTS for argument in ("--layout", label)]
    arguments = ["--demo", *layouts, "--unit", "16", "--unit", "32", "--limit", "2"]
    with pytest.MonkeyPatch.context() as patch:
        command = ["duramen", "study", "layouts", *arguments, "--model", smollm2, "--out", out]
        patch.setattr("sys.argv", list(map(str, command)))
        assert main.run() == 0
    found: Study = json.loads((out / "study.json").read_text("utf-8"))
    return found


@pytest.fixture
def changed(study: Study) -> Study:
    """A copy that a test may change."""
    return copy.deepcopy(study)


def dollars(text: str) -> Decimal:
    return Decimal(text.split()[0].removeprefix("$").replace(",", ""))


def is_rounded(shown: Decimal, exact: Decimal) -> bool:
    return abs(shown - exact) <= abs(exact) / 200


def test_the_headline_is_the_studys(study: Study) -> None:
    page = Page(render(study))
    arm, model = study["arms"][0], next(iter(study["prices"]))
    for label, layout in study["layouts"].items():
        _, _, uncached, unavoidable, prompt, rate, breaks, calls, usd, *_ = page.row(
            "answer", label
        )
        sums = layout["arms"][arm]
        assert uncached == f"{sums['uncached_tokens']:,}"
        assert unavoidable == f"{layout['min_uncached_tokens']:,}"
        assert prompt == f"{sums['prompt_tokens']:,}"
        assert rate == f"{sums['hit_rate']:.1%}"
        assert (breaks, calls) == (str(layout["num_breaks"]), str(sums["num_calls"]))
        assert is_rounded(dollars(usd), Decimal(layout["usd"][model]))
    fewest = min(each["arms"][arm]["uncached_tokens"] for each in study["layouts"].values())
    assert f"{fewest:,} of" in page.text("answer")


def test_parts_of_the_bars_add_up_to_the_prompts(study: Study) -> None:
    page = Page(render(study))
    bars = page.rows["bounds"]
    table = bars[[row[0] for row in bars].index("layout", 1) + 1 :]
    shown = {name: sum(int(cell.replace(",", "")) for cell in row) for name, *row in table}
    for names, tokens in shown.items():
        for label in names.split(" = "):
            assert tokens == study["layouts"][label.strip()]["prompt_tokens"]
    assert {label.strip() for names in shown for label in names.split(" = ")} == set(LAYOUTS)


def test_engines_and_alignment(study: Study) -> None:
    page = Page(render(study))
    clock = page.row("arms", "clock")
    for cell, arm in zip(clock[1:], study["arms"], strict=True):
        tokens = study["layouts"]["clock"]["arms"][arm]["uncached_tokens"]
        assert cell.startswith(f"{tokens:,}")
    sums = study["layouts"]["zoned:k=2,align=32"]["alignment"]
    row = page.rows["arms"][-1]
    assert row[1:4] == ["32", f"{sums['num_moved']:,}", f"{sums['padding_tokens']:,}"]
    for text, tokens in zip(
        row[4:], (sums["expected_net_tokens"], sums["net_tokens"]), strict=True
    ):
        assert int(text.replace("−", "-").replace(",", "")) == round(tokens)


@pytest.mark.parametrize(
    ("net", "shown"), [(1234, "+1,234"), (-1234, "−1,234"), (0, "0"), (None, "–")]
)
def test_what_alignment_gave_has_a_sign(changed: Study, net: int | None, shown: str) -> None:
    changed["layouts"]["zoned:k=2,align=32"]["alignment"]["net_tokens"] = net
    assert Page(render(changed)).rows["arms"][-1][-1] == shown


def test_every_price_with_its_date_and_caveat(study: Study) -> None:
    page = Page(render(study))
    [heads, *_] = page.rows["money"]
    row = page.row("money", "clock")
    for (model, price), head, cell in zip(study["prices"].items(), heads[1:], row[1:], strict=True):
        assert head == f"{model} {price['date']}"
        assert (price["caveat"] or "") in page.text("money")
        assert is_rounded(dollars(cell), Decimal(study["layouts"]["clock"]["usd"][model]))


@pytest.mark.parametrize(
    ("usd", "shown"),
    [
        ("0.000000012345", "$0.0000000123"),
        ("0.00499", "$0.00499"),
        ("1234567.891", "$1,234,567.89"),
        ("0", "$0"),
        ("NaN", "–"),
        (None, "–"),
    ],
)
def test_money_is_never_rounded_to_nothing(changed: Study, usd: str | None, shown: str) -> None:
    model = next(iter(changed["prices"]))
    changed["layouts"]["clock"]["usd"][model] = usd
    page = Page(render(changed))
    assert shown in page.row("answer", "clock")
    assert "$0.00 " not in page.text("money")


def test_layouts_with_equal_figures_share_a_row(changed: Study) -> None:
    twin = copy.deepcopy(changed["layouts"]["stable"])
    twin["against"]["stable"] = copy.deepcopy(changed["layouts"]["recorded"]["against"]["stable"])
    changed["layouts"]["independent"] = twin
    for lanes in changed["lanes"].values():
        lanes["independent"] = lanes["stable"]
    page = Page(render(changed))
    for section in ("bounds", "arms", "money"):
        assert "independent" in page.row(section, "stable")[0]
    assert page.row("answer", "independent")[2] == page.row("answer", "stable")[2]


def rename(study: Study, names: dict[str, str]) -> Study:
    """The study with other names of layouts, sessions, models and devices."""

    def deep(value: Any) -> Any:
        if isinstance(value, dict):
            return {names.get(key, key): deep(each) for key, each in value.items()}
        if isinstance(value, list):
            return [deep(each) for each in value]
        return names.get(value, value) if isinstance(value, str) else value

    renamed: Study = deep(study)
    return renamed


def test_layouts_that_only_look_equal_keep_their_rows(changed: Study) -> None:
    model = next(iter(changed["prices"]))
    for label in ("stable", "recorded"):
        changed["layouts"][label]["usd"] = dict.fromkeys(changed["prices"], "12.341")
    rows = [row[0] for row in Page(render(changed)).rows["money"]]
    assert "stable = recorded" in rows
    changed["layouts"]["recorded"]["usd"][model] = "12.342"
    rows = [row[0] for row in Page(render(changed)).rows["money"]]
    assert {"stable", "recorded"} <= set(rows)


@pytest.mark.parametrize("text", HOSTILE)
def test_names_are_text_and_nothing_else(study: Study, text: str) -> None:
    names = ["clock", "unit 32", study["model"], next(iter(study["prices"]))]
    names += [next(iter(study["devices"])), next(iter(study["lanes"]))]
    renamed = rename(study, {name: f"{text}{place}" for place, name in enumerate(names)})
    renamed["layouts"][f"{text}0"]["notes"] = {text: 3}
    renamed["prices"][f"{text}3"]["caveat"] = text
    hostile, tame = Page(render(renamed)), Page(render(study))
    elements = {tag for tag, _ in hostile.tags}
    assert elements == {tag for tag, _ in tame.tags}
    assert [tag for tag, _ in hostile.tags].count("script") == 2
    assert not [name for _, attributes in hostile.tags for name in attributes if name[:2] == "on"]
    assert hostile.row("answer", " ".join(f"{text}0".split()))
    for section in ("head", "answer", "bounds", "arms", "money", "lanes", "notes"):
        assert " ".join(text.split()) in hostile.text(section)
    cells = json.loads(hostile.raw["script"][0])["cells"]
    assert f"{text}3" in cells["model"]["texts"]


def test_characters_without_bytes_do_not_stop_it(study: Study) -> None:
    page = render(rename(study, {"clock": "lone \ud800 surrogate \x00"}))
    assert "lone ? surrogate" in page.encode("utf-8").decode("utf-8")


def one_layout(study: Study) -> None:
    study["layouts"] = {"clock": {**study["layouts"]["clock"], "against": {}}}
    study["lanes"] = {name: {"clock": each["clock"]} for name, each in study["lanes"].items()}


def no_prices(study: Study) -> None:
    study["prices"] = {}
    for layout in study["layouts"].values():
        layout["usd"] = layout["usage"] = {}


def no_devices(study: Study) -> None:
    study["devices"] = {}
    for layout in study["layouts"].values():
        for arm in layout["arms"].values():
            arm["devices"] = {}


def no_hits_known(study: Study) -> None:
    arm = study["layouts"]["clock"]["arms"][study["arms"][0]]
    arm.update(cached_tokens=None, uncached_tokens=None, hit_rate=None, gaps={}, devices={})
    for lanes in study["lanes"].values():
        for call in lanes["clock"]:
            call[1] = None


def nothing(study: Study) -> None:
    study.clear()


@pytest.mark.parametrize(
    ("leave_out", "said"),
    [
        (no_prices, "made without prices"),
        (no_devices, "made without GPUs"),
        (lambda study: study.update(break_even={}), "holds no break-even curves"),
        (lambda study: study.update(lanes={}), "holds no calls of single sessions"),
        (lambda study: study.update(kv_bytes_per_token=None), "Fewest uncached tokens"),
        (one_layout, "holds no stable layout beside another"),
        (no_hits_known, "Fewest uncached tokens"),
        (nothing, "holds no layout with figures"),
    ],
)
def test_missing_parts_are_said_and_never_zero(
    changed: Study, leave_out: Callable[[Study], None], said: str
) -> None:
    leave_out(changed)
    page = Page(render(changed))
    everything = " ".join(map(page.text, page.texts))
    assert said in everything
    assert not re.search(r"\b(None|nan|inf|undefined)\b", everything)


def test_an_unknown_hit_is_a_dash(changed: Study) -> None:
    no_hits_known(changed)
    row = Page(render(changed)).row("answer", "clock")
    assert (row[2], row[5]) == ("–", "–")


def test_calls_that_a_pool_could_not_hold_are_named(changed: Study) -> None:
    arm = changed["layouts"]["clock"]["arms"][changed["arms"][0]]
    arm["num_skipped"] = {"larger_than_pool": 2}
    page = Page(render(changed))
    assert page.row("answer", "clock")[7].endswith("2 skipped")
    assert "calls larger than the pool" in page.text("notes")


def test_what_is_assumed_is_marked(study: Study) -> None:
    page = Page(render(study))
    for section in ("answer", "arms", "money"):
        names = [name for row in page.rows[section] for name in row[0].split(" = ")]
        zoned = [name for name in names if name.startswith("zoned")]
        assert zoned
        assert [name for name in names if name.endswith(" assumed")] == zoned
    assert "Assumed: compute efficiency" in page.text("money")
    assert "stands behind a change" in page.text("break-even")


def test_equal_studies_have_equal_bytes(study: Study, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(json.dumps(study), "utf-8")
    code = (
        "import json, sys; from duramen.experiments.study.page.page import render;"
        "sys.stdout.buffer.write(render(json.load(open(sys.argv[1], encoding='utf-8'))).encode())"
    )
    pages = [
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "study.json")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert pages == [render(study).encode()] * 2


def test_nothing_is_fetched(study: Study) -> None:
    page = Page(render(study))
    [policy] = [
        attributes["content"]
        for tag, attributes in page.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy
    assert policy.startswith("default-src 'none'; ")
    for text in (page.raw["style"][0], page.raw["script"][1]):
        assert f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in policy
    named = {
        attributes[name]
        for _, attributes in page.tags
        for name in ("href", "src", "srcset", "action", "data")
        if attributes.get(name)
    }
    outside = {name for name in named if name and not name.startswith("#")}
    assert outside == {"data:,", "study.json", "calls.parquet", "costs.parquet"}
    assert not [1 for _, attributes in page.tags if "style" in attributes]
    assert "url(" not in page.raw["style"][0]
    assert not re.search(r"https?://", render(study))


TASK = {"num_calls": 10, "root": 804.0, "trunk": 193.0, "k": 4, "step": 1, "behind": 0.5}


@pytest.mark.parametrize(
    ("task", "price", "said"),
    [
        (
            TASK,
            {"break_even_rate": 0.25, "zoned_wins_at_rate_0": True, "break_even_calls": 3},
            "With 10 calls both cost the same when an artifact changes in 25.0% of the calls: "
            "below that zoned is cheaper, above it stable. "
            "Zoned with k=4 is cheaper from 3 calls on.",
        ),
        (
            TASK,
            {"break_even_rate": None, "zoned_wins_at_rate_0": False, "break_even_calls": None},
            "With 10 calls zoned is cheaper at no change rate. "
            "No task is long enough for zoned with k=4 to be cheaper, as far as was tried.",
        ),
        ({}, {"break_even_rate": None, "zoned_wins_at_rate_0": True}, "Here zoned is cheaper at"),
        ({}, {}, ""),
    ],
)
def test_the_break_even_in_words(task: Study, price: Study, said: str) -> None:
    curves = {**price, "by_rate": {"4": [1.5, 2.5]}}
    study = {"break_even": {"task": task, "change_rates": [0, 1], "prices": {"acme/llm": curves}}}
    assert said in Page(render(study)).text("break-even")


def test_the_task_names_what_leaves_at_once(changed: Study) -> None:
    assert "at once" not in Page(render(changed)).text("break-even")
    changed["break_even"]["task"].update(k=4, step=3)
    text = Page(render(changed)).text("break-even")
    assert "zoned keeps the last 4 turns, and 3 older ones leave at once" in text
