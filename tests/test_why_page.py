"""The page of `duramen why`: zones, bars, sums, and text that stays text."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner
from why_cases import TOOLS, chat, model_of
from why_page_cases import (
    FACTS,
    HOSTILE,
    break_of,
    call_of,
    explained,
    hostile,
    many,
    model_in,
    with_clock,
)

from duramen.cli.main import app
from duramen.experiments.trajectory import Call, Sending
from duramen.experiments.why.explain import explain
from duramen.experiments.why.explained import ExplainedCall
from duramen.experiments.why.gateway_session import explain_session
from duramen.experiments.why.page.headline import cause_rows, headline, lost_to
from duramen.experiments.why.page.lanes import hit_tokens, pieces_of, session_lanes
from duramen.experiments.why.page.page import render
from duramen.experiments.why.page.spelled import MAX_CHARACTERS, parted, shortened, spelled
from duramen.experiments.why.rendering import Renderer
from duramen.experiments.why.zone_starts import zone_starts
from duramen.layout.errors import DuramenError

PLAIN = "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}"
OPENED = "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}{% endfor %}"
TOOLS_LAST = (
    "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}{{ tools | tojson }}"
)


class Tags(HTMLParser):
    """Tags and their attributes, and the text of raw elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def count(self, name: str) -> int:
        return sum(tag == name for tag, _ in self.tags)


@pytest.mark.parametrize("source", [None, PLAIN, OPENED, TOOLS_LAST])
@pytest.mark.parametrize("num_past", [0, 2, 3, 4, 9])
def test_zones_begin_behind_the_text_of_the_zone_before(
    smollm2: Path, source: str | None, num_past: int
) -> None:
    model = model_in(smollm2)
    model = model if source is None else model_of(model.tokenizer, source)
    messages = chat(3).calls[2].messages
    tools = TOOLS if source in (None, TOOLS_LAST) else ()
    renderer = Renderer(model)
    rendered = renderer.render(renderer.setting(tools, Call(messages, None), 0.0), messages)
    starts = zone_starts(model.tokenizer, rendered, num_past)
    for start, num_before in zip(starts, (2, min(max(num_past, 2), len(messages))), strict=True):
        last = str(messages[num_before - 1]["content"])
        end = str(rendered.text).rindex(last) + len(last)
        if num_before == len(messages) and source == TOOLS_LAST:
            end = len(rendered.text)
        slow = model.tokenizer.encode(rendered.text[:end]).token_ids
        assert start == len(slow)


