"""`duramen why` from the command line: two requests of any form, logs, and its JSON."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from why_cases import SYSTEM, TOOLS, chat, ids_of

from duramen.cli.main import app
from duramen.experiments.opening import load_model
from duramen.layout.errors import DuramenError, TrajectoryError


def run(*arguments: object) -> Any:
    result = CliRunner().invoke(app, ["why", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def explained(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json", "-")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def write(path: Path, value: object) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def body(text: str, **more: object) -> dict[str, Any]:
    messages = [{"role": "system", "content": text}, {"role": "user", "content": "Where is it?"}]
    return {"model": "m", "messages": messages, **more}


@pytest.fixture
def pair(smollm2: Path, tmp_path: Path) -> tuple[Path, Path]:
    rest = str(SYSTEM["content"])
    a = write(tmp_path / "a.json", body("It is 2026-12-01 10:00:00. " + rest))
    b = write(tmp_path / "b.json", body("It is 2026-12-01 10:00:07. " + rest))
    return a, b


def test_two_bodies(pair: tuple[Path, Path]) -> None:
    found = explained(*pair)
    head = ("schema_version", "duramen_version", "command", "model", "unit_tokens")
    assert [found[key] is not None for key in head] == [True] * 5
    first, second = found["calls"]
    assert first["break"]["cause"] == "first-call"
    broken = second["break"]
    assert (broken["cause"], broken["layer"], broken["zone"]) == ("clock", "request", "root")
    assert (broken["vs_session"], broken["vs_call"]) == (first["session"], 0)
    assert broken["block"] == broken["token"] // 16
    assert second["lcp"] == broken["token"]
    assert second["reusable"] == broken["token"] // 16 * 16
    assert second["delivered"] is None
    assert found["totals"]["clock"] == broken["lost_tokens"] > 0
    assert "10:00:0" in broken["around"][0]


def test_the_table_says_what_and_how_to_mend_it(pair: tuple[Path, Path]) -> None:
    said = run(*pair).stdout
    for words in ("clock", "request", "root", "seen:", "mend:", "lost tokens by cause"):
        assert words in said
    same = run(pair[0], pair[0]).stdout
    assert "0 breaks" in same


def test_what_the_clock_costs(pair: tuple[Path, Path]) -> None:
    found = explained(*pair, "--price", "openai/gpt-5.4-mini")
    assert found["calls"][1]["break"]["dollars"] > 0
    assert found["price"].startswith("openai/gpt-5.4-mini@")


def test_the_unit_decides_what_is_lost(pair: tuple[Path, Path]) -> None:
    for unit in (1, 32):
        call = explained(*pair, "--unit", unit)["calls"][1]
        assert call["reusable"] == call["lcp"] // unit * unit
        assert call["break"]["block"] == call["break"]["token"] // unit


def test_an_anthropic_body(smollm2: Path, tmp_path: Path) -> None:
    def anthropic(path: str) -> dict[str, Any]:
        used = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": path}}
        result = {"type": "tool_result", "tool_use_id": "t1", "content": "done"}
        return {
            "model": "claude-sonnet-5-5",
            "system": SYSTEM["content"],
            "tools": [{"name": "read", "description": "Read", "input_schema": {"type": "object"}}],
            "messages": [
                {"role": "user", "content": "Read it."},
                {"role": "assistant", "content": [{"type": "text", "text": "I read."}, used]},
                {"role": "user", "content": [result]},
            ],
        }

    a = write(tmp_path / "a.json", anthropic("a.txt"))
    b = write(tmp_path / "b.json", anthropic("b.txt"))
    broken = explained(a, b)["calls"][1]["break"]
    assert broken["cause"] == "history-edited"
    assert broken["zone"] == "trunk"
    assert explained(a, a)["calls"][1]["break"] is None


def test_text_and_ids(smollm2: Path, tmp_path: Path) -> None:
    text = "<|im_start|>system\nRequest {}.\n" + str(SYSTEM["content"])
    a = write(tmp_path / "a.txt", text.format("9c7ad4be-1e5f-4b6f-9d43-0f5de3a8c111"))
    b = write(tmp_path / "b.txt", text.format("1b2f0e55-77aa-4c0d-8f0e-3f9a2b6d7c21"))
    assert explained(a, b)["calls"][1]["break"]["cause"] == "uuid-or-hash"
    ids = write(tmp_path / "a.json", [1, 2, 3, 4, 5, 6])
    others = write(tmp_path / "b.json", [1, 2, 3, 9, 5, 6])
    broken = explained(ids, others, "--unit", 2)["calls"][1]["break"]
    assert (broken["token"], broken["block"]) == (3, 1)
    assert explained(ids, a)["calls"][1]["break"]["token"] in (0, 1)


@pytest.mark.parametrize("key", ["prompt_token_ids", "token_ids", "prompt"])
def test_ids_and_texts_in_bodies(smollm2: Path, tmp_path: Path, key: str) -> None:
    a = write(tmp_path / "a.json", {"model": "m", key: [1, 2, 3, 4, 5, 6]})
    b = write(tmp_path / "b.json", [1, 2, 3, 9, 5, 6])
    assert explained(a, b, "--unit", 2)["calls"][1]["break"]["token"] == 3
    text = str(SYSTEM["content"])
    c = write(tmp_path / "c.json", {"prompt": text})
    d = write(tmp_path / "d.txt", text)
    assert explained(c, d)["calls"][1]["lcp"] == explained(d, d)["calls"][1]["num_tokens"]


def test_a_request_against_its_text_and_its_ids(smollm2: Path, tmp_path: Path) -> None:
    """The request is rendered, and the ids are compared."""
    request = write(tmp_path / "request.json", body(str(SYSTEM["content"])))
    model = load_model(smollm2, None)
    messages = body(str(SYSTEM["content"]))["messages"]
    ids = ids_of(model, messages)
    text = model.tokenizer.decode(ids)
    for other in (write(tmp_path / "a.txt", text), write(tmp_path / "ids.json", ids)):
        for pair in ((request, other), (other, request)):
            call = explained(*pair)["calls"][1]
            assert call["lcp"] == call["num_tokens"] == len(ids)


def claude(model: str, num_blocks: int, *marked: int) -> dict[str, Any]:
    texts = [f"Part {i} of what was asked. " * 60 for i in range(num_blocks)]
    parts: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts]
    for index in marked:
        parts[index]["cache_control"] = {"type": "ephemeral"}
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": [part]} for i, part in enumerate(parts)]
    return {"model": model, "system": "Be brief.", "messages": messages, "max_tokens": 9}


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        (("claude-x", 3), ("claude-y", 5), "salt-or-model-changed"),
        (("claude-sonnet-5-5", 3), ("claude-sonnet-5-5", 5), None),
        (("claude-sonnet-5-5", 1, 0), ("claude-sonnet-5-5", 3, 2), "below-minimum"),
        (("claude-sonnet-5-5", 19, 18), ("claude-sonnet-5-5", 21, 20), None),
        (("claude-sonnet-5-5", 19, 18), ("claude-sonnet-5-5", 21, 0), "breakpoint-moved"),
        (("claude-sonnet-5-5", 19, 18), ("claude-sonnet-5-5", 45, 44), "lookback-exceeded"),
    ],
)
def test_a_provider_is_judged_by_its_rules_without_usage(
    smollm2: Path, tmp_path: Path, before: Any, after: Any, cause: str | None
) -> None:
    a, b = (write(tmp_path / f"{i}.json", claude(*x)) for i, x in enumerate((before, after)))
    broken = explained(a, b)["calls"][1]["break"]
    assert (broken and broken["cause"]) == cause
    assert broken is None or broken["lost_tokens"] > 0


@pytest.mark.parametrize(
    "option", [{"thinking": {"type": "disabled"}}, {"tool_choice": {"type": "any"}}]
)
@pytest.mark.parametrize(("num_blocks", "is_lost"), [(1, False), (19, True)])
def test_a_changed_option_is_named_before_a_minimum(
    smollm2: Path, tmp_path: Path, option: dict[str, Any], num_blocks: int, is_lost: bool
) -> None:
    before = claude("claude-sonnet-5-5", num_blocks, num_blocks - 1)
    after = claude("claude-sonnet-5-5", num_blocks + 2, num_blocks + 1) | option
    a, b = write(tmp_path / "a.json", before), write(tmp_path / "b.json", after)
    broken = explained(a, b)["calls"][1]["break"]
    assert (broken["cause"], broken["layer"]) == ("template-option", "request")
    assert next(iter(option)) in broken["evidence"]
    assert (broken["lost_tokens"] > 0) is is_lost


def test_a_break_below_the_minimum_costs_nothing(smollm2: Path, tmp_path: Path) -> None:
    before, after = claude("claude-haiku-4-5", 3, 2), claude("claude-haiku-4-5", 3, 2)
    after["messages"][1]["content"][0]["text"] = "Something else was said."
    a, b = write(tmp_path / "a.json", before), write(tmp_path / "b.json", after)
    broken = explained(a, b)["calls"][1]["break"]
    assert (broken["cause"], broken["lost_tokens"]) == ("history-edited", 0)
    assert "too few for the provider's cache" in broken["evidence"]


def test_a_model_of_ones_own_has_no_providers_rules(smollm2: Path, tmp_path: Path) -> None:
    bodies = claude("qwen3-32b", 1, 0), claude("qwen3-32b", 3, 2)
    a, b = (write(tmp_path / f"{i}.json", body) for i, body in enumerate(bodies))
    found = explained(a, b)
    assert found["calls"][1]["break"] is None
    [note] = found["notes"]
    assert "the requests name 'qwen3-32b'" in note


def test_a_log_is_no_request(smollm2: Path, tmp_path: Path) -> None:
    line = json.dumps({"messages": [{"role": "user", "content": "Hello."}]})
    log = write(tmp_path / "log.jsonl", f"{line}\n{line}\n")
    with pytest.raises(TrajectoryError, match="why --log FILE"):
        run(log, log)


def test_numbers_that_are_read_as_text(smollm2: Path, tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.txt", "1 2 3\n4, 5"), write(tmp_path / "b.txt", "1 2 3\n4, 6 men")
    first, second = explained(a, b)["calls"]
    assert "nothing but numbers" in first["notes"][0]
    assert second["notes"] == []
    ids = [write(tmp_path / f"{i}.json", {"prompt_token_ids": [9, 8, i]}) for i in (1, 2)]
    assert explained(*ids)["calls"][1]["break"]["ids"] == [1, 2]


def test_a_log(smollm2: Path, tmp_path: Path) -> None:
    session = chat(3)
    lines = [
        {"session_id": "s", "messages": call.messages, "tools": TOOLS, "response": call.reply}
        for call in session.calls
    ]
    lines[2]["tools"] = TOOLS[::-1]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    found = explained("--log", log)
    assert [call["call"] for call in found["calls"]] == [0, 1, 2]
    assert [call["break"] and call["break"]["cause"] for call in found["calls"]] == [
        "first-call",
        None,
        "tool-order",
    ]
    other = write(tmp_path / "other.jsonl", log.read_text("utf-8"))
    twice = explained("--log", log, other)
    assert len(twice["calls"]) == 6
    assert len({call["session"] for call in twice["calls"]}) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ("{}", "is no request"),
        ('{"messages": []}', "holds no messages"),
        ('{"messages": [', "cut off in the middle"),
        ('{"messages": NaN}', "is no valid JSON"),
        ('{"a": "\\ud800"}', "half a surrogate pair"),
        ("[" * 100_000, "nested too deeply"),
        ("plain text", "is no valid JSON"),
        ("[1, 2.5]", "2.5 is no token id"),
        ('{"prompt": [1, -2]}', "-2 is no token id"),
        ('{"messages": 7}', "messages is a number"),
        ('{"messages": [{"role": "pilot", "content": "x"}]}', "messages\\[0\\].role"),
        ("[1, -2]", "no token id"),
        ("[1, 99999999999]", "no token id"),
        ('{"messages": [{"role": "user"}], "a": %s}' % ("[" * 99 + "]" * 99), "a is nested deeper"),
        ("[]", "holds no messages"),
        ("17", "is no request"),
        ("[true, false]", "messages"),
    ],
)
def test_files_that_are_no_request(
    smollm2: Path, tmp_path: Path, pair: tuple[Path, Path], content: str, said: str
) -> None:
    bad = write(tmp_path / "bad.json", content)
    with pytest.raises(TrajectoryError, match=said):
        run(pair[0], bad)


def test_bytes_that_are_no_text(smollm2: Path, tmp_path: Path, pair: tuple[Path, Path]) -> None:
    bad = tmp_path / "bad.bin"
    bad.write_bytes(b"plain \xff\xfe")
    with pytest.raises(TrajectoryError, match="byte 6 is not UTF-8"):
        run(pair[0], bad)
    with pytest.raises(TrajectoryError, match="cannot be read"):
        run(pair[0], tmp_path)


def test_a_terminal_is_not_told_what_to_do_by_a_log(smollm2: Path, tmp_path: Path) -> None:
    lines = [body(f"It is 2026-12-01 10:00:0{n}. {SYSTEM['content']}") for n in (1, 2)]
    log = write(
        tmp_path / "log.jsonl",
        "".join(json.dumps(line | {"session_id": "a\x1b[31m\nb"}) + "\n" for line in lines),
    )
    out = run("--log", log).stdout
    assert "\x1b" not in out
    assert r"a\x1b[31m\nb #1: clock" in out


def test_equal_prompts_are_called_equal(pair: tuple[Path, Path]) -> None:
    call = explained(pair[0], pair[0])["calls"][1]
    size, units = call["num_tokens"], call["reusable"]
    equal = f"the prompts of A and B are equal, all {size} tokens: {units} can be reused"
    assert (call["break"], call["notes"]) == (None, [f"{equal}, in whole units of 16"])
    assert equal in " ".join(run(pair[0], pair[0]).stdout.split())


def test_a_request_that_begins_with_the_other(smollm2: Path, tmp_path: Path) -> None:
    texts = "one" + " two" * 39, "one" + " two" * 40
    a, b = (write(tmp_path / f"{name}.txt", text) for name, text in zip("ab", texts, strict=True))
    notes = [explained(*files)["calls"][1]["notes"][0] for files in ((a, b), (b, a))]
    assert notes[0].startswith("B begins with all 40 tokens of A: 32 can be reused")
    assert notes[1].startswith("B is how A begins: 40 of its 41 tokens: 32 can be reused")


def test_keys_that_come_twice_are_told(pair: tuple[Path, Path], tmp_path: Path) -> None:
    text = pair[0].read_text("utf-8").replace('"messages"', '"messages": [],\n "messages"')
    twice = write(tmp_path / "twice.json", text)
    calls = explained(twice, pair[1])["calls"]
    told = f"{twice}:2:2: the key 'messages' comes twice in one object; the last one counts, as it"
    assert calls[0]["notes"] == [f"{told} does for engines"]
    assert calls[1]["notes"] == []
    assert calls[1]["break"]["cause"] == "clock"


def test_images_that_differ_where_the_tokens_do_not(smollm2: Path, tmp_path: Path) -> None:
    template = write(
        tmp_path / "t.jinja",
        "{% for m in messages %}{{ m.role }}{% for p in m.content %}{{ p.text or '<image>' }}"
        "{% endfor %}{% endfor %}",
    )
    files = []
    for name, data in (("a", b"first"), ("b", b"other")):
        url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        parts = [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": url}}]
        messages = [{"role": "user", "content": parts}]
        files.append(write(tmp_path / f"{name}.json", {"messages": messages}))
    call = explained(*files, "--chat-template", template)["calls"][1]
    assert call["lcp"] == call["num_tokens"]
    [note] = call["notes"]
    assert "message 0, part 1: image changed (5 bytes, hash " in note


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name two requests"),
        (("a",), "name two requests"),
        (("a", "b", "c"), "name two requests"),
        (("--gateway", "http://127.0.0.1:1"), "goes with --session"),
        (("a", "b", "--session", "x", "--gateway", "http://127.0.0.1:1"), "no part of"),
    ],
)
def test_mistakes(smollm2: Path, arguments: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(app, ["why", *arguments])
    assert result.exit_code == 2
    assert said in result.output


def test_the_gateway_of_a_session_need_not_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    async def fetch(gateway: str, session_id: str, api_key: str | None) -> dict[str, Any]:
        asked.append((gateway, session_id))
        return {"id": session_id, "calls": []}

    monkeypatch.setattr("duramen.cli.why.fetch_session", fetch)
    assert explained("--session", "x")["calls"] == []
    assert asked == [("http://127.0.0.1:8080", "x")]


def test_a_gateway_that_is_not_there(smollm2: Path) -> None:
    with pytest.raises(DuramenError, match="no Duramen gateway answers"):
        run("--session", "x", "--gateway", "http://127.0.0.1:9")