def test_a_prompt_without_messages_is_all_root(smollm2: Path, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("The light turns. " * 9, "utf-8")
    found = CliRunner().invoke(
        app, ["why", str(tmp_path / "a.txt"), str(tmp_path / "b.txt"), "--json", "-"]
    )
    for call in json.loads(found.stdout)["calls"]:
        assert call["zones"] == {"root": call["num_tokens"], "trunk": 0, "leaf": 0}


def test_zones_of_a_log(smollm2: Path) -> None:
    calls = [call for call in explained(smollm2) if call.session == "chat"]
    assert calls[0].zones is not None
    root = calls[0].zones[0]
    assert [call.zones and call.zones[0] for call in calls] == [root] * 4
    for before, call in pairwise(calls):
        assert call.zones is not None
        assert before.num_tokens is not None
        assert before.num_tokens < call.zones[1] < (call.num_tokens or 0)


def test_zones_are_not_known_of_others_ids_and_of_what_is_not_rendered(smollm2: Path) -> None:
    session, model = chat(1), model_in(smollm2)
    recorded = replace(session.calls[0], sending=Sending(token_ids=(1, 2, 3)))
    [call] = explain([replace(session, calls=(recorded,))], model)
    assert (call.num_tokens, call.zones) == (3, None)
    refusing = model_of(model.tokenizer, "{{ raise_exception('no such role') }}")
    [call] = explain([session], refusing)
    assert (call.num_tokens, call.zones) == (None, None)
    html = render([call], FACTS)
    assert "Of 1 call the tokens are not known" in html
    assert "tokens not known: " in html
    assert "no such role" in html


def test_zones_of_a_gateways_session() -> None:
    spans = [
        {"start": 0, "end": 100, "zone": "root"},
        {"start": 100, "end": 180, "zone": "trunk"},
        {"start": 180, "end": 200, "zone": "leaf"},
    ]
    calls: list[dict[str, Any]] = [{"turn": 0, "spans": spans}, {"turn": 1}]
    found = explain_session({"id": "s", "calls": calls}, 16)
    assert [call.zones for call in found] == [(100, 180), None]


numbers = st.none() | st.integers(-5, 60)


@given(
    num_tokens=st.none() | st.integers(0, 50),
    delivered=numbers,
    predicted=numbers,
    reusable=numbers,
    zones=st.none() | st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted).map(tuple),
)
def test_pieces_cover_the_prompt(num_tokens: int | None, **fields: Any) -> None:
    call = call_of("s", 0, num_tokens=num_tokens, **fields)
    position = hits = 0
    tokens = []
    for kind, start, end in pieces_of(call):
        assert start == position < end
        position = end
        hits += (end - start) * kind.endswith((" hit", " maybe"))
        tokens += [kind] * (end - start)
    assert position == (num_tokens or 0)
    assert hits == hit_tokens(call)
    assert tokens == [slow_kind(call, token) for token in range(num_tokens or 0)]


def slow_kind(call: ExplainedCall, token: int) -> str:
    zone = "any"
    if call.zones is not None:
        zone = ["root", "trunk", "leaf"][sum(token >= start for start in call.zones)]
    sources, cached = [call.predicted, call.reusable], "maybe"
    if call.delivered is not None and call.delivered <= (call.num_tokens or 0):
        sources, cached = [call.delivered], "hit"
    for known in sources:
        if known is not None:
            return f"{zone} {cached if token < known else 'miss'}"
    return f"{zone} miss"


def test_a_lane() -> None:
    calls = [
        call_of("quiet", 0),
        call_of("s", 0, reusable=0, predicted=0, broken=break_of("first-call", lost_tokens=0)),
        call_of("s", 1, num_tokens=200, predicted=96, broken=break_of("clock", token=50)),
        call_of("s", 2, num_tokens=None, zones=None),
        call_of("s", 3, num_tokens=200, delivered=96),
    ]
    first, second = session_lanes(calls)
    assert (first.session, first.index, first.lost_tokens, first.most_tokens) == ("s", 1, 32, 200)
    assert (second.session, second.index, second.causes) == ("quiet", 0, ())
    pieces = dict(first.pieces)
    assert pieces["root miss"] == "M0 0h100v0.85h-100z"
    assert pieces["trunk maybe"] == "M100 1h300v0.85h-300z"  # predicted, and not reported
    assert pieces["trunk hit"] == "M100 3h300v0.85h-300z"
    assert pieces["leaf miss"] == (
        "M400 0h100v0.85h-100zM480 1h520v0.85h-520zM480 3h520v0.85h-520z"
    )
    assert first.breaks == (("clock", "M250 1v0.85"),)
    assert first.unknown == "M0 2.5h1000"


def test_a_count_of_another_tokenizer_is_not_drawn() -> None:
    call = call_of("s", 0, delivered=101, predicted=32)
    assert hit_tokens(call) == 32
    html = render([call], FACTS)
    assert "101 delivered, which are tokens of another tokenizer" in html


def test_what_is_not_reported_is_no_break_in_a_lane() -> None:
    html = render([call_of("s", 0, broken=break_of("not-reported", lost_tokens=0))], FACTS)
    drawn = [a.get("class") for t, a in Tags(html).tags if t == "path" and "data-cause" in a]
    assert drawn == ["breaks noted"]
    html = render([call_of("s", 0, broken=break_of("clock"))], FACTS)
    drawn = [a.get("class") for t, a in Tags(html).tags if t == "path" and "data-cause" in a]
    assert drawn == ["breaks"]
    assert "not-reported" not in html


def test_rows_get_smaller_with_their_number() -> None:
    heights = [session_lanes(many(number))[0].row_height for number in (30, 100, 300, 1000)]
    assert heights == [14, 7, 4, 2]


def test_the_headline_says_what_it_does_not_know() -> None:
    calls = [call_of("s", 0, delivered=32), call_of("s", 1), call_of("s", 2, num_tokens=None)]
    prompt, reusable, predicted, delivered, lost = headline(calls, 12_345)
    assert (prompt.tokens, prompt.note) == ("200", "of 2 of 3 calls")
    assert (reusable.tokens, reusable.note) == ("144", "72.0% of the prompt tokens")
    assert predicted.tokens == "144"
    assert (delivered.tokens, delivered.note) == ("32", "of 1 of 3 calls")
    assert lost.tokens == "12,345"
    [*_, nothing, _] = headline(calls[1:], 0)
    assert (nothing.tokens, nothing.note) == ("–", "not reported")


def test_totals_by_cause() -> None:
    calls = [
        call_of("s", 0, broken=break_of("first-call", lost_tokens=0)),
        call_of("s", 1, broken=break_of("clock", lost_tokens=30)),
        call_of("s", 2, broken=break_of("counter", lost_tokens=60)),
        call_of("s", 3, broken=break_of("clock", lost_tokens=30)),
        call_of("s", 4, broken=break_of("tool-order", lost_tokens=40)),
        call_of("s", 5, broken=break_of("not-reported", lost_tokens=0)),
    ]
    rows = cause_rows(calls, lost_to(calls))
    shown = [(row.cause, row.tokens, row.share, row.breaks, row.width) for row in rows]
    assert sorted(shown[:2]) == [
        ("clock", "60", "37.5%", "2", 100),
        ("counter", "60", "37.5%", "1", 100),
    ]
    assert shown[2:] == [
        ("tool-order", "40", "25.0%", "1", 66.67),
        ("not-reported", "0", "0.0%", "1", 0),
    ]
    assert cause_rows(calls[:1], lost_to(calls[:1])) == []
    free = calls[5:]
    assert [(row.share, row.width) for row in cause_rows(free, lost_to(free))] == [("–", 0)]


@given(st.text(), st.text())
def test_texts_are_spelled_out(was: str, now: str) -> None:
    head, old, new, tail = parted(was, now, "clock")
    assert head + old + tail == spelled(was.replace("\\", "\\\\"))
    assert head + new + tail == spelled(now.replace("\\", "\\\\"))
    assert (head + old + new + tail).isprintable()
    assert not (old and new and (old[0] == new[0] != "\\" or old[-1] == new[-1] == " "))


def test_long_texts_are_cut() -> None:
    assert spelled("x" * MAX_CHARACTERS) == "x" * MAX_CHARACTERS
    assert spelled("\n" * 2 * MAX_CHARACTERS) == "\\n" * (MAX_CHARACTERS // 2) + "…"
    assert spelled("a\u202e\ud800\xa0é字") == r"a\u202e\ud800\xa0é字"
    assert shortened("a" * 60) == "a" * 60
    assert shortened("a" * 50 + "b" * 50) == "a" * 43 + "…" + "b" * 16


def test_hostile_text_stays_text() -> None:
    html = render(hostile(), {**FACTS, "model": HOSTILE})
    tags = Tags(html)
    assert (tags.count("script"), tags.count("img"), tags.count("title")) == (2, 0, 1)
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", html)
    data = html.split('id="data">')[1].split("</script>")[0]
    assert not set("<>&") & set(data)
    lanes = json.loads(data)["lanes"]
    assert len(lanes) == 6
    rows = dict(lanes[0]["calls"][0]["rows"])
    assert rows["Seen"] == spelled(HOSTILE)
    assert lanes[0]["calls"][0]["around"][1:3] == ["wa", "i"]


def test_nothing_is_fetched_and_equal_input_gives_equal_bytes(smollm2: Path) -> None:
    calls = explained(smollm2)
    html = render(calls, FACTS)
    assert html == render(explained(smollm2), FACTS)
    tags = Tags(html)
    policy = next(a["content"] for t, a in tags.tags if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert not [a for _, a in tags.tags if {"style", "src", "onclick"} & a.keys()]
    assert {a.get("href") for t, a in tags.tags if t in ("a", "link")} == {"#causes", "data:,"}
    assert not re.search(r"https?://|url\(|@import", html)


def test_a_log_without_a_break(smollm2: Path) -> None:
    calls = [call for call in explained(smollm2) if call.session == "chat"]
    html = render(calls, FACTS)
    assert "Nothing broke" in html
    assert "4 calls of 1 session, 0 breaks" in html
    assert "1 call of 1 session, 1 break." in render(
        [call_of("s", 0, broken=break_of("clock"))], FACTS
    )


def test_what_served_the_log_is_named() -> None:
    facts = {**FACTS, "kv_tokens": 4096, "draft": True, "price": "acme/llm"}
    html = render([call_of("s", 0)], facts)
    for said in ("4,096 tokens", "Draft model", "acme/llm", "16 tokens"):
        assert said in html
    assert "<dt>Cache</dt>" not in render([call_of("s", 0)], {**FACTS, "model": None})


def test_a_call_in_words() -> None:
    broken = break_of("clock", seconds=0.25, dollars=0.00125, vs_session="other", vs_call=7)
    html = render([call_of("s", 3, delivered=16, broken=broken)], FACTS)
    [lane] = json.loads(html.split('id="data">')[1].split("</script>")[0])["lanes"]
    [call] = lane["calls"]
    assert call["sums"] == ("100 prompt tokens; 48 lcp; 48 reusable; 48 predicted; 16 delivered")
    rows = dict(call["rows"])
    assert rows["Against"] == "call 7 of session other"
    assert rows["Where"] == "request layer, token 48, block 3, trunk"
    assert rows["Lost"] == "32 tokens computed again, 0.250 s, $0.00125"
    assert (rows["Confidence"], rows["Mend"]) == ("90%", "move it")


def test_out_writes_the_page_beside_what_is_shown(smollm2: Path, tmp_path: Path) -> None:
    log, out = tmp_path / "log.jsonl", tmp_path / "report.html"
    lines = [
        {"session_id": "s", "messages": call.messages, "response": call.reply}
        for call in with_clock(3).calls
    ]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    arguments = ["why", "--log", str(log), "--out", str(out)]
    said = CliRunner().invoke(app, arguments)
    assert said.exit_code == 0
    assert "lost tokens by cause" in said.stdout
    html = out.read_text("utf-8")
    assert "3 calls of 1 session, 2 breaks" in html
    as_json = CliRunner().invoke(app, [*arguments, "--json", "-"])
    assert json.loads(as_json.stdout)["totals"]["clock"] > 0
    assert out.read_text("utf-8") == html
    with pytest.raises(DuramenError, match="it is a folder"):
        CliRunner().invoke(app, [*arguments[:-1], str(tmp_path)], catch_exceptions=False)


def test_the_system_prompt_is_in_the_root(smollm2: Path) -> None:
    """A break inside it is drawn in the root, where it is said to be."""
    clock = [c for c in explained(smollm2) if c.broken and c.broken.cause == "clock"]
    assert len(clock) == 4
    for call in clock:
        assert call.zones is not None
        assert call.broken is not None
        assert (call.broken.token or 0) < call.zones[0]
